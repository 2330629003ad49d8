"""Evaluate a query on any model: every number is a function of a few linear forms over the cells of some columns."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.answers.cells import Column, Indices, Keys
from dpcore.answers.query import (
    Aggregate,
    All,
    Always,
    AnyOf,
    Arithmetic,
    Condition,
    Constant,
    Count,
    IsNull,
    IsTrue,
    Mean,
    Not,
    Number,
    Overall,
    Quantile,
    Query,
    Sum,
    Term,
    aggregates,
    leaves,
    terms,
)
from dpcore.answers.tilt import share_untilted
from dpcore.answers.varied import Varied
from dpcore.errors import UsageError
from dpcore.marginals.workload import Axes
from dpcore.models.model import Weights
from dpcore.universe import Universe

Marginal = Callable[[Axes], Weights]
"""Returns the expected counts in every cell of some columns, in ascending order: the method of a model.

It may do so for several models at once. Then its arrays, and all that is computed from them, have a first dimension for the models.
"""

Truths = npt.NDArray[np.int8]

MOST_CELLS = 1 << 22
"""The most cells, or pieces of cells, over which a number is summed."""

MOST_GROUPS = 100_000
TINY = 1e-300
LEAST_ROWS = 1e-9
"""With fewer expected rows, there is no mean and no quantile."""


@dataclass(frozen=True, eq=False)
class Linear:
    """A linear form: a weight for each cell of some columns. Its value is the sum of weights times counts."""

    axes: Axes
    weights: Weights

    def on(self, marginal: Marginal) -> float:
        """Return the value of the form."""
        return float(np.sum(self.weights * marginal(self.axes)))


@dataclass(frozen=True, eq=False)
class Form:
    """The linear forms of an aggregate, one for each group: the rows that satisfy all conditions, or the sum of a column over them.

    Attributes:
        axes: The columns that it concerns, ascending.
        columns: Their pieces.
        holds: Whether each combination of pieces counts, broadcast over the axes.
        group: The group of each combination of pieces, likewise.
        groups: The number of groups.
        value: The column that is summed; None for a number of rows.
        varied: Columns whose values are distributed within cells by each of several models in its own way.
    """

    axes: Axes
    columns: tuple[Column, ...]
    holds: npt.NDArray[np.bool_]
    group: npt.NDArray[np.int64]
    groups: int
    value: int | None
    varied: Mapping[int, Varied] = field(default_factory=dict)

    @property
    def possible(self) -> npt.NDArray[np.bool_]:
        """Whether each group can have a row at all, by the conditions and the declared values."""
        shape = np.broadcast_shapes(self.holds.shape, self.group.shape)
        found = np.zeros(self.groups, dtype=np.bool_)
        found[np.broadcast_to(self.group, shape)[np.broadcast_to(self.holds, shape)]] = True
        return found

    def totals(self, marginal: Marginal, *, along: int | None = None) -> Weights:
        """Return the value of every group's form; with `along`, divided among the pieces of that column."""
        array, places, width = self._placed(marginal, along)
        models = array.shape[: array.ndim - len(self.axes)]
        size = self.groups * width
        if models:
            places = (np.arange(models[0])[:, None] * size + places).ravel()
        found = np.bincount(places, weights=array.ravel(), minlength=size * math.prod(models)).astype(np.float64)
        return found.reshape((*models, self.groups) if along is None else (*models, self.groups, width))

    def entries(self, marginal: Marginal, *, along: int) -> tuple[Indices, Indices, Weights]:
        """Return the totals of one model along a column that are not zero, each with its group and its piece: a few of many."""
        array, places, width = self._placed(marginal, along)
        some = np.flatnonzero(array)
        found, at = np.unique(places[some], return_inverse=True)
        totals = np.bincount(at, weights=array.ravel()[some], minlength=len(found)).astype(np.float64)
        return found // width, found % width, totals

    def _placed(self, marginal: Marginal, along: int | None) -> tuple[Weights, Indices, int]:
        """Return what every combination of pieces adds, where that is in an array of groups by pieces of a column, and its number of pieces."""
        dimensions = len(self.axes)
        array = self._spread(marginal(self.axes))
        if self.value is not None:
            array = array * self._along(self._of(self.value).means, self.value)
        array = np.where(self.holds, array, 0.0)
        kept = [axis for axis in range(dimensions) if self.group.shape[axis] > 1 or self.axes[axis] == along]
        array = array.sum(
            axis=tuple(axis - dimensions for axis in range(dimensions) if axis not in kept), keepdims=True
        )
        group, width = self.group, 1
        if along is not None:
            width = self._of(along).pieces
            group = group * width + self._along(np.arange(width), along)
        return array, np.broadcast_to(group, array.shape[array.ndim - dimensions :]).ravel(), width

    def linear(self, group: int) -> Linear:
        """Return the linear form of one group."""
        shape = tuple(column.pieces for column in self.columns)
        weights = np.broadcast_to(self.holds & (self.group == group), shape).astype(np.float64)
        if self.value is not None:
            weights = weights * self._along(self.columns[self.axes.index(self.value)].means, self.value)
        for axis, column in enumerate(self.columns):
            weights = column.to_cells(weights, axis=axis)
        return Linear(self.axes, weights)

    def _spread(self, counts: Weights) -> Weights:
        """Divide the counts of cells among their pieces."""
        for place, axis in enumerate(self.axes):
            column = self._of(axis)
            if column.pieces > column.attribute.size or (column.share != 1).any():
                counts = np.take(counts, column.cell, axis=place - len(self.axes))
                counts = counts * self._along(column.share, axis)
        return counts

    def _of(self, axis: int) -> Column | Varied:
        return self.varied.get(axis) or self.columns[self.axes.index(axis)]

    def _along(self, values: npt.NDArray[Any], column: int) -> npt.NDArray[Any]:
        """Shape an array over a column's pieces, maybe of several models, so that it broadcasts over all columns."""
        shape = [1] * len(self.axes)
        shape[self.axes.index(column)] = values.shape[-1]
        return values.reshape(*values.shape[:-1], *shape)


class Prepared:
    """A query made ready for a universe. It is evaluated on as many models as needed, with the same groups in the same order."""

    def __init__(self, query: Query, universe: Universe) -> None:
        self.query = query
        self._universe = universe
        self._columns: dict[int, Column] = {}
        self._forms: dict[Aggregate, Form] = {}
        self.keys: tuple[Keys, ...] = tuple(self.column(key.term.column).keys(key.term) for key in query.keys)
        self.shape = tuple(len(keys.values) for keys in self.keys)
        self.groups = math.prod(self.shape)
        if self.groups > MOST_GROUPS:
            raise UsageError(
                f"the question has {self.groups:,} groups, and at most {MOST_GROUPS:,} are possible; group by fewer columns, or by wider bins"
            )

    def form(self, aggregate: Aggregate) -> Form:
        """Return the linear forms of the rows that an aggregate is about, or, for a sum or mean, of the sum of its column."""
        if aggregate not in self._forms:
            self._forms[aggregate] = self._form(aggregate)
        return self._forms[aggregate]

    def rows(self, aggregate: Aggregate) -> Form:
        """Return the linear forms of the number of rows that an aggregate is about."""
        if isinstance(aggregate, Count):
            return self.form(aggregate)
        return self.form(Count(All((aggregate.where, _present(aggregate.column)))))

    def evaluate(self, marginal: Marginal) -> dict[Number, Weights]:
        """Return all numbers of the query, each with one entry for every group; not a number where there is none."""
        known = _remembered(marginal)
        return {number: self._number(number, known) for number in self.query.numbers()}

    def is_moment(self, column: int) -> bool:
        """Return whether a column's quantiles are places of days or moments."""
        return self.column(column).is_moment

    def moments(self, column: int, places: Weights) -> npt.NDArray[np.datetime64]:
        """Return places of days or moments as such; not a time where there is none."""
        spread = self.column(column).spread
        if spread is None:
            raise UsageError("this column has no days or moments; show its numbers")
        missing = np.isnan(places)
        found = spread.value(np.where(missing, 0, places).astype(np.int64)).astype("datetime64[s]")
        found[missing] = np.datetime64("NaT")
        return found

    def _number(self, number: Number, marginal: Marginal) -> Weights:
        return combined(number, lambda each: self.aggregate(each, marginal), groups=self.groups)

    def aggregate(self, aggregate: Aggregate, marginal: Marginal) -> Weights:
        """Return an aggregate of each group."""
        match aggregate:
            case Count() | Sum():
                return self.form(aggregate).totals(marginal)
            case Mean():
                return mean_of(self.form(aggregate).totals(marginal), self.rows(aggregate).totals(marginal))
        return self._quantile(aggregate, marginal)

    def _quantile(self, number: Quantile, marginal: Marginal) -> Weights:
        """Return a quantile of each group: a number, or the place of a day or moment."""
        masses, shares = self.masses(number, marginal), np.full(self.groups, number.share)
        if masses.ndim == 2:  # of one model
            return quantiles(self.column(number.column), masses, shares)
        columns = self.on_models(number.column, models=len(masses))
        return np.stack([quantiles(column, each, shares) for column, each in zip(columns, masses, strict=True)])

    def masses(self, number: Quantile, marginal: Marginal) -> Weights:
        """Return the rows of each group in each piece of a quantile's column, from the smallest values to the largest."""
        return self.rows(number).totals(marginal, along=number.column)[..., self.column(number.column).ascending]

    def on_models(self, column: int, *, models: int) -> Sequence[Column]:
        """Return a column as each of several models distributes its values."""
        return [self.column(column)] * models

    def _form(self, aggregate: Aggregate) -> Form:
        conditions = [self.query.where, aggregate.where]
        value = aggregate.column if isinstance(aggregate, Sum | Mean) else None
        if not isinstance(aggregate, Count):
            conditions.append(_present(aggregate.column))
        concerned = {term.column for condition in conditions for term in terms(condition)}
        concerned |= {key.term.column for key in self.query.keys}
        axes = tuple(sorted(concerned))
        columns = tuple(map(self.column, axes))
        self._refuse_too_many(axes, columns)
        truth, group = self._truth(All(tuple(conditions)), axes), self._group(axes)
        return Form(axes, tuple(map(self.seen, axes)), truth == 2, group, self.groups, value)

    def _group(self, axes: Axes) -> npt.NDArray[np.int64]:
        """Return the group of each combination of pieces, broadcast over the axes."""
        group = np.zeros([1] * len(axes), dtype=np.int64)
        for key, keys in zip(self.query.keys, self.keys, strict=True):
            group = group * len(keys.values) + self.along(keys.of_piece, axes, key.term.column)
        return group

    @cached_property
    def possible(self) -> npt.NDArray[np.bool_]:
        """Which groups can have rows, by `where` and by what groups are: a condition on a key excludes groups. Without keys, the one group can."""
        if not self.query.keys:
            return np.ones(1, dtype=np.bool_)
        concerned = {term.column for term in terms(self.query.where)} | {key.term.column for key in self.query.keys}
        axes = tuple(sorted(concerned))
        group, holds = self._group(axes), self._truth(self.query.where, axes) == 2
        others = tuple(axis for axis, size in enumerate(group.shape) if size == 1)
        found = np.zeros(self.groups, dtype=np.bool_)
        found[group[np.broadcast_to(holds.any(axis=others, keepdims=True), group.shape)]] = True
        return found

    def along(self, values: npt.NDArray[Any], axes: Axes, column: int) -> npt.NDArray[Any]:
        """Shape an array over a column's pieces so that it broadcasts over some columns."""
        shape = [1] * len(axes)
        shape[axes.index(column)] = len(values)
        return values.reshape(shape)

    def seen(self, column: int) -> Column:
        """Return a column as forms see it."""
        return self.column(column)

    def _refuse_too_many(self, axes: Axes, columns: Sequence[Column]) -> None:
        cells = math.prod(max(column.pieces, column.attribute.size) for column in columns)
        if cells > MOST_CELLS:
            named = ", ".join(
                f"{self._universe.names[axis]} ({column.pieces:,})" for axis, column in zip(axes, columns, strict=True)
            )
            raise UsageError(
                f"the question joins {cells:,} cells of {named}, and at most {MOST_CELLS:,} are possible; use fewer of these columns at once"
            )

    def _truth(self, condition: Condition, axes: Axes) -> Truths:
        """Evaluate a condition on all pieces: 0 for false, 1 for unknown, 2 for true."""
        match condition:
            case Always(truth):
                return np.full([1] * len(axes), 2 if truth else 0, dtype=np.int8)
            case Not(part):
                return np.int8(2) - self._truth(part, axes)
            case IsTrue(part):
                return np.where(self._truth(part, axes) == 2, np.int8(2), np.int8(0))
            case All(parts) | AnyOf(parts):
                combine = np.minimum if isinstance(condition, All) else np.maximum
                found = np.full([1] * len(axes), 2 if isinstance(condition, All) else 0, dtype=np.int8)
                for part in parts:
                    found = combine(found, self._truth(part, axes))
                return found
            case IsNull(term):
                null = self.column(term.column).null
                return self.along(np.where(null, np.int8(2), np.int8(0)), axes, term.column)
        column = condition.term.column
        return self.along(self.column(column).truths(condition), axes, column)

    def column(self, column: int) -> Column:
        """Return a column as the query sees it."""
        if column not in self._columns:
            attribute = self._universe.attributes[self._universe.names[column]]
            self._columns[column] = Column.of(attribute, self.parts(column))
        return self._columns[column]

    def parts(self, column: int) -> list[Any]:
        """Return the elementary conditions and keys that concern a column."""
        return [part for part in self._parts if getattr(part, "term", part).column == column]

    @cached_property
    def _parts(self) -> list[Any]:
        """All elementary conditions and keys of the query: a column is cut once, for all of them."""
        inner = [each for number in self.query.numbers() for each in aggregates(number)]
        conditions = [self.query.where, *(each.where for each in inner)]
        elementary = [part for condition in conditions for part in leaves(condition) if not isinstance(part, Always)]
        return [*elementary, *(key.term for key in self.query.keys)]


def evaluate(query: Query, universe: Universe, marginal: Marginal) -> dict[Number, Weights]:
    """Return all numbers of a query, each with one entry for every group."""
    return Prepared(query, universe).evaluate(marginal)


def combined(
    number: Number,
    of: Callable[[Aggregate], Weights],
    *,
    groups: int,
    overall: Callable[[Aggregate], Weights] | None = None,
) -> Weights:
    """Return a number of each group, given the value of every aggregate that it is computed from.

    Args:
        number: The number.
        of: The values of an aggregate, one for every group.
        groups: The number of groups.
        overall: The values whose sum over all groups is taken, if they are others.
    """
    match number:
        case Constant(value):
            return np.full(groups, value)
        case Arithmetic(operator, left, right):
            one, other = (combined(side, of, groups=groups, overall=overall) for side in (left, right))
            return _arithmetic(operator, one, other)
        case Overall(inner):
            total = combined(inner, overall or of, groups=groups).sum(axis=-1, keepdims=True)
            return np.repeat(total, groups, axis=-1)
    return of(number)


def mean_of(sums: Weights, rows: Weights) -> Weights:
    """Return means; not a number where there are no rows."""
    return np.asarray(np.divide(sums, rows, out=np.full(rows.shape, np.nan), where=rows > LEAST_ROWS))


def quantiles(column: Column, masses: Weights, shares: Weights, *, slopes: Weights | None = None) -> Weights:
    """Return the value of a column, or the place of a day or moment, that a share of each group's masses is below.

    Args:
        column: The column.
        masses: The rows of each group in each piece of the column, from the smallest values to the largest.
        shares: The wanted share of each group.
        slopes: How the density of each group changes across each piece, if it is not that of the column: see `tilt`.
    """
    found, ends = np.full(len(masses), np.nan), np.cumsum(masses, axis=1)
    some = np.flatnonzero(ends[:, -1] > LEAST_ROWS) if ends.size else np.zeros(0, dtype=np.intp)
    wanted = shares[some] * ends[some, -1]
    at = np.minimum((ends[some] < wanted[:, None]).sum(axis=1), masses.shape[1] - 1)
    held = masses[some, at]
    inside = np.clip((wanted - (ends[some, at] - held)) / np.maximum(held, TINY), 0.0, 1.0)
    if slopes is not None:
        inside = share_untilted(inside, slopes[some, at])
    found[some] = column.within(column.ascending[at], share=inside)
    return found


def _present(column: int) -> Condition:
    return Not(IsNull(Term(column)))


def _arithmetic(operator: str, left: Weights, right: Weights) -> Weights:
    if operator == "/":
        found = np.full(np.broadcast_shapes(left.shape, right.shape), np.nan)
        return np.asarray(np.divide(left, right, out=found, where=np.abs(right) > LEAST_ROWS))
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.asarray({"+": np.add, "-": np.subtract, "*": np.multiply}[operator](left, right))
    return np.where(np.isfinite(found), found, np.nan)  # too large a number is null, like a division by zero


def _remembered(marginal: Marginal) -> Marginal:
    known: dict[Axes, Weights] = {}

    def remembered(axes: Axes) -> Weights:
        if axes not in known:
            known[axes] = marginal(axes)
        return known[axes]

    return remembered
