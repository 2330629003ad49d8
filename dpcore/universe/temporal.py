"""Date and datetime attributes, in bins that follow the calendar."""

from abc import abstractmethod
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SpecError
from dpcore.universe.attribute import DAY, EPOCH, EPOCH_DAY, Codes, Floats, Ordered, refuse_too_many_cells
from dpcore.universe.formats import checked_formats, month_format
from dpcore.universe.numeric import Integers


class Every(StrEnum):
    """The length of a calendar bin. Minutes and hours are for datetimes only."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


_SECONDS = {Every.MINUTE: 60, Every.HOUR: 3600, Every.DAY: DAY, Every.WEEK: 7 * DAY}
MONTHS = {Every.MONTH: 1, Every.QUARTER: 3, Every.YEAR: 12}
MONDAY = 4 * DAY  # 1970-01-05; minutes, hours and days start with the epoch itself
_NUMPY_UNIT = {Every.MINUTE: "m", Every.HOUR: "h", Every.DAY: "D", Every.MONTH: "M", Every.YEAR: "Y"}


@dataclass(frozen=True, kw_only=True)
class CalendarColumn(Ordered):
    """The base of dates and datetimes: whole ticks since 1970, divided at calendar boundaries.

    The first bin starts at the minimum and the last one ends with the maximum; the others are whole calendar units. Text is read by the
    first of the `formats` that it matches, a month as its first day; without formats, as ISO 8601. Columns of a date type do not need formats.
    """

    every: Every
    formats: tuple[str, ...] = ()

    tick: ClassVar[int]  # seconds
    numpy_type: ClassVar[str]

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

    @cached_property
    def whole_bounds(self) -> Integers:
        """First tick of each bin, and the tick after the last bin: days, or seconds, since 1970."""
        return np.concatenate([[self._first], self._cuts(), [self._last + 1]])

    @property
    def bin_bounds(self) -> Floats:
        """First second of each bin, and the second after the last bin."""
        return (self.whole_bounds * self.tick).astype(np.float64)

    def _cuts(self) -> Integers:
        """Return the ticks after the first, up to the last, at which a new calendar unit starts."""
        if self.every in _SECONDS:
            length = _SECONDS[self.every] // self.tick
            phase = MONDAY // self.tick if self.every is Every.WEEK else 0
            start = self._first + 1 + (phase - self._first - 1) % length
            return np.arange(start, self._last + 1, length, dtype=np.int64)
        step = MONTHS[self.every]
        ends = np.array([self._first, self._last]) * self.tick
        first, last = ends.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64).tolist()
        months = np.arange((first // step + 1) * step, last + 1, step).astype("datetime64[M]")
        return months.astype("datetime64[s]").astype(np.int64) // self.tick

    def _cell_labels(self) -> tuple[str, ...]:
        return names_of_bins(self.every, (self.whole_bounds[:-1] * self.tick).astype("datetime64[s]"))

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return the first moment of each bin: a release says no more than the spec distinguishes, so a month is not a made-up second."""
        del rng
        return (self.whole_bounds[cells] * self.tick).astype("datetime64[s]").astype(self.numpy_type)


def names_of_bins(every: Every, starts: npt.NDArray[np.datetime64]) -> tuple[str, ...]:
    """Return the names of calendar bins that start, or lie around the start of a range, at these moments."""
    if every in _NUMPY_UNIT:
        return tuple(np.datetime_as_string(starts.astype(f"datetime64[{_NUMPY_UNIT[every]}]")).tolist())
    days = starts.astype("datetime64[D]").tolist()
    if every is Every.QUARTER:
        return tuple(f"{day.year:04}-Q{(day.month + 2) // 3}" for day in days)
    return tuple("{:04}-W{:02}".format(*day.isocalendar()[:2]) for day in days)


@dataclass(frozen=True, kw_only=True)
class Date(CalendarColumn):
    """Days from minimum to maximum, both inclusive, in calendar bins.

    A timestamp counts as its calendar day, in UTC if it has a time zone.

    >>> Date(minimum=date(2025, 1, 15), maximum=date(2025, 3, 1), every=Every.MONTH).labels
    ('2025-01', '2025-02', '2025-03')
    """

    minimum: date
    maximum: date

    tick, numpy_type = DAY, "datetime64[D]"
    arrow_type = pa.date32()

    def __post_init__(self) -> None:
        """Reject bounds that are not days, and bins shorter than a day."""
        if type(self.minimum) is not date or type(self.maximum) is not date:
            raise SpecError("the bounds of a date attribute must be days, such as 2025-01-31")
        super().__post_init__()
        if self.every in (Every.MINUTE, Every.HOUR):
            raise SpecError("a date attribute has no minutes or hours: declare every as day or longer, or a datetime")

    @property
    def _has_whole_months(self) -> bool:
        return self.every in MONTHS and self.minimum.day == 1

    @property
    def _first(self) -> int:
        return self.minimum.toordinal() - EPOCH_DAY

    @property
    def _last(self) -> int:
        return self.maximum.toordinal() - EPOCH_DAY


@dataclass(frozen=True, kw_only=True)
class Datetime(CalendarColumn):
    """Datetimes from minimum to maximum, both inclusive, in whole seconds and calendar bins.

    The bounds have no time zone. Values with a time zone are compared in UTC; a date counts as its midnight.
    """

    minimum: datetime
    maximum: datetime

    tick, numpy_type = 1, "datetime64[us]"
    arrow_type = pa.timestamp("us")  # Parquet has no seconds

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
    def _first(self) -> int:
        return (self.minimum.replace(tzinfo=UTC) - EPOCH) // timedelta(seconds=1)

    @property
    def _last(self) -> int:
        return (self.maximum.replace(tzinfo=UTC) - EPOCH) // timedelta(seconds=1)
