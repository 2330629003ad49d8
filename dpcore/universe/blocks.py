"""Blocks over time: which block a row belongs to, by its own day and its day of arrival, and which blocks a run reads.

Everything here follows from the spec, the current day and the ledger's grants, never from the data.
"""

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.universe import Date, Datetime, Every
from dpcore.universe.attribute import EPOCH_DAY
from dpcore.universe.temporal import MONTHS, names_of_bins

Days = npt.NDArray[np.int64]
"""Days, numbered like `date.toordinal`, or periods, numbered from year 1."""

LATE = "-late"
_MONTHS_BEFORE_EPOCH = 1970 * 12


@dataclass(frozen=True, order=True)
class TimeBlock:
    """The rows of one period that arrived on time, or all late rows that arrived during it."""

    period: int
    late: bool
    name: str


@dataclass(frozen=True)
class Calendar:
    """Divides rows into blocks by a public rule that looks at one row at a time.

    A row belongs to the block of the period that contains its own day. With `arrived`, this holds only if the row arrived before that
    period was closed, `grace_days` after its end; otherwise it belongs to the late block of the period in which it arrived. A closed block
    therefore never grows, and no row is in two blocks.

    Attributes:
        column: The column with a row's own day.
        every: The length of a period.
        start: A day in the first period. Rows of earlier periods are in no block.
        arrived: The column with the day on which a row arrived, if there is one.
        grace_days: How many days after its end a period is closed.
        formats: The formats of both columns if they are text; empty for ISO 8601.
    """

    column: str
    every: Every
    start: date
    arrived: str | None
    grace_days: int
    formats: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The text that the account's --blocks must equal. It names everything that decides which block a row is in.

        Two specs that divide the same rows differently cannot share an account, because a row would be in a block of each. Without
        `arrived`, the days of grace only decide when a block is read, and are left out. Formats are included: 01/02/2026 may lie in
        either of two months.

        >>> Calendar("visit", Every.MONTH, start=date(2026, 1, 1), arrived=None, grace_days=5).words
        'month of visit'
        >>> Calendar("visit", Every.MONTH, start=date(2026, 1, 1), arrived="sent", grace_days=5).words
        'month of visit, late by sent after 5 days'
        >>> Calendar("day, late", Every.MONTH, start=date(2026, 1, 1), arrived=None, grace_days=5).words
        'month of "day, late"'
        >>> Calendar("visit", Every.MONTH, start=date(2026, 1, 1), arrived=None, grace_days=5, formats=("%m/%d/%Y",)).words
        'month of visit, written "%m/%d/%Y"'
        """
        late = "" if self.arrived is None else f", late by {_quoted(self.arrived)} after {self.grace_days} days"
        formats = " or ".join(json.dumps(text, ensure_ascii=False) for text in self.formats)
        written = f", written {formats}" if formats else ""
        return f"{self.every} of {_quoted(self.column)}{late}{written}"

    @property
    def first(self) -> int:
        """The first period."""
        return self._period_on(self.start)

    def periods(self, days: Days) -> Days:
        """Return the period that each day lies in."""
        if self.every is Every.DAY:
            return days
        if self.every is Every.WEEK:
            return (days - 1) // 7  # day 1, which is 0001-01-01, is a Monday
        months = (days - EPOCH_DAY).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
        return (months + _MONTHS_BEFORE_EPOCH) // MONTHS[self.every]

    def first_days(self, periods: Days) -> Days:
        """Return the day on which each period begins."""
        if self.every is Every.DAY:
            return periods
        if self.every is Every.WEEK:
            return periods * 7 + 1
        months = periods * MONTHS[self.every] - _MONTHS_BEFORE_EPOCH
        return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + EPOCH_DAY

    def closes(self, periods: Days) -> Days:
        """Return the last day on which a row of each period arrives on time."""
        return self.first_days(periods + 1) - 1 + self.grace_days

    def name(self, period: int, *, late: bool) -> str:
        """Return the name of a block, in the form that a date column uses for its bins.

        >>> monthly = Calendar("visit", Every.MONTH, start=date(2026, 1, 1), arrived="sent", grace_days=0)
        >>> [block.name for block in monthly.complete(date(2026, 3, 1))]
        ['2026-01', '2026-02', '2026-02-late']
        """
        return self._names(np.array([period]))[0] + (LATE if late else "")

    def _names(self, periods: Days) -> tuple[str, ...]:
        return names_of_bins(self.every, (self.first_days(periods) - EPOCH_DAY).astype("datetime64[D]"))

    def block(self, name: str) -> TimeBlock:
        """Return the block with a name. Raise if this calendar has no such block."""
        plain = name.removesuffix(LATE)
        try:
            if self.every is Every.QUARTER:
                year, _, quarter = plain.partition("-Q")
                day = date(int(year), 3 * int(quarter) - 2, 1)
            else:
                day = date.fromisoformat(plain + {Every.MONTH: "-01", Every.YEAR: "-01-01"}.get(self.every, ""))
            block = TimeBlock(self._period_on(day), late=plain != name, name=name)
        except ValueError:
            block = None
        if block is None or self.name(block.period, late=block.late) != name:
            raise UsageError(f"'{name}' is not a block by {self.words}; start a new run")
        return block

    def complete(self, as_of: date) -> tuple[TimeBlock, ...]:
        """Return all blocks that are closed on a day, in chronological order."""
        periods = np.arange(self.first, self._open_on(as_of), dtype=np.int64)
        ends = self.first_days(periods + 1) - 1
        nothing_late_until = _one(self.closes, self.first)
        closed = []
        for period, name, end in zip(periods.tolist(), self._names(periods), ends.tolist(), strict=True):
            closed.append(TimeBlock(period, late=False, name=name))
            if self.arrived is not None and end > nothing_late_until:
                closed.append(TimeBlock(period, late=True, name=name + LATE))
        return tuple(closed)

    def next_complete(self, as_of: date) -> tuple[str, date]:
        """Return the name of the next block to be closed, and the first day on which it can be read."""
        period = self._open_on(as_of)
        return self.name(period, late=False), date.fromordinal(min(_one(self.closes, period) + 1, date.max.toordinal()))

    def _open_on(self, as_of: date) -> int:
        """Return the first period that is still open on a day."""
        return max(self.first, _one(self.periods, max(as_of.toordinal() - self.grace_days, 1)))

    def _period_on(self, day: date) -> int:
        return _one(self.periods, day.toordinal())


def choose(calendar: Calendar, *, window: str, as_of: date, covered: Collection[str]) -> tuple[TimeBlock, ...]:
    """Return the blocks that a run reads.

    Args:
        calendar: Divides rows into blocks.
        window: `all`, `new`, or `last` and a number of periods, as in a spec.
        as_of: Only blocks that are complete on this day are read.
        covered: The blocks that earlier runs of the series have covered, for `new`.

    Raises:
        UsageError: If there is no block to read. The message says when there will be one.
    """
    complete = calendar.complete(as_of)
    upcoming, day = calendar.next_complete(as_of)
    if not complete:
        raise UsageError(
            f"no block is complete as of {as_of}; the first, {upcoming}, will be complete on {day}: run again then"
        )
    if window == "new":
        complete = tuple(block for block in complete if block.name not in covered)
        if not complete:
            raise UsageError(
                f"there is no new block as of {as_of}: earlier releases of the series have covered all complete blocks; "
                f"the next, {upcoming}, will be complete on {day}: run again then"
            )
    elif window.startswith("last "):
        earliest = complete[-1].period - int(window.removeprefix("last ")) + 1
        complete = tuple(block for block in complete if block.period >= earliest)
    return complete


def narrowed(attribute: Date | Datetime, calendar: Calendar, names: Collection[str]) -> Date | Datetime:
    """Return the column of the blocks' days, narrowed to the days that these blocks can contain, which are public.

    Late rows may have any earlier day, so a late block only limits the end.

    Raises:
        UsageError: If a block lies outside the column's declared range, so that its rows would be released with wrong days.
    """
    blocks = [calendar.block(name) for name in names]
    periods = np.array([block.period for block in blocks], dtype=np.int64)
    begins = calendar.first_days(periods)
    ends = calendar.first_days(periods + 1) - 1
    low, high = _day(attribute.minimum), _day(attribute.maximum)
    for block, begin, end in zip(blocks, begins.tolist(), ends.tolist(), strict=True):
        if not block.late and (begin > high.toordinal() or end < low.toordinal()):
            raise UsageError(
                f"block '{block.name}' lies outside the `min` and `max` of {calendar.column} in the universe, {low} to {high}; "
                "extend them, or start the blocks later with `start`"
            )
    first = low if any(block.late for block in blocks) else max(low, date.fromordinal(int(begins.min())))
    last = min(high, date.fromordinal(int(ends.max())))
    if isinstance(attribute, Date):
        return replace(attribute, minimum=first, maximum=last)
    return replace(
        attribute,
        minimum=max(attribute.minimum, datetime.combine(first, time.min)),
        maximum=min(attribute.maximum, datetime.combine(last, time(23, 59, 59))),
    )


def _day(moment: date) -> date:
    return moment.date() if isinstance(moment, datetime) else moment


def checked_day(as_of: date | None) -> date:
    """Return the day as of which a run reads: `as_of`, or today in UTC. Raise if it lies in the future."""
    today = datetime.now(UTC).date()
    if as_of is not None and as_of > today:
        raise UsageError(
            f"{as_of} is in the future: name today, {today}, or an earlier day, as of which blocks are complete"
        )
    return as_of or today


def _quoted(column: str) -> str:
    """Quote a column's name if it could be confused with the words around it."""
    return column if re.fullmatch(r"[\w.-]+", column) else json.dumps(column, ensure_ascii=False)


def _one(function: Callable[[Days], Days], number: int) -> int:
    return int(function(np.array([number], dtype=np.int64))[0])
