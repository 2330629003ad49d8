"""What a verb hands back: data for programs, a text for people, and an exit code."""

import json
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, ClassVar

_AHEAD = 200
"""Rows of a listing that are looked at before the first is written, to find the widths of its columns."""


@dataclass(frozen=True)
class Answer:
    """The result of one verb."""

    data: dict[str, Any]
    text: str
    exit_code: int = 0

    def pieces(self, *, as_json: bool) -> Generator[str]:
        """Return what to write."""
        yield f"{json.dumps(self.data) if as_json else self.text}\n"


@dataclass(frozen=True)
class Listing:
    """A result of any length that is never held as a whole: it is written as its items come.

    Attributes:
        name: What the items are called, as the key of the one JSON object.
        items: The items, in order.
        data: An item for programs.
        heading: The columns for people; those named in `right` are numbers.
        row: An item for people.
    """

    name: str
    items: Iterable[Any]
    data: Callable[[Any], dict[str, Any]]
    heading: tuple[str, ...]
    row: Callable[[Any], tuple[str, ...]]
    right: Collection[str] = ()
    exit_code: ClassVar[int] = 0

    def pieces(self, *, as_json: bool) -> Generator[str]:
        """Return what to write, piece by piece."""
        return self._json() if as_json else self._lines()

    def _json(self) -> Generator[str]:
        opening = f'{{"{self.name}": ['
        for item in self.items:
            yield f"{opening}{json.dumps(self.data(item))}"
            opening = ",\n"
        yield "]}\n" if opening == ",\n" else f"{opening}]}}\n"

    def _lines(self) -> Generator[str]:
        rows = (self.row(item) for item in self.items)
        first = [self.heading, *islice(rows, _AHEAD)]
        widths = _widths(first)
        right = [name in self.right for name in self.heading]
        for row in chain(first, rows):
            # A column that turns out too narrow stays wide from there on.
            widths = [max(width, len(cell)) for width, cell in zip(widths, row, strict=True)]
            yield f"{_line(row, widths, right)}\n"


def table(rows: Sequence[tuple[str, ...]], *, right: Collection[str] = (), indent: int = 0) -> str:
    """Lay rows out in columns; the first row is the heading, and the columns named in `right` are numbers.

    >>> print(table([("run", "spent"), ("a1", "0.5")], right={"spent"}))
    run  spent
    a1     0.5
    """
    widths, numbers = _widths(rows), [name in right for name in rows[0]]
    return "\n".join(" " * indent + _line(row, widths, numbers) for row in rows)


def _widths(rows: Sequence[tuple[str, ...]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _line(row: tuple[str, ...], widths: Sequence[int], right: Sequence[bool]) -> str:
    cells = zip(row, widths, right, strict=True)
    return "  ".join(cell.rjust(width) if number else cell.ljust(width) for cell, width, number in cells).rstrip()
