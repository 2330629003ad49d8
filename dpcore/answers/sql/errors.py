"""Mistakes in a question, with their line and column."""

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING

from dpcore.errors import UsageError

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

LONGEST_SHOWN = 60

_PLAIN = re.compile(r"[^\W\d]\w*")
_PIECES = re.compile(r"\w+|[^\w\s]")
_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|--[^\n]*""")
_RESERVED = re.compile(
    r"all|and|any|as|asc|between|by|case|cast|desc|distinct|else|end|exists|false|from|group|having|in|"
    r"is|join|like|limit|not|null|offset|on|or|order|select|table|then|true|union|using|when|where|with",
    re.IGNORECASE,
)


class QueryError(UsageError):
    """A question cannot be answered as it is written. The message begins with the line and column, counted from 1."""

    def __init__(self, message: str, *, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.line, self.column = line, column

    def __reduce__(self) -> tuple[type[UsageError], tuple[object, ...]]:
        """Keep the message when the error is pickled."""
        return UsageError, self.args


def position(text: str, offset: int) -> tuple[int, int]:
    r"""Return the line and column of a character, counted from 1.

    >>> position("select\n  x", 9)
    (2, 3)
    """
    before = text[: max(0, offset)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def mistake(text: str, node: "Expr", message: str) -> QueryError:
    """Return the error for a part of a statement."""
    line, column = position(text, _offset(node))
    return QueryError(message, line=line, column=column)


def _offset(node: "Expr") -> int:
    """Return where a part begins: the first position that it, one of its parts, or the nearest part around it knows."""
    around: Expr | None = node
    while around is not None:
        starts = [part.meta["start"] for part in around.walk() if "start" in part.meta]
        if starts:
            return int(min(starts))
        around = around.parent
    return 0


def shown(text: object) -> str:
    r"""Return a piece of a question to quote in an error: on one line, and not too long.

    >>> shown("a\nb"), len(shown("x" * 1000))
    ("'a\\nb'", 65)
    """
    plain = str(text)
    return repr(plain if len(plain) <= LONGEST_SHOWN else plain[:LONGEST_SHOWN] + "...")


def nearest(word: str, names: Iterable[object]) -> str:
    """Return words that name the names nearest to a word, or a few of them.

    >>> nearest("agee", ["age", "sex"]), nearest("q", ["age", "sex"])
    ('did you mean age?', 'there are age, sex')
    """
    texts = list(map(str, names))
    if close := _close(word, texts):
        return f"did you mean {' or '.join(map(_bare, close))}?"
    more = f", and {len(texts) - 10:,} more" if len(texts) > 10 else ""
    return f"there are {', '.join(map(_bare, texts[:10]))}{more}"


def nearest_column(word: str, names: Sequence[str]) -> str:
    """Return words that name the columns nearest to a word, and all columns, or where these are listed if they are many.

    >>> nearest_column("agee", ["age", "hours-per-week"])
    'did you mean age? The columns are age, "hours-per-week"'
    """
    close = _close(word, names)
    meant = f"did you mean {' or '.join(map(as_written, close))}? " if close else ""
    if len(names) > 12:
        return f"{meant}The release's card and its spec list all {len(names):,} columns"
    listed = f"he columns are {', '.join(map(as_written, names))}"
    return f"{meant}T{listed}" if meant else f"t{listed}"


def as_written(name: str) -> str:
    """Return the name of a column as SQL has it: in double quotes unless it is a plain word.

    >>> as_written("age"), as_written("hours-per-week"), as_written("group")
    ('age', '"hours-per-week"', '"group"')
    """
    plain = _PLAIN.fullmatch(name) and not _RESERVED.fullmatch(name)
    return name if plain else _bare('"' + name.replace('"', '""') + '"')


def unquoted(text: str, names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield the columns with names that need double quotes and stand in a text without them, each with its place; long names first.

    >>> list(unquoted("select hours-per-week from release", ["hours-per-week"]))
    [('hours-per-week', 7)]
    >>> list(unquoted('select "hours-per-week" from release', ["hours-per-week"]))
    []
    """
    outside = _QUOTED.sub(lambda quoted: " " * len(quoted.group()), text)
    for name in sorted((name for name in names if not _PLAIN.fullmatch(name)), key=len, reverse=True):
        if parts := r"\s*".join(map(re.escape, _PIECES.findall(name))):  # blanks around a hyphen change nothing
            for match in re.finditer(rf"(?<![\w\"]){parts}(?![\w\"])", outside, re.IGNORECASE):
                yield name, match.start()


def _close(word: str, names: Iterable[str]) -> list[str]:
    by_lower = {name.casefold(): name for name in islice(names, 20_000)}
    close = get_close_matches(word[:LONGEST_SHOWN].casefold(), by_lower, n=3, cutoff=0.6)
    return [by_lower[lower] for lower in close]


def _bare(name: str) -> str:
    return name if name.isprintable() and len(name) <= LONGEST_SHOWN else shown(name)


def unsupported(text: str, node: "Expr", instead: str) -> QueryError:
    """Return the error for a part of a statement that has no meaning here."""
    return mistake(text, node, f"{_said(node)} is not supported here; {instead}")


def _said(node: "Expr") -> str:
    """Name a part of a statement by its kind, without rendering it: a hostile one may be deep."""
    name = getattr(node, "name", "") if node.key in ("anonymous", "column", "literal", "identifier") else ""
    kind = {"anonymous": "the function", "column": "the column", "literal": "the constant"}.get(node.key, node.key)
    return f"{kind} {shown(name)}" if name else f"`{node.key}`"
