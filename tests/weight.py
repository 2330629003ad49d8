"""The weight of the code by folder: python -m tests.weight [FOLDER...]

Tokens are those of the language: without comments, docstrings, indents and ends of lines, so that a denser line weighs as much. A constant is a
name that a module binds to a number, to arithmetic with one, or to a tuple or list of such. An empty name says nothing of what it is bound to;
each binding counts: by an assignment, a loop, a pattern or a parameter.
"""

import ast
import sys
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from io import StringIO
from pathlib import Path
from tokenize import COMMENT, DEDENT, ENDMARKER, INDENT, NEWLINE, NL, generate_tokens

FOLDERS = ("dpcore", "flows", "tests", "benchmarks")
EMPTY_NAMES = frozenset(["each", "found", "known", "told", "wanted", "kept", "one", "other", "made", "given"])
WEIGHTLESS = {COMMENT, DEDENT, ENDMARKER, INDENT, NEWLINE, NL}


@dataclass(frozen=True)
class Weight:
    """What some files weigh, in the order in which it is printed."""

    files: int = 0
    lines: int = 0
    characters: int = 0
    tokens: int = 0
    constants: int = 0
    empty_names: int = 0

    def __add__(self, more: "Weight") -> "Weight":
        return Weight(*map(sum, zip(astuple(self), astuple(more), strict=True)))


def weight_of(text: str) -> Weight:
    """Return the weight of a module."""
    tree = ast.parse(text)
    nodes = tuple(ast.walk(tree))
    empty_names = sum(_bound_name(node) in EMPTY_NAMES for node in nodes)
    return Weight(1, text.count("\n"), len(text), _tokens(text, nodes), _constants(tree), empty_names)


def weight_below(folder: Path) -> Weight:
    """Return the weight of all modules in a folder and below."""
    modules = (path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)
    return sum((weight_of(path.read_text(encoding="utf-8")) for path in modules), Weight())


def _tokens(text: str, nodes: Iterable[ast.AST]) -> int:
    docstrings = {
        (node.body[0].lineno, node.body[0].col_offset)
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node, clean=False) is not None
    }
    tokens = generate_tokens(StringIO(text).readline)
    return sum(token.type not in WEIGHTLESS and token.start not in docstrings for token in tokens)


def _constants(tree: ast.Module) -> int:
    bindings = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) and _is_number(node.value)]
    return sum(_is_stored(name) for node in bindings for name in ast.walk(node))


def _is_number(value: ast.expr | None) -> bool:
    match value:
        case ast.Constant(bool()):
            return False
        case ast.Constant(int() | float()):
            return True
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) or _is_number(right)
        case ast.Tuple(parts) | ast.List(parts):
            return any(map(_is_number, parts))
    return False


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _bound_name(node: ast.AST) -> str | None:
    match node:
        case ast.Name(name, ast.Store()) | ast.arg(name) | ast.MatchAs(_, name) | ast.MatchStar(name):
            return name
    return None


def main(folders: Iterable[str]) -> None:
    """Print the weight of each folder."""
    print(f"{'':10} files    lines      kB     tokens  constants  empty names")
    for folder in folders:
        weight = weight_below(Path(folder))
        print(
            f"{folder:10} {weight.files:5,} {weight.lines:8,} {weight.characters // 1000:7,} {weight.tokens:10,}"
            f" {weight.constants:10,} {weight.empty_names:12,}"
        )


if __name__ == "__main__":
    main(sys.argv[1:] or FOLDERS)
