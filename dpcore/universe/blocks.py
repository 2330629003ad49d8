"""Blocks over time: which block a row belongs to, by its day and by when it came in, and which blocks a run reads.

Everything here follows from the spec, the day and what the ledger has granted: nothing from the data.
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

Days = npt.NDArray[np.int64]
"""Days, counted as `date.toordinal` counts them, or periods, counted from the first year on."""

LATE = "-late"
_EPOCH = date(1970, 1, 1).toordinal()
_WEEK = 7
_MONTHS = {Every.MONTH: 1, Every.QUARTER: 3, Every.YEAR: 12}
_MONTHS_BEFORE_EPOCH = 1970 * 12


@dataclass(frozen=True, order=True)
class TimeBlock:
    """The rows of one period that came in on time, or all late rows that came in during it."""

    period: int
    late: bool
    name: str


@dataclass(frozen=True)
class Calendar:
    """How rows are divided into blocks: by a public rule that looks at one row at a time.

    A row belongs to the block of the period that its own day lies in. With `arrived`, only if it came in before that period was
    closed, `grace_days` after its end; else it belongs to the late block of the period in which it came in. So a block that was
    closed grows no more, and no row is ever in two blocks.

    Attributes:
        column: The column with a row's own day.
        every: How long a period is.
        start: The day whose period is the first; rows of earlier periods are in no block.
        arrived: The column with the day on which a row came in, if there is one.
        grace_days: How many days after its end a period is closed.
        formats: How both columns are written as text; none: as ISO 8601 writes days.
    """

    column: str
    every: Every
    start: date
    arrived: str | None
    grace_days: int
    formats: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What the account has to be kept by: all that decides about the block of a row.

        Two specs that divide the same rows differently can't share an account, or a row would be in a block of each. Without
        `arrived`, the days of grace decide only when a block is read. Formats decide as well: 01/02/2026 may be in two months.

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
            return (days - 1) // _WEEK  # the first day of all is a Monday
        months = (days - _EPOCH).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
        return (months + _MONTHS_BEFORE_EPOCH) // _MONTHS[self.every]

    def first_days(self, periods: Days) -> Days:
        """Return the day on which each period begins."""
        if self.every is Every.DAY:
            return periods
        if self.every is Every.WEEK:
            return periods * _WEEK + 1
        months = periods * _MONTHS[self.every] - _MONTHS_BEFORE_EPOCH
        return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + _EPOCH

    def closes(self, periods: Days) -> Days:
        """Return the last day on which a row of each period comes in on time."""
        return self.first_days(periods + 1) - 1 + self.grace_days

    def name(self, period: int, *, late: bool) -> str:
        """Name a block, in the words that a date column has for its bins.

        >>> monthly = Calendar("visit", Every.MONTH, start=date(2026, 1, 1), arrived="sent", grace_days=0)
        >>> [block.name for block in monthly.complete(date(2026, 3, 1))]
        ['2026-01', '2026-02', '2026-02-late']
        """
        return _words(self.every, _one(self.first_days, period)) + (LATE if late else "")

    def block(self, name: str) -> TimeBlock:
        """Return the block of a name, or refuse one that this calendar has not."""
        plain = name.removesuffix(LATE)
        try:
            if self.every is Every.QUARTER:
                year, _, quarter = plain.partition("-Q")
                day = date(int(year), 3 * int(quarter) - 2, 1)
            else:
                day = date.fromisoformat(plain + {Every.MONTH: "-01", Every.YEAR: "-01-01"}.get(self.every, ""))
            found = TimeBlock(self._period_on(day), late=plain != name, name=name)
        except ValueError:
            found = None
        if found is None or self.name(found.period, late=found.late) != name:
            raise UsageError(f"'{name}' is no block by {self.words}; start a new run")
        return found

    def complete(self, as_of: date) -> tuple[TimeBlock, ...]:
        """Return all blocks that are closed on a day, in the order of time."""
        periods = np.arange(self.first, self._open_on(as_of), dtype=np.int64)
        begins, ends = self.first_days(periods), self.first_days(periods + 1) - 1
        nothing_late_until = _one(self.closes, self.first)
        closed = []
        for period, begin, end in zip(periods.tolist(), begins.tolist(), ends.tolist(), strict=True):
            name = _words(self.every, begin)
            closed.append(TimeBlock(period, late=False, name=name))
            if self.arrived is not None and end > nothing_late_until:
                closed.append(TimeBlock(period, late=True, name=name + LATE))
        return tuple(closed)

    def next_complete(self, as_of: date) -> tuple[str, date]:
        """Return the next block that is to be closed, and the first day on which it can be read."""
        period = self._open_on(as_of)
        return self.name(period, late=False), date.fromordinal(min(_one(self.closes, period) + 1, date.max.toordinal()))

    def _open_on(self, as_of: date) -> int:
        """Return the first period that is not closed on a day."""
        return max(self.first, _one(self.periods, max(as_of.toordinal() - self.grace_days, 1)))

    def _period_on(self, day: date) -> int:
        return _one(self.periods, day.toordinal())


def choose(calendar: Calendar, *, window: str, as_of: date, covered: Collection[str]) -> tuple[TimeBlock, ...]:
    """Return the blocks that a run reads.

    Args:
        calendar: How rows are divided.
        window: `all`, `new`, or `last` and a number of periods, as in a spec.
        as_of: The day as of which blocks are complete.
        covered: What earlier runs of the series have covered, for `new`.

    Raises:
        UsageError: If there is nothing to read; the message says when there will be.
    """
    complete = calendar.complete(as_of)
    upcoming, day = calendar.next_complete(as_of)
    if not complete:
        raise UsageError(f"no block is complete as of {as_of}; the first, {upcoming}, will be on {day}: run again then")
    if window == "new":
        complete = tuple(block for block in complete if block.name not in covered)
        if not complete:
            raise UsageError(
                f"there is no new block as of {as_of}: earlier releases of the series have covered all that are complete; "
                f"the next, {upcoming}, will be on {day}: run again then"
            )
    elif window.startswith("last "):
        earliest = complete[-1].period - int(window.removeprefix("last ")) + 1
        complete = tuple(block for block in complete if block.period >= earliest)
    return complete


def narrowed(attribute: Date | Datetime, calendar: Calendar, names: Collection[str]) -> Date | Datetime:
    """Return the column of the blocks' days with nothing but what can be in these blocks, which is public.

    Late rows may be of any earlier day, so that with them only the end is known.

    Raises:
        UsageError: If a block lies beyond what the column declares: its rows would be released with other days than theirs.
    """
    blocks = [calendar.block(name) for name in names]
    periods = np.array([block.period for block in blocks], dtype=np.int64)
    begins = calendar.first_days(periods)
    ends = calendar.first_days(periods + 1) - 1
    low, high = _day(attribute.minimum), _day(attribute.maximum)
    for block, begin, end in zip(blocks, begins.tolist(), ends.tolist(), strict=True):
        if not block.late and (begin > high.toordinal() or end < low.toordinal()):
            raise UsageError(
                f"block '{block.name}' lies beyond the `min` and `max` of {calendar.column} in the universe, {low} to {high}; "
                "extend them, or let blocks begin later with `start`"
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
    """Return the day as of which a run reads: today in UTC unless told otherwise, and never a day that is yet to come."""
    today = datetime.now(UTC).date()
    if as_of is not None and as_of > today:
        raise UsageError(
            f"{as_of} is yet to come: a run reads what is complete as of today, {today}, or an earlier day"
        )
    return as_of or today


def _quoted(column: str) -> str:
    """Write a column's name so that no other words can be taken for a part of it."""
    return column if re.fullmatch(r"[\w.-]+", column) else json.dumps(column, ensure_ascii=False)


def _words(every: Every, begin: int) -> str:
    """Name the period that begins on a day."""
    day = date.fromordinal(begin)
    if every is Every.WEEK:
        week = day.isocalendar()
        return f"{week.year:04}-W{week.week:02}"
    if every is Every.QUARTER:
        return f"{day.year:04}-Q{(day.month + 2) // 3}"
    return day.isoformat()[: {Every.DAY: 10, Every.MONTH: 7, Every.YEAR: 4}[every]]


def _one(function: Callable[[Days], Days], number: int) -> int:
    return int(function(np.array([number], dtype=np.int64))[0])
