"""The spread of each kind of ordered column, as its `decode` draws."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.universe.attribute import DAY, EPOCH, Attribute, Floats
from dpcore.universe.fine_days import MOST_TRIES, STEPS, FineDatetime, FineDays, weekday_of
from dpcore.universe.fine_numbers import FineInteger, FineNumber
from dpcore.universe.leaves import Fine, Leaves
from dpcore.universe.numeric import Integer, Number
from dpcore.universe.spread import Indices, Segments, Spread
from dpcore.universe.temporal import CalendarColumn, Datetime

MOST_SEGMENTS = 1 << 20
"""With more segments, days are taken to be alike, and the times of a day too."""


@lru_cache(maxsize=256)
def spread_of(attribute: Attribute) -> Spread:
    """Return how values are distributed within the cells of an ordered column."""
    match attribute:
        case FineNumber():
            return _fine_numbers(attribute)
        case Number():
            return _numbers(attribute)
        case Integer():
            return _integers(attribute)
        case FineDatetime():
            return _fine_moments(attribute)
        case FineDays():
            return _days(attribute, _fine_days(attribute), attribute.cell_bounds + attribute.first_day)
        case CalendarColumn():
            return _calendar(attribute)
    raise UsageError("this column has no order; ask for its values with = or in")


def is_first_day(attribute: Attribute) -> bool:
    """Return whether a column is in bins of the calendar, of which only the first day or moment is released."""
    return isinstance(attribute, CalendarColumn) and not isinstance(attribute, Fine)


def evened(spread: Spread) -> Spread:
    """Return the same cells with values that are distributed evenly within each, so that every part of a cell has some."""
    return replace(spread, segments=_evenly(spread.bounds))


def _evenly(bounds: npt.NDArray[Any]) -> Segments:
    cells = np.arange(len(bounds) - 1)
    return Segments(bounds[:-1], bounds[1:], cells, np.ones(len(cells)))


def _integers(attribute: Integer) -> Spread:
    bounds = attribute.whole_bounds
    segments = (
        _in_leaves(attribute, offset=attribute.minimum) if isinstance(attribute, FineInteger) else _evenly(bounds)
    )
    edges = tuple(bounds.tolist())
    return Spread(segments, bounds, whole=True, place=Fraction, value=_floats, edges=edges)


def _floats(places: npt.NDArray[Any]) -> Floats:
    return np.asarray(places, dtype=np.float64)


def _numbers(attribute: Number) -> Spread:
    bounds = np.array(attribute.edges)
    return Spread(_evenly(bounds), bounds, whole=False, place=Fraction, value=_floats, edges=attribute.edges)


def _fine_numbers(attribute: FineNumber) -> Spread:
    scale, bounds = attribute.scale, attribute.cell_bounds

    def place(value: Any) -> Fraction:
        return (Fraction(value) * scale.per - scale.low) / scale.step

    edges = tuple(scale.values(bounds).tolist())
    return Spread(_in_leaves(attribute), bounds, whole=True, place=place, value=scale.values, edges=edges)


def _in_leaves(attribute: Fine, *, offset: int = 0) -> Segments:
    """Return the leaves as segments, by their mass, or by what is expected of them in a cell whose leaves have none."""
    bounds, leaves = attribute.cell_bounds, attribute.leaves
    if leaves is None:
        return _evenly(bounds + offset)
    low = np.array(leaves.starts, dtype=np.int64)
    high = np.append(low[1:], leaves.size)
    cell = np.searchsorted(bounds, low, side="right") - 1
    mass = np.array(leaves.masses, dtype=np.float64)
    empty = np.bincount(cell, weights=mass, minlength=len(bounds) - 1) <= 0
    mass = np.where(empty[cell], leaves.expected, mass)
    return Segments.of(low + offset, high + offset, cell, mass)


def _calendar(attribute: CalendarColumn) -> Spread:
    """Return the bins of a calendar, of which only the first day or moment is released."""
    bounds = attribute.whole_bounds
    cells = np.arange(len(bounds) - 1)
    return _days(attribute, Segments(bounds[:-1], bounds[:-1] + 1, cells, np.ones(len(cells))), bounds)


def _days(attribute: CalendarColumn, segments: Segments, bounds: Indices, *, step: int | None = None) -> Spread:
    """Return a spread whose places are steps of so many seconds since 1970; days or seconds, if None."""
    seconds = attribute.tick if step is None else step
    unit = "s" if isinstance(attribute, Datetime) else "D"
    moments = [_moment(bound * seconds) for bound in bounds.tolist()]
    return Spread(
        segments,
        bounds,
        whole=True,
        place=lambda value: Fraction(_microseconds(value), 10**6 * seconds),
        value=lambda places: (np.asarray(places) * seconds).astype("datetime64[s]").astype(f"datetime64[{unit}]"),
        edges=tuple(moments if isinstance(attribute, Datetime) else (moment.date() for moment in moments)),
    )


def _microseconds(value: date) -> int:
    moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day, tzinfo=UTC)
    return (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


def _moment(seconds: int) -> datetime:
    latest = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(seconds=1)
    return (EPOCH + timedelta(seconds=min(seconds, latest))).replace(tzinfo=None)


def _fine_days(attribute: FineDays) -> Segments:
    """Return the days of each leaf, as frequent as their weekdays."""
    leaves = _in_leaves(attribute, offset=attribute.first_day)
    shares = attribute.weekday_shares
    widths = leaves.high - leaves.low
    if shares is None or widths.sum() > MOST_SEGMENTS:
        return leaves
    leaf = np.repeat(np.arange(len(widths)), widths)
    first = np.concatenate([[0], np.cumsum(widths)[:-1]])
    day = leaves.low[leaf] + np.arange(len(leaf)) - first[leaf]
    share = shares[weekday_of(day)]
    # A day is drawn again until it is accepted with its share, at most MOST_TRIES times.
    again = 1 - (np.bincount(leaf, weights=share) / widths)[leaf]
    accepted = np.divide(1 - again**MOST_TRIES, 1 - again, out=np.full(len(leaf), float(MOST_TRIES)), where=again < 1)
    mass = leaves.mass[leaf] * (share * accepted + again**MOST_TRIES) / widths[leaf]
    return Segments.of(day, day + 1, leaves.cell[leaf], mass)


def _fine_moments(attribute: FineDatetime) -> Spread:
    """Return the times of each day, as the times of the week."""
    step = STEPS[attribute.step]
    per_day = DAY // step
    days = _fine_days(attribute)
    times = [_times(attribute.week, weekday, per_day) for weekday in range(7)]
    most = max(len(day.low) for day in times)
    single = bool((days.high - days.low == 1).all())
    if not single or len(days.low) * most > MOST_SEGMENTS:
        low, high, cell, mass = days.low * per_day, days.high * per_day, days.cell, days.mass
    else:
        weekday = weekday_of(days.low)
        counts = np.array([len(day.low) for day in times])[weekday]
        number = np.repeat(np.arange(len(counts)), counts)
        of_day = [times[day] for day in weekday.tolist()]
        start = days.low[number] * per_day
        low = start + np.concatenate([day.low for day in of_day])
        high = start + np.concatenate([day.high for day in of_day])
        cell, mass = days.cell[number], days.mass[number] * np.concatenate([day.mass for day in of_day])
    segments = _clipped(Segments.of(low, high, cell, mass), *attribute.step_range)
    bounds = (attribute.cell_bounds + attribute.first_day) * per_day
    return _days(attribute, segments, bounds, step=step)


def _times(week: Leaves | None, weekday: int, per_day: int) -> Segments:
    """Return the times of a weekday, counted from midnight."""
    day = np.array([0, per_day], dtype=np.int64)
    if week is None:
        return _evenly(day)
    low = np.array(week.starts, dtype=np.int64)
    high = np.append(low[1:], week.size)
    inside = low // per_day == weekday
    mass = np.array(week.masses, dtype=np.float64)[inside]
    if mass.sum() <= 0:
        return _evenly(day)
    begin = weekday * per_day
    return Segments.of(low[inside] - begin, high[inside] - begin, np.zeros(len(mass), dtype=np.int64), mass)


def _clipped(segments: Segments, first: int, last: int) -> Segments:
    """Move what lies before the first place, or after the last one, to these places."""
    if segments.low[0] >= first and segments.high[-1] <= last + 1:
        return segments
    low, high, cell, mass = segments.low, segments.high, segments.cell, segments.mass
    for place in (first, last):
        # Cut at the place and after it, so that the place is a segment of its own.
        for edge in (place, place + 1):
            cut = (low < edge) & (edge < high)
            share = np.where(cut, (edge - low) / (high - low), 1.0)
            rest = (np.full(cut.sum(), edge), high[cut], cell[cut], (mass * (1 - share))[cut])
            low, high, cell, mass = (
                np.concatenate(pair)
                for pair in zip((low, np.where(cut, edge, high), cell, mass * share), rest, strict=True)
            )
    low = np.clip(low, first, last)
    order = np.argsort(low, kind="stable")
    low, cell, mass = low[order], cell[order], mass[order]
    high = np.clip(high[order], first + 1, last + 1)
    same = np.concatenate([[True], low[1:] != low[:-1]])
    group = np.cumsum(same) - 1
    return Segments.of(low[same], high[same], cell[same], np.bincount(group, weights=mass).astype(np.float64))
