"""Bars of equal width for a column at full resolution: its cells are narrow where rows are many, so one bar a cell would hide where they are."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.answers.query import All, Compare, Condition, Term
from dpcore.reporting.count import Count
from dpcore.universe.fine_days import FineDays
from dpcore.universe.fine_numbers import FineNumber
from dpcore.universe.leaves import Fine
from dpcore.universe.spreading import spread_of

MOST_BARS = 20

TAIL, FAR = 0.005, 0.25
"""An end of the range with at most this share of the rows is one bar, if it is more than this share of the whole range."""

LESS, MORE = "less", "more"
"""The outer ends of such bars on the axis."""

_DAY = timedelta(days=1)
_LARGE = re.compile(r"-?\d{5,}(\.\d+)?")


@dataclass(frozen=True)
class Bar:
    """A bar: its label, which rows it counts, and its first and last value; the same if it has one value or no order."""

    label: str
    condition: Condition
    first: str
    last: str


def equal_bars(axis: int, attribute: Fine, rows: npt.NDArray[np.float64]) -> list[Bar]:
    """Return bars of equal width. If almost all rows lie in a part of the range, the first or the last bar has all other values.

    Args:
        axis: The position of the column.
        attribute: The column.
        rows: The number of rows in each of its cells.
    """
    low, high = (_at(attribute, place) for place in (0, attribute.places))
    starts, opened = _starts(attribute, low, high, _middle(attribute, rows))
    bars = []
    for at, (start, end) in enumerate(pairwise([*starts, high])):
        ends = _text(start), _text(_last(attribute, end))
        inside = [Compare(Term(axis), ">=", start)]
        inside += [Compare(Term(axis), "<", end)] if at < len(starts) - 1 else []
        first = LESS if opened[0] and not at else ends[0]
        last = MORE if opened[1] and at == len(starts) - 1 else ends[1]
        bars.append(Bar(span(*ends), All(tuple(inside)), first, last))
    return bars


def width_words(bars: Sequence[Count]) -> str:
    """Say which bars of equal width have all other values, in a few words for a picture.

    >>> width_words([Count("0 to 9", 5.0, 4.0, 6.0, first="0", last="9"), Count("10 to 99", 1.0, 0.0, 2.0, first="10", last=MORE)])
    'last bar: all larger values'
    """
    first, last = any(bar.first == LESS for bar in bars), any(bar.last == MORE for bar in bars)
    if first and last:
        return "end bars: all other values"
    smaller = "first bar: all smaller values" if first else "bars of equal width"
    return "last bar: all larger values" if last else smaller


def _at(attribute: Fine, place: int) -> Any:
    """Return the value at a place of a column's grid, exactly, or the end of the range."""
    if isinstance(attribute, FineNumber):
        scale = attribute.scale
        return Fraction(scale.low + scale.step * place, scale.per)
    first, *_, end = spread_of(attribute).edges
    if isinstance(first, date):
        return first + timedelta(days=place) if place < attribute.places else end
    return Fraction(first + place)


def _middle(attribute: Fine, rows: npt.NDArray[np.float64]) -> tuple[Any, Any]:
    """Return the values between which almost all rows lie; None for an end of the range that they almost reach."""
    spread = spread_of(attribute)
    low, high = (_at(attribute, place) for place in (0, attribute.places))
    before = np.concatenate([[0.0], np.cumsum(np.maximum(rows, 0.0))])
    if before[-1] <= 0:
        return None, None
    masses = np.interp([TAIL * before[-1], (1 - TAIL) * before[-1]], before, np.arange(len(before)))
    unit = (spread.bounds[-1] - spread.bounds[0]) // attribute.places  # a day has many moments
    places = (spread.quantile(masses) - spread.bounds[0]) // unit + np.array([0, 1])
    first, last = (_at(attribute, place) for place in places.tolist())
    far = (high - low) * FAR
    return (first if first - low > far else None), (last if high - last > far else None)


def _starts(attribute: Fine, low: Any, high: Any, middle: tuple[Any, Any]) -> tuple[list[Any], tuple[bool, bool]]:
    """Return the first value of each bar, and whether the first and the last bar have all other values."""
    first, last = middle
    begin, end = low if first is None else first, high if last is None else last
    most = MOST_BARS if middle == (None, None) else MOST_BARS - 3  # the open bars, and one to start at a multiple
    unit = _unit(attribute)
    step = _step(unit, (end - unit - begin) / most)
    if step < 5 * unit:
        step = _step(unit, (end - begin) / most)
    elif last is None:
        end -= unit  # of bars with many values, the last one may have one more: a range such as 0 to 100 has no bar for 100 alone
    number = math.floor((begin - low) / step)
    starts = [low + step * number]
    while end - starts[-1] > step:
        starts.append(starts[-1] + step)
    less, more = number > 0, last is not None and high - starts[-1] > step
    return [*([low] if less else []), *starts, *([starts[-1] + step] if more else [])], (less, more)


def _unit(attribute: Fine) -> Any:
    """Return the distance of two neighbouring values. The cells of datetimes are days, too."""
    if isinstance(attribute, FineNumber):
        return Fraction(attribute.scale.step, attribute.scale.per)
    return _DAY if isinstance(attribute, FineDays) else Fraction(1)


def _step(unit: Any, least: Any) -> Any:
    """Return a round width of at least so much, a multiple of the distance of two values."""
    if isinstance(least, timedelta) or least <= unit:
        return unit * max(1, math.ceil(least / unit))
    ten = Fraction(10) ** math.floor(math.log10(least))
    nice = next(width * ten for width in (1, 2, 5, 10, 20) if width * ten >= least)
    return math.ceil(nice / unit) * unit


def _last(attribute: Fine, end: Any) -> Any:
    """Return the last value of a bar that ends before a value, as a reader names it."""
    if isinstance(attribute, FineNumber):
        return min(end, Fraction(attribute.edges[-1]))
    return end - (_DAY if isinstance(end, date) else 1)


def _text(value: Any) -> str:
    return value.isoformat()[:10] if isinstance(value, date) else with_commas(f"{float(value):.12g}")


def span(first: str, last: str) -> str:
    """Return the label of neighbouring values."""
    return first if first == last else f"{first} to {last}"


def with_commas(text: str) -> str:
    """Return a number with separators from 10,000 on: a year has none. All else stays as it is."""
    if not _LARGE.fullmatch(text):
        return text
    whole, point, digits = text.partition(".")
    return f"{int(whole):,}{point}{digits}"
