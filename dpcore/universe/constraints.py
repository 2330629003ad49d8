"""Constraints between columns: facts that a steward declares, which every released row satisfies.

A constraint says which combinations of cells are possible. What is impossible is a structural zero of every model: no row is drawn there,
and no noise is fitted there. A declared fact is public, so it costs no budget.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.errors import SpecError
from dpcore.universe.attribute import Attribute
from dpcore.universe.categorical import Boolean, Categorical, canonical
from dpcore.universe.extremes import bin_extremes, number_of
from dpcore.universe.spreading import spread_of

Possible = npt.NDArray[np.bool_]
"""For every combination of codes of some columns, whether a row can have it."""

Columns = tuple[str, ...]

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
        found = np.zeros(attribute.size, dtype=np.bool_)
        if not self.values:
            self._mark_range(found, attribute, low=self.low, high=self.high)
        for value in self.values:
            if value is None:
                found[self._missing(attribute)] = True
            elif attribute.ordered:
                self._mark_range(found, attribute, low=value, high=value)
            else:
                found[self._code(attribute, value)] = True
        return found

    def _missing(self, attribute: Attribute) -> int:
        if attribute.missing_cell is None:
            raise SpecError(f"`{self.column}` has no nulls; write `missing: true` in its column, or remove the null")
        return attribute.missing_cell

    def _code(self, attribute: Attribute, value: Any) -> int:
        text = canonical(value)
        if isinstance(attribute, Boolean):
            known = ["false", "true"]
        elif isinstance(attribute, Categorical):
            known = [str(canonical(each)) for each in attribute.values]
            if attribute.other_cell == attribute.cells:
                known.append("other")
        else:
            raise SpecError(f"`{self.column}` has no values to name; write a range, such as {{min: 0, max: 17}}")
        if text not in known:
            raise SpecError(f"`{self.column}` has no value {value!r}; its values are {_listed(known)}")
        return known.index(text)

    def _mark_range(self, found: Possible, attribute: Attribute, *, low: Any, high: Any) -> None:
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
        found[: attribute.cells] |= inside


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
    def tables(self, attributes: Mapping[str, Attribute]) -> Iterator[tuple[Columns, Possible]]:
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
        return tuple(dict.fromkeys(each.column for each in (*self.when, *self.then)))

    def tables(self, attributes: Mapping[str, Attribute]) -> Iterator[tuple[Columns, Possible]]:
        """Yield a table for each consequence, since small tables make small models."""
        if not self.then:
            yield self._table(None, attributes)
        for consequence in self.then:
            yield self._table(consequence, attributes)

    def _table(self, consequence: Condition | None, attributes: Mapping[str, Attribute]) -> tuple[Columns, Possible]:
        conditions = self.when if consequence is None else (*self.when, consequence)
        columns = tuple(dict.fromkeys(each.column for each in conditions))
        shape = checked_shape(columns, attributes)
        excluded = np.ones(shape, dtype=np.bool_)
        for each in conditions:
            cells = each.cells(attributes[each.column])
            where = ~cells if each is consequence else cells
            excluded &= where.reshape([-1 if column == each.column else 1 for column in columns])
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

    def tables(self, attributes: Mapping[str, Attribute]) -> Iterator[tuple[Columns, Possible]]:
        """Yield one table: what is not listed is impossible."""
        possible = np.zeros(checked_shape(self.listed, attributes), dtype=np.bool_)
        for row in self.rows:
            cells = [
                np.flatnonzero(Condition(column, values).cells(attributes[column]))
                for column, values in zip(self.listed, row, strict=True)
            ]
            possible[np.ix_(*cells)] = True
        yield self.listed, possible


def checked_shape(columns: Columns, attributes: Mapping[str, Attribute]) -> tuple[int, ...]:
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
