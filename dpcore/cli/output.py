"""What a verb returns, as data for programs and as text for people; and the tables and budget bars of that text."""

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, ClassVar

from dpcore.reporting.ratings import Rating

_MARKS, _PLAIN_MARKS = ("█", "▒", "·"), ("#", "=", ".")


@dataclass(frozen=True)
class Answer:
    """The result of one verb. The data are an object, or a list if no ledger was used."""

    data: Any
    text: str
    exit_code: int = 0

    def pieces(self, *, as_json: bool, used: "UsedLedger | None" = None) -> Generator[str]:
        """Yield the output, including the ledger that was used."""
        if as_json:
            yield f"{json.dumps(self.data | {'ledger': used.data} if used else self.data)}\n"
        else:
            yield (f"{used.text}\n\n" if used else "") + f"{self.text}\n"


@dataclass(frozen=True)
class Listing:
    """A result of any length, streamed item by item and never held in memory as a whole.

    Attributes:
        name: The key under which the JSON object lists the items.
        items: The items, in order.
        data: Converts an item to JSON data.
        heading: The column names of the text table.
        row: Converts an item to a row of the text table.
        right: The columns to align right, such as numbers.
    """

    name: str
    items: Iterable[Any]
    data: Callable[[Any], dict[str, Any]]
    heading: tuple[str, ...]
    row: Callable[[Any], tuple[str, ...]]
    right: Collection[str] = ()
    exit_code: ClassVar[int] = 0

    def pieces(self, *, as_json: bool, used: "UsedLedger | None" = None) -> Generator[str]:
        """Yield the output piece by piece, including the ledger that was used."""
        return self._json(used) if as_json else self._lines(used)

    def _json(self, used: "UsedLedger | None") -> Generator[str]:
        opening = f'{{"ledger": {json.dumps(used.data)}, "{self.name}": [' if used else f'{{"{self.name}": ['
        for item in self.items:
            yield f"{opening}{json.dumps(self.data(item))}"
            opening = ",\n"
        yield "]}\n" if opening == ",\n" else f"{opening}]}}\n"

    def _lines(self, used: "UsedLedger | None") -> Generator[str]:
        if used:
            yield f"{used.text}\n\n"
        rows = (self.row(item) for item in self.items)
        first = [self.heading, *islice(rows, 200)]  # they decide the widths
        widths = _widths(first)
        right = [name in self.right for name in self.heading]
        for row in chain(first, rows):
            # A cell wider than its column widens the column from this row on.
            widths = [max(width, len(cell)) for width, cell in zip(widths, row, strict=True)]
            yield f"{_line(row, widths, right)}\n"


@dataclass(frozen=True)
class UsedLedger:
    """The ledger that a verb used.

    Attributes:
        place: Its path, or its address without the password.
        identity: The hash of its first event; None while it is empty.
        hides: A `.dpflow` folder further up, whose ledger was not used.
        warning: Why nothing may be written to it.
    """

    place: str
    identity: str | None
    hides: str | None = None
    warning: str | None = None

    @property
    def data(self) -> dict[str, str | None]:
        """Return the ledger as JSON data."""
        return {"url": self.place, "id": self.identity, "hides": self.hides, "warning": self.warning}

    @property
    def named(self) -> str:
        """Return the ledger's address and identity in one line."""
        return f"ledger {self.place}, identity {self.identity[:12] + '...' if self.identity else 'none yet'}"

    @property
    def text(self) -> str:
        """Return the line for people, with notes and warnings below it."""
        lines = [self.named]
        if self.hides:
            lines.append(f"       {self.hides} lies further up and was not used")
        if self.warning:
            lines.append(f"warning: {self.warning}")
        return "\n".join(lines)


def table(rows: Sequence[tuple[str, ...]], *, right: Collection[str] = ()) -> str:
    """Format rows as a text table. The first row is the heading; columns named in `right` are aligned right.

    >>> print(table([("run", "spent"), ("a1", "0.5")], right={"spent"}))
    run  spent
    a1     0.5
    """
    widths, numbers = _widths(rows), [name in right for name in rows[0]]
    return "\n".join(_line(row, widths, numbers) for row in rows)


def _widths(rows: Sequence[tuple[str, ...]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _line(row: tuple[str, ...], widths: Sequence[int], right: Sequence[bool]) -> str:
    cells = zip(row, widths, right, strict=True)
    return "  ".join(cell.rjust(width) if number else cell.ljust(width) for cell, width, number in cells).rstrip()


def bar(*, spent: int, reserved: int, whole: int, width: int) -> str:
    """Draw a bar. A small used or remaining part still gets one cell.

    >>> bar(spent=500, reserved=250, whole=1000, width=8)
    '████▒▒··'
    """
    used = _cells(spent + reserved, whole, width)
    filled = min(_cells(spent, whole, width), used if not reserved or used < 2 else used - 1)
    first, second, third = _marks()
    return first * filled + second * (used - filled) + third * (width - used)


def blocks_text(names: Sequence[str]) -> str:
    """Name a block, or say how many there are and name the first and the last.

    >>> blocks_text(["2026-01"]), blocks_text(["2026-01", "2026-02", "2026-03"])
    ('block 2026-01', '3 blocks, 2026-01 to 2026-03')
    """
    return f"block {names[0]}" if len(names) == 1 else f"{len(names):,} blocks, {names[0]} to {names[-1]}"


def legend() -> str:
    """Return the meaning of a bar's marks."""
    first, second, third = _marks()
    return f"{first} spent   {second} reserved   {third} left"


def mark(rating: Rating) -> str:
    """Return a rating as its symbol and its word. A terminal that cannot print the symbol gets a plain one."""
    symbol = rating.symbol
    if not _printable("".join(shown.symbol for shown in Rating)):
        symbol = {Rating.GOOD: "+", Rating.FAIR: "~", Rating.POOR: "x"}[rating]
    return f"{symbol} {rating}"


def width_to_fill() -> int | None:
    """Return the width of the terminal, or of COLUMNS; None if the output goes elsewhere, where lines are searched and not wrapped."""
    columns = shutil.get_terminal_size((0, 0)).columns
    return max(columns, 60) if columns else None  # a narrower terminal wraps the lines itself


def wrapped(line: str, *, indent: int) -> str:
    """Wrap a line at the terminal's width, but not between a number and its percent sign. The lines that follow are indented."""
    width = width_to_fill()
    if width is None or len(line) <= width:
        return line
    together, apart = line.replace(" %", "\0%"), " " * indent
    lines = textwrap.wrap(together, width, subsequent_indent=apart, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def rule(width: int) -> str:
    """Draw a line to go below a heading."""
    return ("-" if _marks() is _PLAIN_MARKS else "─") * width


def _cells(part: int, whole: int, width: int) -> int:
    if part <= 0:
        return 0
    if (whole - part) * 10**6 <= whole:  # the rest is rounding error
        return width
    return max(1, min(width - 1, round(width * part / whole)))


def _marks() -> tuple[str, str, str]:
    return _MARKS if _printable("".join(_MARKS)) else _PLAIN_MARKS


def _printable(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
