"""Evaluate a query on any model: every number is a function of a few linear forms over the cells of some columns.

A form is evidence. Each condition on a column is a weight for each of its cells, each group key sends cells to groups, and a model multiplies
its distribution by these (`models.projection`). So a count needs no joint table of its columns, and other numbers only that of the keys and
of their own column.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from dpcore.answers.boxes import Box, Pieces, boxes_of, weights_of
from dpcore.answers.calendar import OF_WEEK
from dpcore.answers.cells import Column, Indices, Keys
from dpcore.answers.query import (
    Aggregate,
    All,
    Arithmetic,
    Condition,
    Constant,
    Count,
    IsNull,
    Mean,
    Not,
    Number,
    Overall,
    Part,
    Quantile,
    Query,
    Sum,
    Term,
    terms,
)
from dpcore.answers.tilt import share_untilted
from dpcore.errors import UsageError
from dpcore.marginals.resolutions import Groups
from dpcore.marginals.workload import Axes
from dpcore.models.model import Matrix, Weights
from dpcore.models.projection import contracted
from dpcore.universe import Universe
from dpcore.universe.spread import Spread

Projection: TypeAlias = Callable[[Axes, Sequence[Matrix]], Weights]
"""Returns the expected counts of some columns, ascending, multiplied along each by a matrix with a row for each cell: see `projected`.

It may do so for several models at once. Then its arrays, and all that is computed from them, have a first dimension for the models, and so
may its matrices.
"""

MOST_CELLS = 1 << 22
"""The most pairs of a group and a piece of the column whose values a number needs."""

MOST_GROUPS = 100_000
LEAST_ROWS = 1e-9
"""With fewer expected rows, there is no mean and no quantile."""


@dataclass(frozen=True, eq=False)
class Form:
    """The linear forms of an aggregate, one for each group: the rows that satisfy all conditions, or the sum of a column over them.

    Attributes:
        axes: The columns that it concerns, ascending.
        columns: These columns, by their positions.
        varied: Those that several models distribute differently within cells, as each of them does.
        boxes: Disjoint boxes, in which rows count.
        offsets: For each column with keys, what each of its pieces adds to the number of the group.
        groups: The number of groups.
        value: The column that is summed; None for a number of rows.
    """

    axes: Axes
    columns: Mapping[int, Column]
    varied: Mapping[int, Sequence[Column]]
    boxes: tuple[Box, ...]
    offsets: Mapping[int, Indices]
    groups: int
    value: int | None
    _totals: WeakKeyDictionary[Projection, dict[int | None, Weights]] = field(default_factory=WeakKeyDictionary)

    @cached_property
    def possible(self) -> npt.NDArray[np.bool_]:
        """Whether each group can have a row at all, by the conditions and the declared values."""
        possible = np.zeros(self.groups, dtype=np.bool_)
        for box in self.boxes:
            offsets = [np.unique(own[box[axis]] if axis in box else own) for axis, own in self.offsets.items()]
            possible[_sums(offsets)] = True
        return possible

    def totals(self, project: Projection, *, along: int | None = None) -> Weights:
        """Return the value of every group's form; with `along`, divided among the pieces of that column."""
        return np.asarray(self.with_rows(project, along=along)[0])

    def with_rows(self, project: Projection, *, along: int | None = None) -> Weights:
        """Return the same values and, after sums, also the number of rows that are summed: both are found in one pass."""
        totals = self._totals.setdefault(project, {})
        if along not in totals:
            array, group, piece = self._joint(project, along)
            width = 1 if along is None else self.columns[along].pieces
            models = array.shape[: array.ndim - group.ndim]
            flat = np.zeros((*models, self.groups * width))
            flat[..., (group * width + piece).ravel()] = array.reshape((*models, -1))
            totals[along] = flat if along is None else flat.reshape(*models, self.groups, width)
        return totals[along]

    def entries(self, project: Projection, *, along: int) -> tuple[Indices, Indices, Weights]:
        """Return the totals of one model along a column that are not zero, each with its group and its piece: a few of many."""
        array, group, piece = self._joint(project, along)
        amounts = array[0].ravel()
        some = np.flatnonzero(amounts)
        group, piece = (np.broadcast_to(numbers, group.shape).ravel()[some] for numbers in (group, piece))
        order = np.lexsort((piece, group))
        return group[order], piece[order], amounts[some][order]

    def _joint(self, project: Projection, along: int | None) -> tuple[Weights, Indices, Indices]:
        """Return arrays over the labels of the columns with keys and of a column, the group of each entry, and its piece of that column.

        There is one array of rows, or one of sums and then one of rows.
        """
        labels = {axis: np.unique(offsets, return_inverse=True) for axis, offsets in self.offsets.items()}
        pieces: Indices = np.zeros(1, dtype=np.int64)
        if along is not None:
            pieces = np.arange(self.columns[along].pieces)
            labels[along] = self.offsets.get(along, np.zeros_like(pieces)), pieces
        core = sorted(labels)
        shape = tuple(len(labels[axis][0]) for axis in core)
        group = _sums([labels[axis][0] for axis in core])
        piece = pieces if along is None else pieces.reshape([-1 if axis == along else 1 for axis in core])
        models = np.shape(project((), ()))
        valued = [] if self.value is None else [self.value]
        total: Weights = np.zeros((1 + len(valued), *models, *shape))
        for box in self.boxes:
            axes = tuple(sorted({*core, *box, *valued}))
            factors = [self._factor(axis, box.get(axis), labels.get(axis)) for axis in axes]
            array = project(axes, [matrix for matrix, _ in factors])
            for place, (_, divided) in enumerate(factors, start=len(models)):
                array = array if divided is None else divided.along(array, place)
            both = np.split(array, 2, axis=len(models) + axes.index(self.value)) if self.value is not None else [array]
            total = total + np.stack(both).reshape(total.shape)
        return total, group, piece

    def _factor(
        self, axis: int, allowed: Pieces | None, labels: tuple[Indices, Indices] | None
    ) -> "tuple[Matrix, _Divided | None]":
        """Return what a column's cells are multiplied by. If it has about as many labels as cells, the model keeps them, to be divided afterwards.

        The column that is summed has all labels twice: for its sums, and for its rows.
        """
        column = self.columns[axis]
        size, cell = column.attribute.size, column.cell
        own = self.varied.get(axis, [column])
        shares = np.stack([each.share for each in own]) if axis in self.varied else column.share
        weights = shares if allowed is None else np.where(allowed, shares, 0.0)
        count, label = (1, np.zeros(column.pieces, dtype=np.int64)) if labels is None else (len(labels[0]), labels[1])
        if axis == self.value:
            means = np.stack([each.means for each in own]) if axis in self.varied else column.means
            weights = np.concatenate([weights * means, weights], axis=-1)
            cell, label, count = np.tile(cell, 2), np.concatenate([label, count + label]), 2 * count
        if 2 * count > size:
            return None, _Divided(cell, label, count, weights)
        matrix = _placed(weights, cell * count + label, size * count)
        return matrix.reshape(*weights.shape[:-1], size, count), None

    def weights(self) -> Weights:
        """Return the weight of each cell of the columns, for a form without groups and values."""
        sizes = [self.columns[axis].attribute.size for axis in self.axes]
        weights = np.zeros(sizes)
        for box in self.boxes:
            factors = [
                weights_of(self.columns[axis], box[axis]) if axis in box else np.ones(size)
                for axis, size in zip(self.axes, sizes, strict=True)
            ]
            weights = weights + math.prod(np.ix_(*factors))
        return weights


@dataclass(frozen=True, eq=False)
class _Divided:
    """The pieces of a column's cells, their labels and weights: a model's cells are divided among the labels."""

    cell: Indices
    label: Indices
    count: int
    weights: Weights

    def along(self, array: Weights, place: int) -> Weights:
        """Divide a dimension of cells."""
        last = np.moveaxis(array, place, -1)[..., self.cell]
        weights = self.weights
        if weights.ndim == 2:
            weights = weights.reshape(len(weights), *[1] * (last.ndim - 2), -1)
        last = last * weights
        if self.count < len(self.label):
            rest = math.prod(last.shape[:-1])
            at = np.arange(rest)[:, None] * self.count + self.label
            last = _placed(last.ravel(), at.ravel(), rest * self.count).reshape(*last.shape[:-1], self.count)
        elif not np.array_equal(self.label, np.arange(self.count)):
            last = last[..., np.argsort(self.label)]
        return np.moveaxis(last, -1, place)


def _sums(numbers: Sequence[Indices]) -> Indices:
    """Return the sum of every combination of numbers, one of each array."""
    return np.asarray(sum(np.ix_(*numbers)), dtype=np.int64)


def _placed(values: Weights, at: Indices, count: int) -> Weights:
    """Sum values at places, for each model."""
    if values.ndim == 1:
        return np.bincount(at, weights=values, minlength=count).astype(np.float64)
    return np.stack([_placed(own, at, count) for own in values])


class Prepared:
    """A query made ready for a universe. It is evaluated on as many models as needed, with the same groups in the same order."""

    def __init__(self, query: Query, universe: Universe) -> None:
        self.query = query
        self._universe = universe
        self._columns: dict[int, Column] = {}
        self._forms: dict[Aggregate, Form] = {}
        self._boxes: dict[Condition, tuple[Box, ...]] = {}
        self._results: dict[int, npt.NDArray[np.int64]] = {}
        self._cut_cells: dict[int, npt.NDArray[np.intp]] = {}
        self._classes: dict[int, Groups] = {}
        self._varied: Mapping[int, Sequence[Column]] = {}
        self.keys: tuple[Keys, ...] = tuple(self.column(key.term.column).keys(key.term) for key in query.keys)
        self.shape = tuple(len(keys.values) for keys in self.keys)
        self.groups = math.prod(self.shape)
        if self.groups > MOST_GROUPS:
            raise UsageError(
                f"the question has {self.groups:,} groups, and at most {MOST_GROUPS:,} are possible; group by fewer columns, or by wider bins"
            )
        if self.cells > MOST_CELLS:
            raise UsageError(
                f"the question divides {self.groups:,} groups by the values of a number, which gives {self.cells:,} parts, and at most "
                f"{MOST_CELLS:,} are possible; group by fewer columns, or by wider bins"
            )

    @cached_property
    def cells(self) -> int:
        """The most numbers that are computed for an aggregate on one model: one for each group, and maybe for each piece of its column."""
        return self.groups * max((self.column(column).pieces for column in self._valued), default=1)

    @cached_property
    def _valued(self) -> set[int]:
        """The columns whose values are needed."""
        return {part.column for part in self.query.aggregates() if not isinstance(part, Count)}

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

    def evaluate(self, project: Projection) -> dict[Number, Weights]:
        """Return all numbers of the query, each with one entry for every group; not a number where there is none."""
        return {
            number: combined(number, lambda part: self.aggregate(part, project), groups=self.groups)
            for number in self.query.numbers()
        }

    def aggregate(self, aggregate: Aggregate, project: Projection) -> Weights:
        """Return an aggregate of each group."""
        match aggregate:
            case Count() | Sum():
                return self.form(aggregate).totals(project)
            case Mean():
                return mean_of(*self.form(aggregate).with_rows(project))
        return self._quantile(aggregate, project)

    def _quantile(self, number: Quantile, project: Projection) -> Weights:
        """Return a quantile of each group: a number, or the place of a day or moment."""
        masses, shares = self.masses(number, project), np.full(self.groups, number.share)
        if masses.ndim == 2:  # of one model
            return quantiles(self.column(number.column), masses, shares)
        columns = self.on_models(number.column, models=len(masses))
        return np.stack([quantiles(column, own, shares) for column, own in zip(columns, masses, strict=True)])

    def masses(self, number: Sum | Mean | Quantile, project: Projection) -> Weights:
        """Return the rows of each group in each piece of a number's column, from the smallest values to the largest."""
        return self.rows(number).totals(project, along=number.column)[..., self.column(number.column).ascending]

    def on_models(self, column: int, *, models: int) -> Sequence[Column]:
        """Return a column as each of several models distributes its values."""
        return self._varied.get(column) or [self.column(column)] * models

    def varied(self, spreads: Mapping[int, Sequence[Spread | None]]) -> "Prepared":
        """Return the same query for several models at once, each of which distributes the values of some columns in its own way.

        Args:
            spreads: The spread of each column on each model; None for the usual one.
        """
        varied = copy(self)
        varied._forms = {}  # noqa: SLF001  its own copy
        varied._varied = {  # noqa: SLF001
            column: [self.column(column) if own is None else self.column(column).spread_by(own) for own in by_model]
            for column, by_model in spreads.items()
        }
        return varied

    def _form(self, aggregate: Aggregate) -> Form:
        conditions = [self.query.where, aggregate.where]
        value = aggregate.column if isinstance(aggregate, Sum | Mean) else None
        if not isinstance(aggregate, Count):
            conditions.append(_present(aggregate.column))
        concerned = {term.column for condition in conditions for term in terms(condition)}
        offsets: dict[int, Indices] = {}
        stride = self.groups
        for key, keys in zip(self.query.keys, self.keys, strict=True):
            stride //= len(keys.values)
            column = key.term.column
            offsets[column] = offsets.get(column, 0) + stride * keys.of_piece
        axes = tuple(sorted(concerned | set(offsets)))
        columns = {axis: self.column(axis) for axis in axes}
        both = All(tuple(conditions))
        if both not in self._boxes:
            self._boxes[both] = boxes_of(both, self.column)
        return Form(axes, columns, self._varied, self._boxes[both], offsets, self.groups, value)

    @cached_property
    def possible(self) -> npt.NDArray[np.bool_]:
        """Which groups can have rows, by `where` and by what groups are: a condition on a key excludes groups. Without keys, the one group can."""
        return self.form(Count()).possible if self.query.keys else np.ones(1, dtype=np.bool_)

    def column(self, column: int) -> Column:
        """Return a column as the query sees it."""
        if column not in self._columns:
            attribute = self._universe.attributes[self._universe.names[column]]
            self._columns[column] = Column.of(attribute, self.query.parts(column))
        return self._columns[column]

    def classes(self, column: int) -> Groups:
        """Number the cells of a column, in the order of their first cells: those that the query treats alike have the same number.

        A cell that is cut has a number of its own, and so has each cell of a column whose values a number needs.
        """
        if column not in self._classes:
            self._classes[column] = self._found_classes(column)
        return self._classes[column]

    def _found_classes(self, column: int) -> Groups:
        seen, cells = self.column(column), np.arange(self.column(column).attribute.size)
        if column in self._valued:
            return cells
        own = np.full(len(cells), -1)
        own[self.cut_cells(column)] = self.cut_cells(column)
        signature = np.column_stack([self.results(column)[_first_pieces(seen)], own])
        _, start, inverse = np.unique(signature, axis=0, return_index=True, return_inverse=True)
        in_order = np.empty(len(start), dtype=np.intp)
        in_order[np.argsort(start)] = np.arange(len(start))
        return in_order[inverse.ravel()]

    def is_cut(self, column: int) -> bool:
        """Return whether the query treats values within one cell of a column differently.

        A cell with several pieces need not be cut. Of whole numbers, `age >= 50` makes a piece of the 50, and both pieces of its bin count.
        """
        return bool(len(self.cut_cells(column)))

    def cut_cells(self, column: int) -> npt.NDArray[np.intp]:
        """Return the cells of a column within which the query treats values differently."""
        if column not in self._cut_cells:
            seen, results = self.column(column), self.results(column)
            cut = (results != results[_first_pieces(seen)[seen.cell]]).any(axis=1)
            self._cut_cells[column] = np.unique(seen.cell[cut]).astype(np.intp)
        return self._cut_cells[column]

    def results(self, column: int) -> npt.NDArray[np.int64]:
        """Return what every condition and key of the query gives for each piece of a column."""
        if column not in self._results:
            seen = self.column(column)
            parts = [part for part in self.query.parts(column) if not isinstance(part, IsNull)]
            results = [seen.keys(part).of_piece if isinstance(part, Term) else seen.truths(part) for part in parts]
            self._results[column] = np.stack([seen.null, *results], axis=1).astype(np.int64)
        return self._results[column]

    def is_of_week(self, column: int) -> bool:
        """Return whether the query distinguishes values of a column by their times of the week only, such as hours."""
        asked = [getattr(part, "term", part) for part in self.query.parts(column)]
        return all(isinstance(term.transform, Part) and term.transform.unit in OF_WEEK for term in asked)


def _first_pieces(column: Column) -> Indices:
    """Return the first piece of each cell of a column."""
    first = np.full(column.attribute.size, -1, dtype=np.int64)
    first[column.cell[::-1]] = np.arange(column.pieces)[::-1]
    return first


def of_groups(array: Weights, columns: Axes, groups: Sequence[Groups]) -> Projection:
    """Return the projection of counts of merged cells, which a form must not tell apart.

    Args:
        array: The counts.
        columns: The column of each dimension.
        groups: For each column, the merged cell of every cell.
    """
    sizes = {column: len(merged) for column, merged in zip(columns, groups, strict=True)}
    first = {column: np.unique(merged, return_index=True)[1] for column, merged in zip(columns, groups, strict=True)}

    def project(axes: Axes, matrices: Sequence[Matrix]) -> Weights:
        others = tuple(place for place, column in enumerate(columns) if column not in axes)
        order = np.argsort([column for column in columns if column in axes]).astype(np.intp)
        summed = array.sum(axis=others).transpose(order)
        reduced = [
            matrix if matrix is None else matrix[first[axis]] for axis, matrix in zip(axes, matrices, strict=True)
        ]
        result = contracted(summed, reduced)
        for place, (axis, matrix) in enumerate(zip(axes, matrices, strict=True)):
            if matrix is None and len(first[axis]) < sizes[axis]:  # the first of merged cells stands for all of them
                merged, size = np.moveaxis(result, place, 0), sizes[axis]
                result = np.zeros((size, *merged.shape[1:]))
                result[first[axis]] = merged
                result = np.moveaxis(result, 0, place)
        return result

    return project


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
            sides = [combined(side, of, groups=groups, overall=overall) for side in (left, right)]
            return _arithmetic(operator, *sides)
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
        shares: The share of each group.
        slopes: How the density of each group changes across each piece, if it is not that of the column: see `tilt`.
    """
    values, ends = np.full(len(masses), np.nan), np.cumsum(masses, axis=1)
    some = np.flatnonzero(ends[:, -1] > LEAST_ROWS) if ends.size else np.zeros(0, dtype=np.intp)
    ranks = shares[some] * ends[some, -1]
    at = np.minimum((ends[some] < ranks[:, None]).sum(axis=1), masses.shape[1] - 1)
    held = masses[some, at]
    inside = np.clip((ranks - (ends[some, at] - held)) / np.maximum(held, 1e-300), 0.0, 1.0)
    if slopes is not None:
        inside = share_untilted(inside, slopes[some, at])
    values[some] = column.within(column.ascending[at], share=inside)
    return values


def _present(column: int) -> Condition:
    return Not(IsNull(Term(column)))


def _arithmetic(operator: str, left: Weights, right: Weights) -> Weights:
    """Return not a number for a division by zero, and for too large a number."""
    if operator == "/":
        right = np.where(np.abs(right) > LEAST_ROWS, right, 0.0)
    with np.errstate(all="ignore"):
        number = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[operator](left, right)
    return np.where(np.isfinite(number), number, np.nan)
