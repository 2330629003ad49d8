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

from dpcore.answers.cells import Column
from dpcore.answers.query import (
    All,
    Always,
    Among,
    AnyOf,
    Compare,
    Condition,
    Count,
    IsNull,
    IsTrue,
    Key,
    KeyOf,
    Not,
    Query,
    Term,
    aggregates,
    leaves,
)
from dpcore.errors import UsageError
from dpcore.release.integrity import one_line
from dpcore.universe import Attribute, Date, Datetime
from dpcore.universe.blocks import Calendar, TimeBlock

MOST_PERIODS = 100_000
MOST_BEYOND = 6
"""Of more missing periods before or after all published ones, only the first and the last are named."""
SPAN = " to "
"""Between the first and the last of many periods that are named as one."""
Truths = npt.NDArray[np.int8]


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
        parts = [part for part in _parts(query) if getattr(part, "term", part).column == position]
        first, last = _span(calendar, published, [day for part in parts for day in _named_days(part)])
        if isinstance(attribute, Datetime):
            ends = datetime.combine(first, time.min), datetime.combine(last, time(23, 59, 59))
            days: Attribute = Datetime(minimum=ends[0], maximum=ends[1], every=calendar.every)
        else:
            days = Date(minimum=first, maximum=last, every=calendar.every)
        return cls(calendar, position, Column.of(days, parts, released=False))

    def needed(self, condition: Condition) -> tuple[str, ...]:
        """Return the periods in which a condition may hold for some row, whatever its other columns are."""
        return tuple(self._labels[cell] for cell in self._needed(condition))

    def missing(self, condition: Condition, covered: Collection[str], published: Iterable[TimeBlock]) -> list[str]:
        """Return the needed periods that are not covered. Many of them before or after all published ones are named as one.

        Args:
            condition: The condition.
            covered: The names of the covered blocks.
            published: The blocks that some release covers.
        """
        known = [self._cell(block) for block in published]
        first, last = min(known), max(known)
        missing = [cell for cell in self._needed(condition) if self._labels[cell] not in covered]
        before = [self._labels[cell] for cell in missing if cell < first]
        between = [self._labels[cell] for cell in missing if first <= cell <= last]
        after = [self._labels[cell] for cell in missing if cell > last]
        return [*_as_one(before), *between, *_as_one(after)]

    def _needed(self, condition: Condition) -> list[int]:
        return [int(cell) for cell in np.unique(self.column.cell[self._most(condition) == 2])]

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
        return bool((self._most(condition)[self._pieces([block])] == 2).any())

    def without(self, query: Query, blocks: Sequence[TimeBlock], *, release: str) -> tuple[Query, tuple[Any, ...]]:
        """Return a question about rows of these blocks that does not need the column, and the values of the keys that were removed.

        Raises:
            UsageError: If the question divides these blocks.
        """
        pieces = self._pieces(blocks)

        def known(part: Any) -> Any:
            if getattr(part, "term", Term(-1)).column != self.position:
                return part
            truths = np.zeros(1, np.int8) if isinstance(part, IsNull) else self.column.truths(part)[pieces]
            return Always(truth=bool(self._one(truths, release=release) == 2))

        removed: list[Any] = []
        for key in query.keys:
            if key.term.column == self.position:
                keys = self.column.keys(key.term)
                at = self._one(keys.of_piece[pieces], release=release)
                removed.append((keys.values[at], keys.highs[at]))
        kept = tuple(key for key in query.keys if key.term.column != self.position)
        self._refuse_values(query)
        return replace(_changed(query, known), keys=kept), tuple(removed)

    def _refuse_values(self, query: Query) -> None:
        for number in query.numbers():
            for each in aggregates(number):
                if not isinstance(each, Count) and each.column == self.position:
                    raise UsageError(
                        f"{one_line(self.calendar.column)} is not among the released columns, and only divides them into blocks; use it in "
                        "where and group by, not in sum, avg or median"
                    )

    def _one(self, found: npt.NDArray[Any], *, release: str) -> Any:
        """Return the only value among some, or raise."""
        distinct = np.unique(found)
        if len(distinct) != 1:
            raise UsageError(
                f"{one_line(release)} does not have the column {one_line(self.calendar.column)}, so its rows cannot be divided by it; ask "
                f"for whole periods of this release, or release {one_line(self.calendar.column)} with the other columns"
            )
        return distinct[0]

    def _pieces(self, blocks: Sequence[TimeBlock]) -> npt.NDArray[np.bool_]:
        """Return which pieces the rows of some blocks may lie in. Late rows may have any earlier day."""
        found = np.zeros(len(self._labels), dtype=np.bool_)
        for block in blocks:
            at = self._cell(block)
            found[0 if block.late else at : at + 1] = True
        return np.asarray(found[self.column.cell])

    def _most(self, condition: Condition) -> Truths:
        """Return the most that the truth of a condition can be on each piece: 0 for false, 1 for unknown, 2 for true."""
        return self._bounds(condition)[1]

    def _bounds(self, condition: Condition) -> tuple[Truths, Truths]:
        """Return the least and the most that the truth of a condition can be on each piece, whatever other columns are."""
        pieces = self.column.pieces
        match condition:
            case Always(truth):
                return (np.full(pieces, 2 * truth, dtype=np.int8),) * 2
            case Not(part):
                least, most = self._bounds(part)
                return np.int8(2) - most, np.int8(2) - least
            case IsTrue(part):
                least, most = (np.where(each == 2, np.int8(2), np.int8(0)) for each in self._bounds(part))
                return least, most
            case All(parts) | AnyOf(parts):
                combine = np.minimum if isinstance(condition, All) else np.maximum
                start = np.full(pieces, 2 if isinstance(condition, All) else 0, dtype=np.int8)
                both = [(start, start), *map(self._bounds, parts)]
                return combine.reduce([each[0] for each in both]), combine.reduce([each[1] for each in both])
        if condition.term.column != self.position:
            return np.zeros(pieces, dtype=np.int8), np.full(pieces, 2, dtype=np.int8)
        # a row of a block has a day, so its day is never null
        return (np.zeros(pieces, np.int8) if isinstance(condition, IsNull) else self.column.truths(condition),) * 2


def _as_one(names: list[str]) -> list[str]:
    """Name many periods as one.

    >>> _as_one(["2026-01", "2026-02"]), _as_one([f"2026-{month:02}" for month in range(1, 13)])
    (['2026-01', '2026-02'], ['2026-01 to 2026-12'])
    """
    return names if len(names) <= MOST_BEYOND else [f"{names[0]}{SPAN}{names[-1]}"]


def _parts(query: Query) -> list[Any]:
    """Return all elementary conditions and keys of a question."""
    inner = [each for number in query.numbers() for each in aggregates(number)]
    conditions = [query.where, *(each.where for each in inner)]
    elementary = [part for condition in conditions for part in leaves(condition) if not isinstance(part, Always)]
    return [*(part for part in elementary if not isinstance(part, IsNull)), *(key.term for key in query.keys)]


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
        return tuple(_changed(each, change) for each in node)
    if not is_dataclass(node) or isinstance(node, Term | Key | KeyOf):
        return node
    if hasattr(node, "term"):
        return change(node)
    found = {each.name: _changed(getattr(node, each.name), change) for each in fields(node)}
    if "where" in found:
        found["where"] = _shortened(found["where"])
    return replace(node, **found)  # type: ignore[type-var]


def _shortened(condition: Condition) -> Condition:
    """Return a condition without constants, so that conditions on the same rows are equal.

    >>> _shortened(AnyOf((Always(truth=False), Not(All((IsNull(Term(0)), Always(truth=True)))))))
    Not(part=IsNull(term=Term(column=0, transform=None)))
    """
    match condition:
        case Not(part) | IsTrue(part):
            inner = _shortened(part)
            if isinstance(inner, Always):
                return Always(truth=inner.truth != isinstance(condition, Not))
            return replace(condition, part=inner)
        case All(parts) | AnyOf(parts):
            neutral = Always(truth=isinstance(condition, All))
            kept = [each for each in map(_shortened, parts) if each != neutral]
            decided = [each for each in kept if isinstance(each, Always)]
            if decided or not kept:
                return decided[0] if decided else neutral
            return kept[0] if len(kept) == 1 else replace(condition, parts=tuple(kept))
    return condition
