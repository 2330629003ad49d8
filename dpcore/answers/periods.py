"""The column that divides a table into blocks, as a question sees it: which blocks the question needs, and what it asks of each.

A release may lack this column: its rows are those of its blocks, so nothing is left to tell. A question can still use it in `where` and
`group by`, as long as every release lies entirely on one side of each condition, and in one group.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import date, datetime, time
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.answers.boxes import reduced
from dpcore.answers.cells import Column
from dpcore.answers.query import (
    Always,
    Among,
    Compare,
    Condition,
    Count,
    Key,
    KeyOf,
    Query,
    Term,
    leaves,
)
from dpcore.errors import UsageError
from dpcore.release.integrity import one_line
from dpcore.universe import Attribute, Date, Datetime
from dpcore.universe.blocks import Calendar, TimeBlock

MOST_PERIODS = 100_000
MOST_NAMED = 6
"""Of more blocks, or periods before or after all published ones, only the first and the last are named."""
SPAN = " to "
"""Between the first and the last of many periods that are named as one."""


@dataclass(frozen=True, eq=False)
class Periods:
    """The days from the first to the last block that matters to a question, divided where a condition or key of the question changes.

    Attributes:
        calendar: Divides rows into blocks.
        position: The position of the calendar's column.
        column: Its days.
    """

    calendar: Calendar
    position: int
    column: Column

    @classmethod
    def of(
        cls, calendar: Calendar, query: Query, position: int, *, attribute: Attribute, published: Iterable[TimeBlock]
    ) -> "Periods":
        """Divide the days of a question: all published ones, and those that the question names.

        Args:
            calendar: Divides rows into blocks.
            query: The question.
            position: The position of the calendar's column in it.
            attribute: That column.
            published: The blocks that some release covers.
        """
        parts = query.parts(position)
        first, last = _span(calendar, published, [day for part in parts for day in _named_days(part)])
        if isinstance(attribute, Datetime):
            ends = datetime.combine(first, time.min), datetime.combine(last, time(23, 59, 59))
            days: Attribute = Datetime(minimum=ends[0], maximum=ends[1], every=calendar.every)
        else:
            days = Date(minimum=first, maximum=last, every=calendar.every)
        return cls(calendar, position, Column.of(days, parts, released=False))

    def needed(self, condition: Condition) -> dict[int, str]:
        """Return the periods in which a condition may hold for some row, whatever its other columns are, by their cells."""
        return {cell: self._labels[cell] for cell in np.unique(self.column.cell[self._may_hold(condition)]).tolist()}

    def missing(self, condition: Condition, covered: Collection[str], published: Iterable[TimeBlock]) -> list[str]:
        """Return the needed periods that are not covered. Many of them before or after all published ones are named as one.

        Args:
            condition: The condition.
            covered: The names of the covered blocks.
            published: The blocks that some release covers.
        """
        cells = [self._cell(block) for block in published]
        first, last = min(cells), max(cells)
        missing = [(cell, label) for cell, label in self.needed(condition).items() if label not in covered]
        before = [label for cell, label in missing if cell < first]
        between = [label for cell, label in missing if first <= cell <= last]
        after = [label for cell, label in missing if cell > last]
        return [*_as_one(before), *between, *_as_one(after)]

    @cached_property
    def _labels(self) -> tuple[str, ...]:
        return self.column.attribute.labels

    @cached_property
    def _cells(self) -> dict[str, int]:
        return {label: cell for cell, label in enumerate(self._labels)}

    def _cell(self, block: TimeBlock) -> int:
        return self._cells[self.calendar.name(block.period, late=False)]

    def may_hold(self, condition: Condition, block: TimeBlock) -> bool:
        """Return whether a condition may hold for a row of a block."""
        return bool(self._may_hold(condition)[self._pieces([block])].any())

    def without(self, query: Query, blocks: Sequence[TimeBlock], *, release: str) -> tuple[Query, tuple[Any, ...]]:
        """Return a question about rows of these blocks that does not need the column, and the values of the keys that were removed.

        Raises:
            UsageError: If the question divides these blocks.
        """
        pieces = self._pieces(blocks)

        def decided(part: Any) -> Any:
            if part.term.column != self.position:
                return part
            return Always(truth=bool(self._only(self.column.truths(part)[pieces], release=release) == 2))

        removed: list[Any] = []
        for key in query.keys:
            if key.term.column == self.position:
                keys = self.column.keys(key.term)
                at = self._only(keys.of_piece[pieces], release=release)
                removed.append((keys.values[at], keys.highs[at]))
        others = tuple(key for key in query.keys if key.term.column != self.position)
        self._refuse_values(query)
        return replace(_changed(query, decided), keys=others), tuple(removed)

    def _refuse_values(self, query: Query) -> None:
        if any(not isinstance(part, Count) and part.column == self.position for part in query.aggregates()):
            raise UsageError(
                f"{one_line(self.calendar.column)} is not among the released columns, and only divides them into blocks; use it in "
                "where and group by, not in sum, avg or median"
            )

    def _only(self, values: npt.NDArray[Any], *, release: str) -> Any:
        """Return the only value among some, or raise."""
        distinct = np.unique(values)
        if len(distinct) != 1:
            raise UsageError(
                f"{one_line(release)} does not have the column {one_line(self.calendar.column)}, so its rows cannot be divided by it; ask "
                f"for whole periods of this release, or release {one_line(self.calendar.column)} with the other columns"
            )
        return distinct[0]

    def _pieces(self, blocks: Sequence[TimeBlock]) -> npt.NDArray[np.bool_]:
        """Return which pieces the rows of some blocks may lie in. Late rows may have any earlier day."""
        may_lie = np.zeros(len(self._labels), dtype=np.bool_)
        for block in blocks:
            cell = self._cell(block)
            may_lie[0 if block.late else cell : cell + 1] = True
        return np.asarray(may_lie[self.column.cell])

    def _may_hold(self, condition: Condition) -> npt.NDArray[np.bool_]:
        """Return on which pieces a condition may be true, whatever other columns are. A row of a block has a day, so its day is never null."""
        parts = [
            part for part in leaves(condition) if not isinstance(part, Always) and part.term.column == self.position
        ]
        if not parts:
            return np.full(self.column.pieces, reduced(condition) != Always(truth=False))
        truths, kind = np.unique(
            np.stack([self.column.truths(part) for part in parts], axis=1), axis=0, return_inverse=True
        )
        may_hold = [
            reduced(condition, dict(zip(parts, row, strict=True))) != Always(truth=False) for row in truths.tolist()
        ]
        return np.array(may_hold)[kind.ravel()]


def _as_one(names: list[str]) -> list[str]:
    """Name many periods as one.

    >>> _as_one(["2026-01", "2026-02"]), _as_one([f"2026-{month:02}" for month in range(1, 13)])
    (['2026-01', '2026-02'], ['2026-01 to 2026-12'])
    """
    return names if len(names) <= MOST_NAMED else [f"{names[0]}{SPAN}{names[-1]}"]


def _named_days(part: Any) -> list[date]:
    """Return the days that a condition compares the column itself with."""
    match part:
        case Compare(Term(_, None), _, value):
            return [_day(value)]
        case Among(Term(_, None), values):
            return [_day(value) for value in values]
    return []


def _day(value: Any) -> date:
    return value.date() if isinstance(value, datetime) else value


def _span(calendar: Calendar, published: Iterable[TimeBlock], named: Sequence[date]) -> tuple[date, date]:
    """Return the first and the last day that matter: of published blocks, and of those that a question names, from the calendar's start on."""
    periods = [block.period for block in published]
    ordinals = np.array([max(day, calendar.start).toordinal() for day in named], dtype=np.int64)
    periods += calendar.periods(ordinals).tolist()
    first, last = min(periods), max(periods)
    if last - first > MOST_PERIODS:
        raise UsageError(
            f"the question is about {last - first:,} periods, and at most {MOST_PERIODS:,} are possible; name a shorter time"
        )
    begin, after = calendar.first_days(np.array([first, last + 1], dtype=np.int64)).tolist()
    return date.fromordinal(begin), date.fromordinal(after - 1)


def _changed(node: Any, change: Callable[[Any], Any]) -> Any:
    """Return a question with each elementary condition replaced, and with conditions as short as their constants allow."""
    if isinstance(node, tuple):
        return tuple(_changed(part, change) for part in node)
    if not is_dataclass(node) or isinstance(node, Term | Key | KeyOf):
        return node
    if hasattr(node, "term"):
        return change(node)
    changed = {field.name: _changed(getattr(node, field.name), change) for field in fields(node)}
    if "where" in changed:
        changed["where"] = reduced(changed["where"])
    return replace(node, **changed)  # type: ignore[type-var]
