"""Date and datetime attributes, in bins that follow the calendar."""

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SpecError
from dpcore.universe import reading
from dpcore.universe.attribute import Attribute, Codes, Outside, refuse_too_many_cells
from dpcore.universe.formats import checked_formats, month_format, read_moments
from dpcore.universe.places import ABOVE, ALIEN, BELOW, Places, all_of, cut, signed_type
from dpcore.universe.reading import Integers

_DAY = reading.DAY
MOST_SLOTS = 1 << 18


class Every(StrEnum):
    """The length of a calendar bin. Minutes and hours are for datetimes only."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


_SECONDS = {Every.MINUTE: 60, Every.HOUR: 3600, Every.DAY: _DAY, Every.WEEK: 7 * _DAY}
_MONTHS = {Every.MONTH: 1, Every.QUARTER: 3, Every.YEAR: 12}
_MONDAY = 4 * _DAY  # 1970-01-05; minutes, hours and days start with the epoch itself
_NUMPY_UNIT = {Every.MINUTE: "m", Every.HOUR: "h", Every.DAY: "D", Every.MONTH: "M", Every.YEAR: "Y"}


@dataclass(frozen=True, kw_only=True)
class CalendarColumn(Attribute):
    """The base of dates and datetimes: whole ticks since 1970, divided at calendar boundaries.

    The first bin starts at the minimum and the last one ends with the maximum; the others are whole calendar units. Text is read by the
    first of the `formats` that it matches, a month as its first day; without formats, as ISO 8601. Columns of a date type do not need formats.
    """

    every: Every
    outside: Outside = field(default=Outside.CLIP)
    formats: tuple[str, ...] = ()

    tick: ClassVar[int]  # seconds

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "formats", checked_formats(self.formats))
        if not isinstance(self.every, Every):
            raise SpecError(f"every must be one of {', '.join(Every)}")
        if self._first > self._last:
            raise SpecError("the minimum of a date or datetime attribute is after its maximum: swap them")
        month = month_format(self.formats)
        if month is not None and not self._has_whole_months:
            raise SpecError(
                f"the format {month!r} names a month without a day: write `type: date`, `every: month` or longer, and the first day of a month "
                "as `min`"
            )
        if self.every in _SECONDS:
            refuse_too_many_cells((self._last - self._first) * self.tick // _SECONDS[self.every] + 1)

    @property
    @abstractmethod
    def _first(self) -> int:
        """The minimum in ticks since 1970."""

    @property
    @abstractmethod
    def _last(self) -> int:
        """The maximum in ticks since 1970."""

    @property
    def _has_whole_months(self) -> bool:
        """Whether each bin has all days of its months, so that the first day of a month stands for any of its days."""
        return False

    @property
    def cells(self) -> int:
        """Number of bins."""
        return len(self._bounds) - 1

    @property
    def ordered(self) -> bool:
        """True: time ascends."""
        return True

    @cached_property
    def _bounds(self) -> Integers:
        """First tick of each bin, and the tick after the last bin."""
        return np.concatenate([[self._first], self._cuts(), [self._last + 1]])

    @property
    def bin_bounds(self) -> Integers:
        """First tick of each bin, and the tick after the last bin: days, or seconds, since 1970."""
        return self._bounds

    def _cuts(self) -> Integers:
        """Return the ticks after the first, up to the last, at which a new calendar unit starts."""
        if self.every in _SECONDS:
            length = _SECONDS[self.every] // self.tick
            phase = _MONDAY // self.tick if self.every is Every.WEEK else 0
            start = self._first + 1 + (phase - self._first - 1) % length
            return np.arange(start, self._last + 1, length, dtype=np.int64)
        step = _MONTHS[self.every]
        ends = np.array([self._first, self._last]) * self.tick
        first, last = ends.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64).tolist()
        months = np.arange((first // step + 1) * step, last + 1, step).astype("datetime64[M]")
        return months.astype("datetime64[s]").astype(np.int64) // self.tick

    def _cell_labels(self) -> tuple[str, ...]:
        starts = (self._bounds[:-1] * self.tick).astype("datetime64[s]")
        if self.every is Every.WEEK:
            weeks = [day.isocalendar() for day in starts.astype("datetime64[D]").tolist()]
            return tuple(f"{week.year:04}-W{week.week:02}" for week in weeks)
        if self.every is Every.QUARTER:
            days = starts.astype("datetime64[D]").tolist()
            return tuple(f"{day.year:04}-Q{(day.month + 2) // 3}" for day in days)
        unit = _NUMPY_UNIT[self.every]
        return tuple(np.datetime_as_string(starts.astype(f"datetime64[{unit}]")).tolist())

    def _reads(self, kind: pa.DataType) -> bool:
        return reading.is_text(kind) or reading.is_moment(kind)

    def _place(self, array: pa.Array) -> Places:
        if reading.is_moment(array.type):
            return self._place_moments(array)
        if reading.is_text(array.type):
            seconds, states = read_moments(array, self.formats) if self.formats else reading.parsed_seconds(array)
            return np.where(states < 0, states, cut(seconds // self.tick, self._bounds))
        return all_of(len(array), ALIEN)

    def _place_moments(self, array: pa.Array) -> Places:
        """Look up each value's bin by its minute, hour or day. Every bin except the first starts at the start of one of these."""
        values, per_second = reading.native_ticks(array)
        length = self._slot_seconds * per_second
        if self._bin_of_slot is None or length.denominator != 1:
            return cut(reading.seconds(array) // self.tick, self._bounds)
        slots = values // values.dtype.type(int(length))
        slots -= self._first * self.tick // self._slot_seconds
        places: Places = self._bin_of_slot.take(slots, mode="clip")
        begin, end = (math.ceil(moment * self.tick * per_second) for moment in (self._first, self._last + 1))
        if values.size and values.min() < begin:
            np.putmask(places, values < begin, BELOW)
        if values.size and values.max() >= end:
            np.putmask(places, values >= end, ABOVE)
        return places

    @property
    def _slot_seconds(self) -> int:
        return _SECONDS[self.every] if self.every in (Every.MINUTE, Every.HOUR) else _DAY

    @cached_property
    def _bin_of_slot(self) -> Places | None:
        """The bin of each minute, hour or day from the minimum to the maximum; None if there are too many for a table."""
        first, last = (moment * self.tick // self._slot_seconds for moment in (self._first, self._last))
        if last - first >= MOST_SLOTS:
            return None
        starts = np.arange(first, last + 1) * self._slot_seconds
        return np.searchsorted(self._bounds[1:-1] * self.tick, starts, side="right").astype(signed_type(self.cells))

    def _first_ticks(self, cells: Codes) -> Integers:
        """Return the first tick of each bin: a release says no more than the spec distinguishes, so a month is not a made-up second."""
        ticks: Integers = self._bounds[cells]
        return ticks


@dataclass(frozen=True, kw_only=True)
class Date(CalendarColumn):
    """Days from minimum to maximum, both inclusive, in calendar bins.

    A timestamp counts as its calendar day, in UTC if it has a time zone.

    >>> Date(minimum=date(2025, 1, 15), maximum=date(2025, 3, 1), every=Every.MONTH).labels
    ('2025-01', '2025-02', '2025-03')
    """

    minimum: date
    maximum: date

    tick = _DAY

    def __post_init__(self) -> None:
        """Reject bounds that are not days, and bins shorter than a day."""
        if type(self.minimum) is not date or type(self.maximum) is not date:
            raise SpecError("the bounds of a date attribute must be days, such as 2025-01-31")
        super().__post_init__()
        if self.every in (Every.MINUTE, Every.HOUR):
            raise SpecError("a date attribute has no minutes or hours: declare every as day or longer, or a datetime")

    @property
    def _has_whole_months(self) -> bool:
        return self.every in _MONTHS and self.minimum.day == 1

    @property
    def arrow_type(self) -> pa.DataType:
        """Type of the column in a release."""
        return pa.date32()

    @property
    def _first(self) -> int:
        return self.minimum.toordinal() - _EPOCH_DAY

    @property
    def _last(self) -> int:
        return self.maximum.toordinal() - _EPOCH_DAY

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        del rng
        return self._first_ticks(cells).astype("datetime64[D]")


@dataclass(frozen=True, kw_only=True)
class Datetime(CalendarColumn):
    """Datetimes from minimum to maximum, both inclusive, in whole seconds and calendar bins.

    The bounds have no time zone. Values with a time zone are compared in UTC; a date counts as its midnight.
    """

    minimum: datetime
    maximum: datetime

    tick = 1

    def __post_init__(self) -> None:
        """Reject bounds that are not datetimes, have a time zone, or have fractions of a second."""
        for bound in (self.minimum, self.maximum):
            if not isinstance(bound, datetime):
                raise SpecError(
                    "the bounds of a datetime attribute must be dates and times, such as 2025-01-31T00:00:00"
                )
            if bound.tzinfo is not None:
                raise SpecError("the bounds of a datetime attribute are in UTC: write them without a time zone")
            if bound.microsecond:
                raise SpecError("the bounds of a datetime attribute must be whole seconds")
        super().__post_init__()

    @property
    def arrow_type(self) -> pa.DataType:
        """Type of the column in a release: microseconds, because Parquet has no seconds."""
        return pa.timestamp("us")

    @property
    def _first(self) -> int:
        return (self.minimum.replace(tzinfo=UTC) - reading.EPOCH) // timedelta(seconds=1)

    @property
    def _last(self) -> int:
        return (self.maximum.replace(tzinfo=UTC) - reading.EPOCH) // timedelta(seconds=1)

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        del rng
        return self._first_ticks(cells).astype("datetime64[s]").astype("datetime64[us]")


_EPOCH_DAY = reading.EPOCH.toordinal()
