"""Dates and datetimes at full resolution: a distribution of days, and one of the times of the week."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SpecError, UsageError
from dpcore.universe import reading
from dpcore.universe.attribute import Attribute, Codes, Outside
from dpcore.universe.formats import read_moments
from dpcore.universe.leaves import Fine, Leaves, Positions
from dpcore.universe.places import ABOVE, ALIEN, BELOW, Places, all_of
from dpcore.universe.reading import DAY, Integers
from dpcore.universe.temporal import CalendarColumn, Date, Datetime, Every

WEEK = 7 * DAY
MONDAY = 4 * DAY  # 1970-01-05
STEPS = {"day": DAY, "hour": 3600, "minute": 60, "second": 1}
LEAST_DENSITY = 0.01  # of a weekday that had no rows, relative to the most frequent one
MOST_TRIES = 64  # a day is drawn again at most so often; what is left then is not shaped by weekdays


@dataclass(frozen=True, kw_only=True)
class FineDays(Fine, CalendarColumn):
    """The base of dates and datetimes at full resolution. Each day is a place.

    Attributes:
        week: The distribution over the times of the week, from Monday on, in steps; None before it was found.
        step: The step of the released values: a key of STEPS.
    """

    every: Every = field(default=Every.DAY, init=False)
    week: Leaves | None = None
    step: str = "day"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step not in STEPS:
            raise SpecError(f"the step of a date or datetime must be one of {', '.join(STEPS)}")

    @property
    def places(self) -> int:
        """The number of days."""
        return self._last * self.tick // DAY - self.first_day + 1

    @property
    def first_day(self) -> int:
        """The first day, counted from 1970-01-01."""
        return self._first * self.tick // DAY

    @property
    def bounds(self) -> tuple[int, int]:
        """The first and the last second, counted from 1970."""
        return self._first * self.tick, (self._last + 1) * self.tick - 1

    @property
    def week_places(self) -> int:
        """The number of steps in a week."""
        return WEEK // STEPS[self.step]

    def cut_at(self, starts: Sequence[int] | None, *, leaves: Leaves | None = None, week: Leaves | None = None) -> Self:
        """Return the column with other cells."""
        return replace(self, starts=None if starts is None else tuple(starts), leaves=leaves, week=week)

    def _cuts(self) -> Integers:
        inner: Integers = (self.cell_bounds[1:-1] + self.first_day) * DAY // self.tick
        return inner

    def _cell_labels(self) -> tuple[str, ...]:
        days = self.cell_bounds + self.first_day
        first = np.datetime_as_string(days[:-1].astype("datetime64[D]")).tolist()
        last = np.datetime_as_string((days[1:] - 1).astype("datetime64[D]")).tolist()
        return tuple(low if low == high else f"{low} to {high}" for low, high in zip(first, last, strict=True))

    def _draw_days(self, cells: Codes, rng: np.random.Generator) -> Positions:
        """Draw a day from each cell, counted from 1970-01-01. Within a leaf, days follow the week."""
        days = self._draw_places(cells, rng) + self.first_day
        shares = self.weekday_shares
        if shares is None:
            return days
        leaf = np.searchsorted(self._leaf_days, days, side="right") - 1
        low, high = self._leaf_days[leaf], self._leaf_days[leaf + 1]
        waiting = np.arange(len(days))
        for _ in range(MOST_TRIES):
            waiting = waiting[rng.random(len(waiting)) >= shares[weekday_of(days[waiting])]]
            if not len(waiting):
                break
            days[waiting] = rng.integers(low[waiting], high[waiting])
        return days

    @cached_property
    def _leaf_days(self) -> Positions:
        starts = self.cell_bounds[:-1] if self.leaves is None else self.leaves.starts
        return np.array([*starts, self.places], dtype=np.int64) + self.first_day

    @property
    def day_density(self) -> npt.NDArray[np.float64] | None:
        """How many rows are expected of each day, relative to the others: as many as on other days of its weekday."""
        shares = self.weekday_shares
        return None if shares is None else np.maximum(shares, LEAST_DENSITY)[self.weekdays]

    @property
    def weekdays(self) -> Positions:
        """The weekday of each day, 0 for Mondays."""
        return weekday_of(np.arange(self.first_day, self.first_day + self.places))

    @property
    def weekday_rows(self) -> npt.NDArray[np.float64] | None:
        """The rows on each weekday, in thousandths. None if no distribution over the week was found, or it is empty."""
        if self.week is None or not any(self.week.masses):
            return None
        begins = np.array(self.week.starts) * STEPS[self.step] // DAY
        return np.bincount(begins, weights=np.array(self.week.masses, dtype=np.float64), minlength=7).astype(np.float64)

    @cached_property
    def weekday_shares(self) -> npt.NDArray[np.float64] | None:
        """How frequent each weekday is, relative to the most frequent one. None if no distribution over the week was found, or it is empty."""
        held = self.weekday_rows
        if held is None:
            return None
        days = np.bincount(self.weekdays, minlength=7)
        mean = np.divide(held, days, out=np.zeros(7), where=days > 0)
        return mean / mean.max() if mean.max() > 0 else None


@dataclass(frozen=True, kw_only=True)
class FineDate(FineDays, Date):
    """Days from minimum to maximum, both inclusive, each of them a place."""

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        return self._draw_days(cells, rng).astype("datetime64[D]")


@dataclass(frozen=True, kw_only=True)
class FineDatetime(FineDays, Datetime):
    """Datetimes from minimum to maximum in whole steps: a day, then a time drawn from the week's times on that weekday.

    At least one whole step lies between the bounds.
    """

    def __post_init__(self) -> None:
        """Reject bounds between which there is no whole step."""
        super().__post_init__()
        if -(-self._first // STEPS[self.step]) > self._last // STEPS[self.step]:
            raise SpecError("there is no whole step between `min` and `max`; move them apart, or write a finer `step`")

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        days = self._draw_days(cells, rng)
        per_day = DAY // STEPS[self.step]
        low = weekday_of(days) * per_day
        times = rng.integers(low, low + per_day) if self.week is None else self.week.draw(low, low + per_day, rng)
        seconds = days * DAY + (times - low) * STEPS[self.step]
        step = STEPS[self.step]
        return (
            np.clip(seconds, -(-self._first // step) * step, self._last // step * step)
            .astype("datetime64[s]")
            .astype("datetime64[us]")
        )


@dataclass(frozen=True, kw_only=True)
class WeekTimes(Attribute):
    """The times of the week of a date or datetime column, from Monday on, in intervals of steps. It is counted, never released."""

    column: FineDays
    starts: tuple[int, ...]

    @property
    def cells(self) -> int:
        """Number of intervals."""
        return len(self.starts) + 1

    @property
    def ordered(self) -> bool:
        """True: from Monday to Sunday."""
        return True

    @property
    def arrow_type(self) -> pa.DataType:
        """Type of the column."""
        return self.column.arrow_type

    def _cell_labels(self) -> tuple[str, ...]:
        return tuple(f"from {start}" for start in (0, *self.starts))

    def _reads(self, kind: pa.DataType) -> bool:
        return self.column.reads(kind)

    def _place(self, array: pa.Array) -> Places:
        if reading.is_moment(array.type):
            seconds, states = reading.seconds(array), all_of(len(array), 0)
        elif reading.is_text(array.type):
            formats = self.column.formats
            seconds, states = read_moments(array, formats) if formats else reading.parsed_seconds(array)
        else:
            return all_of(len(array), ALIEN)
        low, high = self.column.bounds
        kept = np.clip(seconds, low, high)
        time = (kept - MONDAY) % WEEK // STEPS[self.column.step]
        places = np.searchsorted(np.array(self.starts, dtype=np.int64), time, side="right")
        if self.outside is not Outside.CLIP:
            places = np.where(seconds < low, BELOW, np.where(seconds > high, ABOVE, places))
        return np.where(states < 0, states, places).astype(np.int64)

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        del cells, rng
        raise UsageError("the times of a week are counted, not released; draw from the column itself")


def weekday_of(days: Positions) -> Positions:
    """Return 0 for Mondays to 6 for Sundays, of days counted from 1970-01-01, a Thursday."""
    weekdays: Positions = (days + 3) % 7
    return weekdays
