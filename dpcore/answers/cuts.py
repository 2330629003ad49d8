"""Where the conditions and keys of a query cut an ordered column."""

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.answers.calendar import boundaries
from dpcore.answers.query import Among, Bin, Buckets, Cells, Compare, Part, Term, Transform, Truncate
from dpcore.errors import UsageError
from dpcore.universe.spread import Spread

MOST_CUTS = 100_000
"""The most pieces into which conditions and keys may cut a column."""


def cuts_of(spread: Spread, parts: Iterable[Any]) -> npt.NDArray[Any]:
    """Return the places at which conditions and keys change, besides the cells' own bounds."""
    cuts: list[npt.NDArray[Any]] = [spread.bounds[:1]]
    for part in parts:
        match part:
            case Compare(Term(_, None), _, value):
                cuts.append(_around(spread, [value]))
            case Among(Term(_, None), values):
                cuts.append(_around(spread, values))
            case Term(_, transform):
                cuts.append(_transform_cuts(spread, transform))
            case Compare(term) | Among(term):
                cuts.append(_transform_cuts(spread, term.transform))
    places = np.unique(np.concatenate(cuts))
    if len(places) > MOST_CUTS:
        raise UsageError(
            f"the question divides a column into {len(places):,} parts, and at most {MOST_CUTS:,} are possible; use wider bins"
        )
    return places


def _transform_cuts(spread: Spread, transform: Transform | None) -> npt.NDArray[Any]:
    match transform:
        case Bin(width):
            return bin_places(spread, width)
        case Buckets():
            return bucket_places(spread, transform)
        case Truncate(unit) | Part(unit):
            first, last = spread.edges[0], spread.edges[-1]
            return np.array([first_place(spread, moment) for moment in boundaries(first, last, unit, most=MOST_CUTS)])
        case Cells():
            return spread.bounds
    return np.arange(spread.bounds[0], spread.bounds[-1])  # the values themselves


def bin_edges(spread: Spread, width: Fraction) -> list[Fraction]:
    """Return the multiples of a width from the last one before the values to the first one after them."""
    first, last = (math.floor(Fraction(edge) / width) for edge in (spread.edges[0], spread.edges[-1]))
    if last - first > MOST_CUTS:
        raise UsageError(
            f"a column has {last - first:,} bins of this width, and at most {MOST_CUTS:,} are possible; use wider bins"
        )
    return [width * number for number in range(first, last + 2)]


def bin_places(spread: Spread, width: Fraction) -> npt.NDArray[Any]:
    """Return the places at which bins start, without the first bin."""
    return np.array([first_place(spread, edge) for edge in bin_edges(spread, width)[1:]])


def bucket_places(spread: Spread, buckets: Buckets) -> npt.NDArray[Any]:
    """Return the places at which buckets start, and that after the last one."""
    width = (buckets.high - buckets.low) / buckets.count
    return np.array([first_place(spread, buckets.low + width * number) for number in range(buckets.count + 1)])


def _around(spread: Spread, values: Iterable[Any]) -> npt.NDArray[Any]:
    places = [place_of(spread, value) for value in values]
    if spread.whole:
        return np.array([cut for place in places for cut in (math.ceil(place), math.floor(place) + 1)], dtype=np.int64)
    return np.array([float(place) for place in places])


def first_place(spread: Spread, value: Any) -> int | float:
    """Return the first place at or after a constant."""
    place = place_of(spread, value)
    return math.ceil(place) if spread.whole else float(place)


def place_of(spread: Spread | None, value: Any) -> Fraction:
    """Return the place of a constant, moved to just outside the column's values if it lies further out."""
    if spread is None:
        raise UsageError("this column has no order; compare it with = or in")
    low, high = Fraction(spread.bounds[0].item()) - 2, Fraction(spread.bounds[-1].item()) + 2
    return min(max(spread.place(value), low), high)
