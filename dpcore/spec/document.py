"""Read a YAML document and record the position of every part of it.

It is read with the YAML 1.2 core schema: `no` is the text "no" (a country, not a boolean), `1e-9` is a number, a date stays text.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from dpcore.errors import SpecError
from dpcore.scalars import is_unicode

Place = tuple[str | int, ...]

MOST_PARTS = 200_000
LARGEST_BYTES = 1 << 20
"""The largest spec that is parsed. The parser takes seconds for a megabyte; long lists belong in files of their own."""

_RESOLVERS = (
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", "~nN\0"),
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "tag:yaml.org,2002:float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
)


class _CoreLoader(yaml.SafeLoader):
    """A safe loader with only the resolvers of the YAML 1.2 core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  PyYAML's own class attribute


for _tag, _pattern, _first in _RESOLVERS:
    _CoreLoader.add_implicit_resolver(_tag, re.compile(rf"^(?:{_pattern})$"), ["" if c == "\0" else c for c in _first])


@dataclass(frozen=True)
class Mistake:
    """One mistake in a document, with its line and column, counted from 1."""

    line: int
    column: int
    message: str


@dataclass
class Document:
    """A parsed YAML file: its data as plain Python values, and the position of every key and item."""

    path: Path
    data: Any = None
    positions: dict[Place, tuple[int, int]] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def section(self, key: str) -> dict[str, Any]:
        """Return a part that is a block of keys; none if it is missing, or something else, which is reported elsewhere."""
        part = self.data.get(key)
        return part if isinstance(part, dict) else {}

    def mistake(self, place: Iterable[str | int], message: str) -> None:
        """Record a mistake at a place, or at the nearest enclosing part that exists in the file."""
        where = tuple(place)
        while where and where not in self.positions:
            where = where[:-1]
        line, column = self.positions.get(where, (1, 1))
        self.mistakes.append(Mistake(line, column, message))

    def raise_mistakes(self) -> None:
        """Raise one error that lists all mistakes, if any, ordered by position and then by text."""
        if self.mistakes:
            ordered = sorted(set(self.mistakes), key=lambda m: (m.line, m.column, m.message))
            raise SpecError("\n".join(f"{self.path}:{m.line}:{m.column}: {m.message}" for m in ordered))


def read_document(path: Path) -> Document:
    """Parse a YAML file. Raise at once if it is not valid YAML, since nothing else can be checked then."""
    document = Document(path)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
        text = content.decode("utf-8") if len(content) <= LARGEST_BYTES else None
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file; name a release spec, or write one with `dpflow init DATASET`") from None
    except IsADirectoryError:
        raise SpecError(f"{path}: is a folder; name the release spec in it") from None
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"{path}: cannot be read as UTF-8 text; check the file and its permissions") from None
    if text is None:
        raise SpecError(
            f"{path}: is larger than {LARGEST_BYTES >> 20} MiB, too large for a spec; name the release spec, not the table, "
            "and put long lists of values into a file for `values_from`"
        )
    loader = None
    try:
        loader = _CoreLoader(text)
        node = loader.get_single_node()
        if node is not None:
            document.data = _plain(node, (), loader, document)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        document.mistakes.append(
            Mistake(line, column, f"not valid YAML: {error.problem}; check indentation and quotes")
        )
        document.raise_mistakes()
    except (yaml.YAMLError, RecursionError):
        document.mistake((), "not valid YAML; check for control characters and unclosed brackets")
        document.raise_mistakes()
    finally:
        if loader is not None:
            loader.dispose()
    return document


def _plain(node: yaml.Node, place: Place, loader: _CoreLoader, document: Document) -> Any:
    """Convert a node into dicts, lists and scalars, and record positions and duplicate keys."""
    if len(document.positions) > MOST_PARTS:
        document.mistake(
            (),
            f"the file has more than {MOST_PARTS:,} parts, counting every use of an alias; put long lists into `values_from`",
        )
        document.raise_mistakes()
    document.positions.setdefault(place, (node.start_mark.line + 1, node.start_mark.column + 1))
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*place, index), loader, document) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
            inner = (*place, key)
            _require_unicode(key, place, document)
            if key in result:
                document.mistakes.append(
                    Mistake(
                        key_node.start_mark.line + 1,
                        key_node.start_mark.column + 1,
                        f"`{key}` is written twice; keep one of them",
                    )
                )
                continue
            document.positions[inner] = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            result[key] = _plain(value_node, inner, loader, document)
        return result
    _require_unicode(str(node.value), place, document)
    try:
        return loader.construct_object(node)
    except ValueError:
        document.mistake(place, "cannot be read as a number; put quotes around a text")
        return None


def _require_unicode(text: str, place: Place, document: Document) -> None:
    """Raise at once for an escape that stands for no character: no file could hold the text, and no message could quote it."""
    if not is_unicode(text):
        document.mistake(place, "is not valid Unicode; remove escapes from \\ud800 to \\udfff")
        document.raise_mistakes()
