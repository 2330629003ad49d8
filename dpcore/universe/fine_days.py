"""Dates and datetimes at full resolution: a distribution of days, and one of the times of the week."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SpecError
from dpcore.universe.attribute import DAY, Codes, Floats, Ordered
from dpcore.universe.leaves import Fine, Leaves, Positions, Scale
from dpcore.universe.numeric import Integers
from dpcore.universe.temporal import MONDAY, CalendarColumn, Date, Datetime, Every

WEEK = 7 * DAY
STEPS = {"day": DAY, "hour": 3600, "minute": 60, "second": 1}
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
        return replace(super().cut_at(starts, leaves=leaves), week=week)

    @property
    def line(self) -> Scale:
        """The steps, in seconds."""
        step, (low, high) = STEPS[self.step], self.bounds
        return Scale(low=low // step * step, step=step, per=1, size=high // step - low // step + 1)

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
    def day_density(self) -> Floats | None:
        """How many rows are expected of each day, relative to the others: as many as on other days of its weekday, which has a few."""
        shares = self.weekday_shares
        return None if shares is None else np.maximum(shares, 0.01)[self.weekdays]

    @property
    def weekdays(self) -> Positions:
        """The weekday of each day, 0 for Mondays."""
        return weekday_of(np.arange(self.first_day, self.first_day + self.places))

    @property
    def weekday_rows(self) -> Floats | None:
        """The rows on each weekday, in thousandths. None if no distribution over the week was found, or it is empty."""
        if self.week is None or not any(self.week.masses):
            return None
        begins = np.array(self.week.starts) * STEPS[self.step] // DAY
        return np.bincount(begins, weights=np.array(self.week.masses, dtype=np.float64), minlength=7).astype(np.float64)

    @cached_property
    def weekday_shares(self) -> Floats | None:
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

    @property
    def step_range(self) -> tuple[int, int]:
        """The first and the last whole step between the bounds, counted from 1970."""
        step = STEPS[self.step]
        return -(-self._first // step), self._last // step

    def __post_init__(self) -> None:
        """Reject bounds between which there is no whole step."""
        super().__post_init__()
        if np.greater(*self.step_range):
            raise SpecError("there is no whole step between `min` and `max`; move them apart, or write a finer `step`")

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        days, step = self._draw_days(cells, rng), STEPS[self.step]
        low = weekday_of(days) * (DAY // step)
        high = low + DAY // step
        times = rng.integers(low, high) if self.week is None else self.week.draw(low, high, rng)
        steps = np.clip(days * (DAY // step) + times - low, *self.step_range)
        moments: npt.NDArray[Any] = (steps * step).astype("datetime64[s]").astype(self.numpy_type)
        return moments


@dataclass(frozen=True, kw_only=True)
class WeekTimes(Ordered):
    """The times of the week of a date or datetime column, from Monday on, in intervals of steps. It is counted, never released."""

    column: FineDays
    starts: tuple[int, ...]

    @property
    def bin_bounds(self) -> Floats:
        """The first step of each interval, and the number of steps."""
        return np.array([0, *self.starts, self.column.week_places], dtype=np.float64)

    @property
    def arrow_type(self) -> pa.DataType:
        """Type of the column."""
        return self.column.arrow_type

    def _cell_labels(self) -> tuple[str, ...]:
        return tuple(f"from {start}" for start in (0, *self.starts))


def week_seconds(seconds: Positions) -> Positions:
    """Return the seconds since Monday, of seconds since 1970."""
    since: Positions = (seconds - MONDAY) % WEEK
    return since


def weekday_of(days: Positions) -> Positions:
    """Return 0 for Mondays to 6 for Sundays, of days counted from 1970-01-01, a Thursday."""
    weekdays: Positions = (days + 3) % 7
    return weekdays
