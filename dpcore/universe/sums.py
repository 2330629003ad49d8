"""The constraint that one column is the sum of others, such as `total = wages + bonus`.

Models know which cells can add up. Within such cells the terms are drawn several times, and one of the draws is chosen in proportion to how
frequent its sum is in the total's column. The total is then exactly the sum, counted in whole steps of the columns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SpecError
from dpcore.universe.attribute import Attribute
from dpcore.universe.constraints import Attributes, Columns, Comparison, Constraint, Possible, Values, names_of
from dpcore.universe.drawing import TRIES, Draws, Places, with_values
from dpcore.universe.fine_numbers import FineNumber
from dpcore.universe.leaves import Fine
from dpcore.universe.numeric import Integer
from dpcore.universe.orders import Order

RARE = 1e-300
"""The weight of a sum within the total's cell that the total hardly ever has. Only sums outside the cell have none."""


@dataclass(frozen=True, kw_only=True)
class Sum(Comparison):
    """One column is the sum of others. A row with a null in one of them satisfies it."""

    total: str
    terms: Columns

    @property
    def columns(self) -> Columns:
        """The terms, then the total, which is what `repair` changes."""
        return *self.terms, self.total

    def tables(self, attributes: Attributes) -> Iterator[tuple[Columns, Possible]]:
        """Yield one table, in which something must be possible."""
        self.shift(attributes)
        for columns, possible in super().tables(attributes):
            if not possible[tuple(slice(attributes[column].cells) for column in columns)].any():
                raise SpecError(
                    f"no values of {names_of(self.terms)} add up to a value of `{self.total}`; correct their `min` and `max`, or remove the sum"
                )
            yield columns, possible

    def measured(self, attribute: Attribute, places: Values) -> Values:
        """Return the places, in whole steps that all columns share."""
        del attribute
        return places

    def code_from(self, column: Fine, measured: Values) -> Values:
        """Return how many places are before this one."""
        return measured - column.first_place

    def range(self, low: Sequence[Values], high: Sequence[Values], attributes: Attributes) -> tuple[Values, Values]:
        """Return the least and the greatest sum of the terms."""
        shift = self.shift(attributes)
        return shift + sum(low[1:], low[0]), shift + sum(high[1:], high[0])

    def shift(self, attributes: Attributes) -> int:
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
    for number, total in enumerate(sums):
        before: Sequence[Constraint] = (*sums[:number], *orders)
        for column in total.columns:
            if any(column in constraint.columns for constraint in before):
                raise SpecError(
                    f"`{column}` is in a sum, so it cannot be in another sum or in an order, whose values are drawn separately; remove one of them"
                )


def adding_up(table: pa.Table, draws: Draws, total: Sum) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """Draw values again so that they add up.

    Returns:
        The rows, and for each row whether its intervals allow the sum at all. That is so if they are whole possible cells.
    """
    complete = np.logical_and.reduce([np.asarray(table.column(name).is_valid()) for name in total.columns])
    feasible = ~complete | draws.feasible()
    rows = np.flatnonzero(complete & feasible)
    if len(rows):
        for name, places in _again(draws, total, rows).items():
            table = with_values(table, name, rows, draws.spreads[name].value(places))
    return table, feasible


def _again(draws: Draws, total: Sum, rows: npt.NDArray[np.intp]) -> dict[str, Places]:
    """Return places that add up for these rows, by column."""
    shift, (start, last) = total.shift(draws.attributes), draws.ends(total.total, rows)
    spread, weights = draws.spreads[total.total], np.zeros(len(rows))
    chosen: dict[str, Places] = {name: draws.ends(name, rows)[0].copy() for name in total.terms}
    for _ in range(TRIES):
        drawn = {name: draws.drawn(name, rows) for name in total.terms}
        together = np.add.reduce(list(drawn.values())) + shift
        inside = (together >= start) & (together <= last)
        weight = np.where(inside, np.maximum(spread.below(together + 1) - spread.below(together), RARE), 0.0)
        weights += weight
        take = draws.rng.random(len(rows)) * weights < weight  # each draw so far is chosen in proportion to its weight
        for name, places in drawn.items():
            chosen[name] = np.where(take, places, chosen[name])
    waiting = np.flatnonzero(weights == 0)
    for name, places in _one_by_one(draws, total, rows[waiting]).items():
        chosen[name][waiting] = places
    return {**chosen, total.total: np.add.reduce(list(chosen.values())) + shift}


def _one_by_one(draws: Draws, total: Sum, rows: npt.NDArray[np.intp]) -> dict[str, Places]:
    """Draw one term after the other, each evenly from what leaves room for the next ones."""
    shift = total.shift(draws.attributes)
    least, most = (end - shift for end in draws.ends(total.total, rows))  # what is left of the total
    chosen: dict[str, Places] = {}
    for place, name in enumerate(total.terms):
        later = [draws.ends(term, rows) for term in total.terms[place + 1 :]]
        first, last = draws.ends(name, rows)
        low = np.maximum(first, least - sum(end for _, end in later))
        high = np.minimum(last, most - sum(begin for begin, _ in later))
        chosen[name] = draws.rng.integers(low, high + 1)
        least, most = least - chosen[name], most - chosen[name]
    return chosen
