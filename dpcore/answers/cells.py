"""Divide the cells of a column into pieces, on each of which every condition and key of a query is constant.

A condition may cut through a cell. The piece on either side gets the share of the cell's released values that lies in it: values are
distributed evenly within a declared bin, and by the leaves' masses in a column at full resolution. So an answer is what SQL gives on the
released rows, but for their sampling error. That includes nulls, the category `other`, and the ends to which values were clipped.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.answers.calendar import part_of, truncated
from dpcore.answers.cuts import bin_edges, bin_places, bucket_places, cuts_of, place_of
from dpcore.answers.query import (
    COMPARISONS,
    Among,
    Bin,
    Buckets,
    Cells,
    Compare,
    IsNull,
    Like,
    Part,
    Term,
    Transform,
    Truncate,
)
from dpcore.errors import UsageError
from dpcore.universe import Attribute
from dpcore.universe.spread import Spread, category_values, null_codes
from dpcore.universe.spreading import is_first_day, spread_of

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Keys:
    """The distinct values of a key, the end of each one's interval, and the position among them of every piece."""

    values: list[Any]
    highs: list[Any]
    of_piece: Indices


@dataclass(frozen=True, eq=False)
class Column:
    """A column as a query sees it.

    Attributes:
        attribute: The column.
        spread: How its values are distributed within cells; None without an order.
        cell: The cell of each piece.
        share: The share of the cell that is in the piece.
        start: The first place of each piece of an ordered column.
        null: Whether a piece has the rows without a value.
        released: Whether the column is released. If so, the first day of a bin of the calendar stands for the bin.
    """

    attribute: Attribute
    spread: Spread | None
    cell: Indices
    share: Floats
    start: npt.NDArray[Any]
    null: npt.NDArray[np.bool_]
    released: bool = True

    @classmethod
    def of(cls, attribute: Attribute, parts: Iterable[Any], *, released: bool = True) -> "Column":
        """Divide a column by the conditions and terms of a query that concern it."""
        null = np.isin(np.arange(attribute.size), null_codes(attribute))
        if not attribute.ordered:
            cells = np.arange(attribute.size)
            return cls(attribute, None, cells, np.ones(attribute.size), cells, null)
        spread = spread_of(attribute)
        cuts = cuts_of(spread, parts)
        bounds = spread.bounds
        cuts = cuts[(cuts > bounds[0]) & (cuts < bounds[-1])]
        start = np.union1d(bounds[:-1], cuts)
        cell = np.searchsorted(bounds, start, side="right") - 1
        nulls = np.flatnonzero(null)
        return cls(
            attribute,
            spread,
            np.concatenate([cell, nulls]),
            np.concatenate([_shares(spread, start), np.ones(len(nulls))]),
            np.concatenate([start, np.repeat(bounds[-1], len(nulls))]),
            np.concatenate([np.zeros(len(start), dtype=np.bool_), np.ones(len(nulls), dtype=np.bool_)]),
            released,
        )

    def spread_by(self, spread: Spread) -> "Column":
        """Return the same pieces of cells within which values are distributed otherwise."""
        share = np.ones(self.pieces)
        share[~self.null] = _shares(spread, self.start[~self.null])
        return replace(self, spread=spread, share=share)

    @property
    def pieces(self) -> int:
        """The number of pieces."""
        return len(self.cell)

    @cached_property
    def ends(self) -> npt.NDArray[Any]:
        """The place after each piece of an ordered column."""
        if self.spread is None:
            return self.start
        inside = int((~self.null).sum())
        return np.concatenate([self.start[1:inside], np.repeat(self.spread.bounds[-1], self.pieces - inside + 1)])

    @cached_property
    def means(self) -> Floats:
        """The mean value of each piece of a column of numbers; 0 where there is none."""
        if self.spread is None:
            values = category_values(self.attribute) or ()
            return np.array([0.0 if value is None else float(value) for value in values])
        moments = self.spread.moment_below(self.ends) - self.spread.moment_below(self.start)
        means: Floats = np.divide(moments, self.share, out=np.zeros(self.pieces), where=(self.share > 0) & ~self.null)
        return means

    @cached_property
    def deviations(self) -> Floats:
        """The standard deviation of the values of each piece of a column of numbers; 0 where there is none."""
        if self.spread is None or self.is_moment:
            return np.zeros(self.pieces)
        squares = self.spread.moment_below(self.ends, power=2) - self.spread.moment_below(self.start, power=2)
        mean_squares = np.divide(squares, self.share, out=np.zeros(self.pieces), where=(self.share > 0) & ~self.null)
        deviations = np.sqrt(np.maximum(mean_squares - self.means**2, 0.0))
        deviations[deviations < 1e-6 * np.abs(self.means)] = 0.0  # rounding errors of a single value
        return deviations

    @cached_property
    def ascending(self) -> Indices:
        """The pieces with values, from the smallest to the largest."""
        inside = np.flatnonzero(~self.null)
        return inside if self.spread is not None else inside[np.argsort(self.means[inside], kind="stable")]

    @property
    def is_moment(self) -> bool:
        """Whether values are days or moments, which are computed with as places."""
        return self.spread is not None and self.spread.value(self.start[:1]).dtype.kind == "M"

    def moments(self, places: Floats) -> npt.NDArray[np.datetime64]:
        """Return places of days or moments as such; not a time where there is none."""
        if self.spread is None:
            raise UsageError("this column has no days or moments; show its numbers")
        missing = np.isnan(places)
        moments = self.spread.value(np.where(missing, 0, places).astype(np.int64)).astype("datetime64[s]")
        moments[missing] = np.datetime64("NaT")
        return moments

    def within(self, pieces: Indices, *, share: Floats) -> Floats:
        """Return the value, or the place of a day or moment, that a share of each of some pieces is below."""
        if self.spread is None:
            return self.means[pieces]
        places = self.spread.quantile(self.spread.below(self.start[pieces]) + share * self.share[pieces])
        return np.asarray(places if self.is_moment else self.spread.value(places), dtype=np.float64)

    def truths(self, part: Any) -> npt.NDArray[np.int8]:
        """Return whether each piece satisfies an elementary condition: 0 for no, 1 for unknown, 2 for yes."""
        match part:
            case IsNull():
                return np.where(self.null, np.int8(2), np.int8(0))
            case Compare(Term(_, None), operator, value) if self.spread is not None:
                holds = self._compared(operator, value)
            case Compare(term, operator, value):
                compare = COMPARISONS[operator]
                holds = np.array(
                    [own is not None and compare(own, value) for own in self._values(term)], dtype=np.bool_
                )
            case Among(Term(_, None), values) if self.spread is not None:
                holds = np.zeros(self.pieces, dtype=np.bool_)
                for value in values:
                    holds |= self._compared("=", value)
            case Among(term, values):
                listed = set(values)
                holds = np.array([own in listed for own in self._values(term)], dtype=np.bool_)
            case _:
                texts = category_values(self.attribute) or ()
                holds = np.array([text is not None and matches(text, part) for text in texts], dtype=np.bool_)
        return np.where(self.null, np.int8(1), np.where(holds, np.int8(2), np.int8(0)))

    def _compared(self, operator: str, value: Any) -> npt.NDArray[np.bool_]:
        """Compare the places of an ordered column, which were cut where the comparison changes."""
        place = place_of(self.spread, value)
        if self.spread is not None and self.spread.whole:
            less, at_most = self.start < math.ceil(place), self.start < math.floor(place) + 1
        else:
            less = at_most = self.start < float(place)
        equal = at_most & ~less
        if operator in {"=", "<>"} and self._is_bin(place):  # released days name their bins
            equal = equal[np.searchsorted(self.cell, self.cell)]
        results = {"<": less, "<=": at_most, "=": equal, "<>": ~equal, ">": ~at_most, ">=": ~less}
        return np.asarray(results[operator])

    def _is_bin(self, place: Fraction) -> bool:
        """Return whether a place is the first day or moment of a bin of the calendar, as which all of the bin is released."""
        return (
            self.released
            and self.spread is not None
            and is_first_day(self.attribute)
            and place in self.spread.bounds[:-1]
        )

    def _values(self, term: Term) -> list[Any]:
        """Return a term's value on each piece."""
        if term.transform is None:
            return list(category_values(self.attribute) or ())
        keys = self.keys(term)
        return [keys.values[at] for at in keys.of_piece.tolist()]

    def keys(self, term: Term) -> Keys:
        """Return the distinct values of a term, ascending, null last, and which of them every piece has."""
        if self.spread is None:
            return _category_keys(category_values(self.attribute) or ())
        inside = ~self.null
        numbers, values, highs = self._grouped(term.transform, self.start[inside])
        distinct, first, position = np.unique(numbers, return_index=True, return_inverse=True)
        of_piece = np.full(self.pieces, len(distinct), dtype=np.int64)
        of_piece[inside] = position
        shown, ends = [values[at] for at in first.tolist()], [highs[at] for at in first.tolist()]
        if self.null.any():
            shown, ends = [*shown, None], [*ends, None]
        return Keys(shown, ends, of_piece)

    def _grouped(self, transform: Transform | None, start: npt.NDArray[Any]) -> tuple[Indices, list[Any], list[Any]]:
        """Return, for each piece, the number of its group, the group's value, and the end of its interval."""
        spread = self.spread
        if spread is None:
            raise UsageError("a category has no bins; group by the column itself")
        match transform:
            case Bin(width):
                edges = bin_edges(spread, width)
                number = np.searchsorted(bin_places(spread, width), start, side="right")
                whole = width.denominator == 1
                lows = [int(edge) if whole else float(edge) for edge in edges]
                return number, [lows[at] for at in number.tolist()], [lows[at + 1] for at in number.tolist()]
            case Buckets():
                number = np.searchsorted(bucket_places(spread, transform), start, side="right")
                return number, number.tolist(), number.tolist()
            case Truncate(unit):
                moments = truncated(spread.value(start), unit)
                return moments.astype(np.int64), moments.tolist(), moments.tolist()
            case Part(unit):
                parts = part_of(spread.value(start), unit)
                return parts, parts.tolist(), parts.tolist()
            case Cells():
                cell = np.searchsorted(spread.bounds, start, side="right") - 1
                at = cell.tolist()
                return cell, [spread.edges[place] for place in at], [spread.edges[place + 1] for place in at]
        shown = spread.value(start)
        if shown.dtype.kind == "f" and (shown == np.floor(shown)).all():
            shown = shown.astype(np.int64)
        values = shown.tolist()
        return start.astype(np.int64), values, values


def matches(text: str, like: Like) -> bool:
    """Return whether a text matches a pattern, in time that grows with the product of their lengths.

    >>> matches("follow-up", Like(Term(0), "%low_u%")), matches("planned", Like(Term(0), "_p%"))
    (True, False)
    """
    pattern = like.pattern
    if like.any_case:
        text, pattern = text.casefold(), pattern.casefold()
    first, *others = (".".join(map(re.escape, part.split("_"))) for part in pattern.split("%"))
    regex = first + "".join(
        f"(?>.*?{part})" for part in others[:-1]
    )  # the earliest place is the best one: it is never left again
    if others:
        regex += f".*{others[-1]}"
    return re.fullmatch(regex, text, re.DOTALL) is not None


def _shares(spread: Spread, start: npt.NDArray[Any]) -> Floats:
    """Return the share of its cell that is in each piece. Pieces follow each other without gaps, up to the last value."""
    return np.clip(np.diff(spread.below(np.append(start, spread.bounds[-1]))), 0.0, 1.0)


def _category_keys(values: tuple[Any, ...]) -> Keys:
    order = [code for code, value in enumerate(values) if value is not None]
    nulls = [code for code, value in enumerate(values) if value is None]
    of_piece = np.zeros(len(values), dtype=np.int64)
    of_piece[order] = np.arange(len(order))
    of_piece[nulls] = len(order)
    shown = [values[code] for code in order] + [None] * bool(nulls)
    return Keys(shown, shown, of_piece)
