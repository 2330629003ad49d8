"""Constraints between columns: facts that a steward declares, which every released row satisfies.

A constraint says which combinations of cells are possible. What is impossible is a structural zero of every model: no row is drawn there,
and no noise is fitted there. A declared fact is public, so it costs no budget.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.errors import SpecError
from dpcore.universe.attribute import Attribute
from dpcore.universe.categorical import Boolean, Categorical, canonical
from dpcore.universe.extremes import bin_extremes, cell_intervals, number_of
from dpcore.universe.leaves import Fine
from dpcore.universe.spreading import spread_of

Possible = npt.NDArray[np.bool_]
"""For every combination of codes of some columns, whether a row can have it."""

Columns = tuple[str, ...]
Attributes = Mapping[str, Attribute]
Values = npt.NDArray[Any]

MOST_CELLS = 1 << 22
"""The most combinations of cells that one constraint may decide about."""


class Violations(StrEnum):
    """What happens to a private row that violates a constraint. It depends on that row alone."""

    DROP = "drop"
    REPAIR = "repair"


@dataclass(frozen=True)
class Condition:
    """A condition on one column: to have one of some values, or to lie in a range.

    Attributes:
        column: The column.
        values: The values, None for a null; empty for a range.
        low: The lowest value of a range; None if it has no lower end.
        high: The highest value of a range, included; None if it has no upper end.

    >>> Condition("sex", values=("M",)).cells(Categorical(("F", "M"), missing=True)).tolist()
    [False, True, False]
    """

    column: str
    values: tuple[Any, ...] = ()
    low: Any = None
    high: Any = None

    def cells(self, attribute: Attribute) -> Possible:
        """Return which codes of the column satisfy the condition. `other` and `missing` are in no range.

        Raises:
            SpecError: If a value is not declared, or a range cuts a bin in two.
        """
        satisfied = np.zeros(attribute.size, dtype=np.bool_)
        if not self.values:
            self._mark_range(satisfied, attribute, low=self.low, high=self.high)
        for value in self.values:
            if value is None:
                satisfied[self._missing(attribute)] = True
            elif attribute.ordered:
                self._mark_range(satisfied, attribute, low=value, high=value)
            else:
                satisfied[self._code(attribute, value)] = True
        return satisfied

    def _missing(self, attribute: Attribute) -> int:
        if attribute.missing_cell is None:
            raise SpecError(f"`{self.column}` has no nulls; write `missing: true` in its column, or remove the null")
        return attribute.missing_cell

    def _code(self, attribute: Attribute, value: Any) -> int:
        text = canonical(value)
        if isinstance(attribute, Boolean):
            texts = ["false", "true"]
        elif isinstance(attribute, Categorical):
            texts = [str(canonical(declared)) for declared in attribute.values]
            if attribute.other_cell == attribute.cells:
                texts.append("other")
        else:
            raise SpecError(f"`{self.column}` has no values to name; write a range, such as {{min: 0, max: 17}}")
        if text not in texts:
            raise SpecError(f"`{self.column}` has no value {value!r}; its values are {_listed(texts)}")
        return texts.index(text)

    def _mark_range(self, satisfied: Possible, attribute: Attribute, *, low: Any, high: Any) -> None:
        first, last = bin_extremes(attribute)
        least = -np.inf if low is None else number_of(attribute, low)
        most = np.inf if high is None else number_of(attribute, high)
        inside = (first >= least) & (last <= most)
        cut = ~inside & (last >= least) & (first <= most)
        if least < most and not spread_of(attribute).whole:  # bins of reals share their edges with their neighbours
            cut &= (last > least) & (first < most)
        if cut.any():
            label = attribute.labels[int(np.flatnonzero(cut)[0])]
            raise SpecError(
                f"the range of `{self.column}` cuts its bin {label} in two; move the range to the edge of a bin, or declare other bins"
            )
        satisfied[: attribute.cells] |= inside


@dataclass(frozen=True, kw_only=True)
class Constraint(ABC):
    """A fact about some columns of every row.

    Attributes:
        violations: What happens to private rows that contradict it.
    """

    violations: Violations

    @property
    @abstractmethod
    def columns(self) -> Columns:
        """The columns, in the order in which the spec names them. `repair` changes the last one."""

    @abstractmethod
    def tables(self, attributes: Attributes) -> Iterator[tuple[Columns, Possible]]:
        """Yield which combinations of codes are possible, each for some of the columns.

        Raises:
            SpecError: If the constraint does not suit the columns.
        """


@dataclass(frozen=True, kw_only=True)
class Implication(Constraint):
    """Rows that satisfy all of some conditions satisfy others as well; without others, there are no such rows."""

    when: tuple[Condition, ...]
    then: tuple[Condition, ...] = ()

    @property
    def columns(self) -> Columns:
        """The columns of both sides."""
        return tuple(dict.fromkeys(condition.column for condition in (*self.when, *self.then)))

    def tables(self, attributes: Attributes) -> Iterator[tuple[Columns, Possible]]:
        """Yield a table for each consequence, since small tables make small models."""
        if not self.then:
            yield self._table(None, attributes)
        for consequence in self.then:
            yield self._table(consequence, attributes)

    def _table(self, consequence: Condition | None, attributes: Attributes) -> tuple[Columns, Possible]:
        conditions = self.when if consequence is None else (*self.when, consequence)
        columns = tuple(dict.fromkeys(condition.column for condition in conditions))
        shape = checked_shape(columns, attributes)
        excluded = np.ones(shape, dtype=np.bool_)
        for condition in conditions:
            cells = condition.cells(attributes[condition.column])
            where = ~cells if condition is consequence else cells
            excluded &= where.reshape([-1 if column == condition.column else 1 for column in columns])
        return columns, ~excluded


@dataclass(frozen=True, kw_only=True)
class Listed(Constraint):
    """The only possible combinations of some columns."""

    listed: Columns
    rows: tuple[tuple[tuple[Any, ...], ...], ...]

    @property
    def columns(self) -> Columns:
        """The listed columns."""
        return self.listed

    def tables(self, attributes: Attributes) -> Iterator[tuple[Columns, Possible]]:
        """Yield one table: what is not listed is impossible."""
        possible = np.zeros(checked_shape(self.listed, attributes), dtype=np.bool_)
        for row in self.rows:
            cells = [
                np.flatnonzero(Condition(column, values).cells(attributes[column]))
                for column, values in zip(self.listed, row, strict=True)
            ]
            possible[np.ix_(*cells)] = True
        yield self.listed, possible


@dataclass(frozen=True, kw_only=True)
class Comparison(Constraint):
    """A constraint of values: the last column lies in a range that the others give. It decides within cells, too. A null satisfies it."""

    @abstractmethod
    def measured(self, attribute: Attribute, places: Values) -> Values:
        """Return what the places of a column (`spread_of`) are compared by."""

    @abstractmethod
    def code_from(self, column: Fine, measured: Values) -> Values:
        """Return the code of the first finest place of a column that is measured by at least so much."""

    @abstractmethod
    def range(self, low: Sequence[Values], high: Sequence[Values], attributes: Attributes) -> tuple[Values, Values]:
        """Return the least and the greatest that the last column may be, given those of the others."""

    def allows(self, low: Sequence[Values], high: Sequence[Values], attributes: Attributes) -> Possible:
        """Tell whether columns that lie between these bounds can satisfy the constraint."""
        least, most = self.range(low[:-1], high[:-1], attributes)
        return np.asarray((least <= high[-1]) & (most >= low[-1]))

    def tables(self, attributes: Attributes) -> Iterator[tuple[Columns, Possible]]:
        """Yield one table: cells are possible together if some values that are drawn from them satisfy the constraint."""
        possible = np.ones(checked_shape(self.columns, attributes), dtype=np.bool_)
        low, high = zip(*(self.cell_ends(attributes[column]) for column in self.columns), strict=True)
        fits = self.allows(np.ix_(*low), np.ix_(*high), attributes)
        possible[tuple(slice(attributes[column].cells) for column in self.columns)] = fits
        yield self.columns, possible

    def cell_ends(self, attribute: Attribute) -> tuple[Values, Values]:
        """Return what the lowest and the highest value that is drawn from each cell are compared by."""
        start, stop = cell_intervals(attribute)
        return self.measured(attribute, start), self.measured(attribute, spread_of(attribute).before(stop))


def checked_shape(columns: Columns, attributes: Attributes) -> tuple[int, ...]:
    """Return the shape of a table. Raise if it is too large."""
    shape = tuple(attributes[column].size for column in columns)
    if prod(shape) > MOST_CELLS:
        raise SpecError(
            f"{names_of(columns)} have {prod(shape):,} combinations of cells, and a constraint may have at most {MOST_CELLS:,}; declare "
            "coarser columns, or name fewer in one constraint"
        )
    return shape


def names_of(columns: Columns) -> str:
    """Return the names of columns as a list for people.

    >>> names_of(("a", "b", "c"))
    '`a`, `b` and `c`'
    """
    quoted = [f"`{column}`" for column in columns]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def _listed(texts: list[str], most: int = 8) -> str:
    shown = ", ".join(map(repr, texts[:most]))
    return shown if len(texts) <= most else f"{shown} and {len(texts) - most:,} more"
