"""The constraint that one column is the sum of others, such as `total = wages + bonus`.

Models know which cells can add up. Within such cells the terms are drawn several times, and one of the draws is chosen in proportion to how
frequent its sum is in the total's column. The total is then exactly the sum, counted in whole steps of the columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SpecError
from dpcore.universe.attribute import Attribute
from dpcore.universe.constraints import Columns, Constraint, Possible, checked_shape, names_of
from dpcore.universe.drawing import TRIES, Intervals, Places, draw_within, with_values
from dpcore.universe.extremes import cell_intervals
from dpcore.universe.fine_numbers import FineNumber
from dpcore.universe.numeric import Integer
from dpcore.universe.orders import Order
from dpcore.universe.spread import Spread
from dpcore.universe.spreading import spread_of

RARE = 1e-300
"""The weight of a sum within the total's cell that the total hardly ever has. Only sums outside the cell have none."""


@dataclass(frozen=True, kw_only=True)
class Sum(Constraint):
    """One column is the sum of others. A row with a null in one of them satisfies it."""

    total: str
    terms: Columns

    @property
    def columns(self) -> Columns:
        """The terms, then the total, which is what `repair` changes."""
        return *self.terms, self.total

    def tables(self, attributes: Mapping[str, Attribute]) -> Iterator[tuple[Columns, Possible]]:
        """Yield one table: cells are possible together if some values in them add up."""
        shift = self.shift(attributes)
        possible = np.ones(checked_shape(self.columns, attributes), dtype=np.bool_)
        ends = [cell_intervals(attributes[column]) for column in self.columns]
        least = most = np.array(shift, dtype=np.int64)
        for axis, (start, stop) in enumerate(ends[:-1]):
            shape = [-1 if place == axis else 1 for place in range(len(ends))]
            least, most = least + start.reshape(shape), most + (stop - 1).reshape(shape)
        start, stop = ends[-1]
        fits = (least < stop) & (most >= start)
        if not fits.any():
            raise SpecError(
                f"no values of {names_of(self.terms)} add up to a value of `{self.total}`; correct their `min` and `max`, or remove the sum"
            )
        possible[tuple(slice(attributes[column].cells) for column in self.columns)] = fits
        yield self.columns, possible

    def shift(self, attributes: Mapping[str, Attribute]) -> int:
        """Return what the places of the terms lack to add up to the place of the total.

        Raises:
            SpecError: If a column has no whole steps, or the steps do not fit together.
        """
        origins, steps = zip(*(self._grid(column, attributes[column]) for column in self.columns), strict=True)
        if len(set(steps)) > 1:
            raise SpecError(
                f"{names_of(self.columns)} have different steps, so they cannot always add up; give them the same `step`, or make them all integers"
            )
        shift = (sum(origins[:-1], Fraction(0)) - origins[-1]) / steps[0]
        if shift.denominator != 1:
            raise SpecError(
                f"the values of {names_of(self.terms)} never add up to a multiple of the step of `{self.total}`; give every column a `min` that "
                "is a multiple of its `step`"
            )
        return int(shift)

    def _grid(self, column: str, attribute: Attribute) -> tuple[Fraction, Fraction]:
        """Return the number at place 0 of a column, and the step from place to place."""
        if isinstance(attribute, FineNumber):
            scale = attribute.scale
            return Fraction(scale.low, scale.per), Fraction(scale.step, scale.per)
        if isinstance(attribute, Integer):
            return Fraction(0), Fraction(1)
        raise SpecError(f"`{column}` has no whole steps to add up; make it an integer, or a number with a `step`")


def refuse_shared_columns(sums: Sequence[Sum], orders: Sequence[Order]) -> None:
    """Raise if a column of a sum is in another sum or in an order: values drawn for the one could contradict the other."""
    for number, each in enumerate(sums):
        others: Sequence[Constraint] = (*sums[:number], *orders)
        for column in each.columns:
            if any(column in other.columns for other in others):
                raise SpecError(
                    f"`{column}` is in a sum, so it cannot be in another sum or in an order, whose values are drawn separately; remove one of them"
                )


def adding_up(
    table: pa.Table,
    constraint: Sum,
    intervals: Intervals,
    *,
    attributes: Mapping[str, Attribute],
    rng: np.random.Generator,
) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """Draw values again so that they add up.

    Args:
        table: Drawn rows.
        constraint: The sum.
        intervals: Where the values of each of its columns come from.
        attributes: The columns.
        rng: Draws.

    Returns:
        The rows, and for each row whether its intervals allow the sum at all. That is so if they are whole possible cells.
    """
    known = np.logical_and.reduce([np.asarray(table.column(name).is_valid()) for name in constraint.columns])
    spreads = {name: spread_of(attributes[name]) for name in constraint.columns}
    draws = _Draws(constraint, intervals, spreads, shift=constraint.shift(attributes))
    feasible = ~known | draws.feasible()
    rows = np.flatnonzero(known & feasible)
    if len(rows):
        for name, places in draws.again(rows, rng).items():
            table = with_values(table, name, rows, spreads[name].value(places))
    return table, feasible


@dataclass(frozen=True, eq=False)
class _Draws:
    """Draws from the intervals of rows, given that they add up."""

    constraint: Sum
    intervals: Intervals
    spreads: Mapping[str, Spread]
    shift: int

    def feasible(self) -> npt.NDArray[np.bool_]:
        """Tell which rows have values in their intervals that add up."""
        start, stop = self.intervals[self.constraint.total]
        least = most = np.full(len(start), self.shift, dtype=np.int64)
        for name in self.constraint.terms:
            first, after = self.intervals[name]
            least, most = least + first, most + after - 1
        return np.asarray((least < stop) & (most >= start))

    def again(self, rows: npt.NDArray[np.intp], rng: np.random.Generator) -> dict[str, Places]:
        """Return places that add up for these rows, by column."""
        terms, total = self.constraint.terms, self.constraint.total
        start, stop = self._of(total, rows)
        spread, seen = self.spreads[total], np.zeros(len(rows))
        chosen: dict[str, Places] = {name: self._of(name, rows)[0].copy() for name in terms}
        for _ in range(TRIES):
            drawn = {name: draw_within(self.spreads[name], *self._of(name, rows), rng) for name in terms}
            together = np.add.reduce(list(drawn.values())) + self.shift
            inside = (together >= start) & (together < stop)
            weight = np.where(inside, np.maximum(spread.below(together + 1) - spread.below(together), RARE), 0.0)
            seen += weight
            take = rng.random(len(rows)) * seen < weight  # each draw so far is chosen in proportion to its weight
            for name, places in drawn.items():
                chosen[name] = np.where(take, places, chosen[name])
        waiting = np.flatnonzero(seen == 0)
        for name, places in self._one_by_one(rows[waiting], rng).items():
            chosen[name][waiting] = places
        return {**chosen, total: np.add.reduce(list(chosen.values())) + self.shift}

    def _one_by_one(self, rows: npt.NDArray[np.intp], rng: np.random.Generator) -> dict[str, Places]:
        """Draw one term after the other, each evenly from what leaves room for the next ones."""
        start, stop = self._of(self.constraint.total, rows)
        least, most = start - self.shift, stop - 1 - self.shift  # what is left of the total
        found: dict[str, Places] = {}
        for place, name in enumerate(self.constraint.terms):
            later = [self._of(each, rows) for each in self.constraint.terms[place + 1 :]]
            first, after = self._of(name, rows)
            low = np.maximum(first, least - sum(end - 1 for _, end in later))
            high = np.minimum(after - 1, most - sum(begin for begin, _ in later))
            found[name] = rng.integers(low, high + 1)
            least, most = least - found[name], most - found[name]
        return found

    def _of(self, name: str, rows: npt.NDArray[np.intp]) -> tuple[Places, Places]:
        start, stop = self.intervals[name]
        return start[rows], stop[rows]
