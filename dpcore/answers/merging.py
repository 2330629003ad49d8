"""Merge the cells that a query does not distinguish, so that it is evaluated on a handful of classes instead of thousands of cells."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.answers.calendar import OF_WEEK
from dpcore.answers.cells import Column
from dpcore.answers.evaluate import Form, Prepared
from dpcore.answers.query import Count, IsNull, Part, Query, Term, aggregates
from dpcore.answers.varied import Varied
from dpcore.marginals.resolutions import Groups
from dpcore.marginals.workload import Axes
from dpcore.models import FactoredModel, Model
from dpcore.models.factored.merged import count_classes
from dpcore.models.model import Weights
from dpcore.universe import Universe
from dpcore.universe.spread import Spread

Merged: TypeAlias = Callable[[Axes, Sequence[Groups]], Weights]
"""Returns the expected counts in every combination of classes of cells of some columns, by one model or by several."""


class Merging(Prepared):
    """A query whose forms have a class of cells wherever a plain `Prepared` has the cells. All its numbers are the same.

    Two cells of a column are in one class if every condition and key of the query treats them alike, and no number needs their values.
    """

    def __init__(self, query: Query, universe: Universe) -> None:
        super().__init__(query, universe)
        inner = [each for number in query.numbers() for each in aggregates(number)]
        self._valued = {each.column for each in inner if not isinstance(each, Count)}
        self.kept: dict[tuple[Merged, Axes], Weights] = {}  # marginals that were computed for this query
        self._known: dict[int, tuple[Groups, npt.NDArray[np.intp], Column]] = {}
        self._told: dict[int, npt.NDArray[np.int64]] = {}
        self._varied: Mapping[int, Varied] = {}

    def varied(self, spreads: Mapping[int, Sequence[Spread | None]]) -> "Merging":
        """Return the same query for several models at once, each of which distributes the values of some columns in its own way.

        Args:
            spreads: The spread of each column on each model; None for the usual one.
        """
        _ = self._all_forms  # are made here, so that all copies have the same
        varied = {column: self._on_each(column, each) for column, each in spreads.items()}
        forms = {aggregate: replace(form, varied=varied) for aggregate, form in self._forms.items()}
        made = copy(self)
        vars(made).update(_varied=varied, _forms=forms)
        return made

    def _on_each(self, column: int, spreads: Sequence[Spread | None]) -> Varied:
        whole, (_, kept, seen) = self.column(column), self._merged(column)
        made = [seen if each is None else _seen(whole.spread_by(each), kept, seen.cell) for each in spreads]
        return Varied(tuple(made))

    def on_models(self, column: int, *, models: int) -> Sequence[Column]:
        """Return a column as each of several models distributes its values."""
        return self._varied[column].each if column in self._varied else super().on_models(column, models=models)

    def kept_pieces(self, column: int) -> npt.NDArray[np.intp]:
        """Return which pieces of a column its forms have, in their order."""
        return self._merged(column)[1]

    def classes(self, column: int) -> Groups:
        """Return the class of each cell of a column."""
        return self._merged(column)[0]

    def marginal(self, model: Merged, axes: Axes) -> Weights:
        """Return a model's counts in every combination of classes of some columns. Where no number of the query counts, it may be zero."""
        if (model, axes) not in self.kept:
            classes = [self.classes(axis) for axis in axes]
            needed = self._needed(axes)
            counts = model(axes, [_only(each, some) for each, some in zip(classes, needed, strict=True)])
            models = counts.shape[: counts.ndim - len(axes)]
            found = np.zeros((*models, *map(count_classes, classes)))
            places: tuple[Any, ...] = np.ix_(*needed)
            found[(..., *places)] = counts
            self.kept[model, axes] = found
        return self.kept[model, axes]

    def _needed(self, axes: Axes) -> list[npt.NDArray[np.intp]]:
        """Return, for each of some columns, the classes in which a number of the query counts rows; at least one."""
        found = [np.zeros(count_classes(self.classes(axis)), dtype=np.bool_) for axis in axes]
        for form in self._all_forms:
            if form.axes == axes:
                for place, column in enumerate(form.columns):
                    others = tuple(other for other in range(len(axes)) if other != place)
                    found[place][column.cell[np.broadcast_to(form.holds.any(axis=others), column.pieces)]] = True
        for each in found:
            each[0] |= not each.any()
        return [np.flatnonzero(each) for each in found]

    @cached_property
    def _all_forms(self) -> list[Form]:
        inner = [each for number in self.query.numbers() for each in aggregates(number)]
        return [form for each in inner for form in (self.form(each), self.rows(each))]

    @property
    def cells(self) -> int:
        """The most cells, or pieces of cells, that one of its forms has on one model."""
        return max((math.prod(column.pieces for column in form.columns) for form in self._all_forms), default=1)

    def is_cut(self, column: int) -> bool:
        """Return whether the query treats values within one cell of a column differently.

        A cell with several pieces need not be cut. Of whole numbers, `age >= 50` makes a piece of the 50, and both pieces of its bin count.
        """
        return bool(len(self.cut_cells(column)))

    def cut_cells(self, column: int) -> npt.NDArray[np.intp]:
        """Return the cells of a column within which the query treats values differently."""
        found = self.column(column)
        if found.pieces == found.attribute.size:
            return np.zeros(0, dtype=np.intp)
        return np.flatnonzero(_cut_cells(found, self.results(column)))

    def along(self, values: npt.NDArray[Any], axes: Axes, column: int) -> npt.NDArray[Any]:
        """Shape an array over a column's pieces likewise, with one piece of each class."""
        return super().along(values[self._merged(column)[1]], axes, column)

    def seen(self, column: int) -> Column:
        """Return a column with classes as its cells."""
        return self._merged(column)[2]

    def _merged(self, column: int) -> tuple[Groups, npt.NDArray[np.intp], Column]:
        """Return the classes of a column's cells, the pieces that are kept, and the column with only these."""
        if column not in self._known:
            found = self.column(column)
            classes = np.arange(found.attribute.size) if column in self._valued else self._alike(found, column)
            # Of a class, only the first cell is kept, with all pieces that it is cut into.
            _, first = np.unique(classes, return_index=True)
            kept = np.flatnonzero(np.isin(found.cell, first))
            self._known[column] = classes, kept, _seen(found, kept, classes[found.cell[kept]])
        return self._known[column]

    def _alike(self, found: Column, column: int) -> Groups:
        """Number the classes of cells in the order of their first cells. A cell that is cut is a class of its own."""
        results = self.results(column)
        own = np.where(_cut_cells(found, results), np.arange(found.attribute.size), -1)
        signature = np.column_stack([results[_first_pieces(found)], own])
        _, start, inverse = np.unique(signature, axis=0, return_index=True, return_inverse=True)
        in_order = np.empty(len(start), dtype=np.intp)
        in_order[np.argsort(start)] = np.arange(len(start))
        return in_order[inverse.ravel()]

    def results(self, column: int) -> npt.NDArray[np.int64]:
        """Return what every condition and key of the query gives for each piece of a column."""
        if column not in self._told:
            self._told[column] = self._told_by_parts(self.column(column), column)
        return self._told[column]

    def is_of_week(self, column: int) -> bool:
        """Return whether the query distinguishes values of a column by their times of the week only, such as hours."""
        terms = [getattr(part, "term", part) for part in self.parts(column)]
        return all(isinstance(each.transform, Part) and each.transform.unit in OF_WEEK for each in terms)

    def _told_by_parts(self, found: Column, column: int) -> npt.NDArray[np.int64]:
        results = [found.null.astype(np.int64)]
        for part in self.parts(column):
            match part:
                case IsNull():
                    continue
                case Term():
                    results.append(found.keys(part).of_piece)
                case _:
                    results.append(found.truths(part).astype(np.int64))
        return np.stack(results, axis=1)


def _seen(found: Column, kept: npt.NDArray[np.intp], cells: npt.NDArray[np.int64]) -> Column:
    """Return a column with only some of its pieces, and with classes as its cells."""
    return replace(found, cell=cells, share=found.share[kept], start=found.start[kept], null=found.null[kept])


def _first_pieces(found: Column) -> npt.NDArray[np.intp]:
    """Return the first piece of each cell of a column."""
    first = np.full(found.attribute.size, -1, dtype=np.intp)
    first[found.cell[::-1]] = np.arange(found.pieces)[::-1]
    return first


def _cut_cells(found: Column, results: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return for each cell whether two of its pieces have different results."""
    differs = (results != results[_first_pieces(found)[found.cell]]).any(axis=1)
    cut = np.zeros(found.attribute.size, dtype=np.bool_)
    cut[found.cell[differs]] = True
    return cut


def _only(classes: Groups, some: npt.NDArray[np.intp]) -> Groups:
    """Number some classes from 0, and leave the others out."""
    renumbered = np.full(count_classes(classes), -1, dtype=np.intp)
    renumbered[some] = np.arange(len(some))
    return renumbered[classes]


def stacked(models: Iterable[Model], axes: Axes, classes: Sequence[Groups]) -> Weights:
    """Return the counts of several models of one kind in every combination of classes. The first dimension is the models'.

    A factored model never computes the marginal cell by cell. Even a small one may need large arrays, if its columns are far apart.
    """
    found, merged = [], False
    for model in models:
        merged = isinstance(model, FactoredModel)
        found.append(model.merged(axes, classes) if isinstance(model, FactoredModel) else model.marginal(axes))
    return np.stack(found) if merged else summed(np.stack(found), classes)


def summed(array: Weights, classes: Sequence[Groups]) -> Weights:
    """Sum an array by classes of the cells of each of its last dimensions. Cells of class -1 are left out.

    >>> summed(np.array([[1.0, 2.0, 3.0]]), [np.array([0]), np.array([0, 1, 0])]).tolist()
    [[4.0, 2.0]]
    """
    for place, each in enumerate(classes, start=array.ndim - len(classes)):
        if not np.array_equal(each, np.arange(len(each))):
            counted = np.flatnonzero(each >= 0)
            chosen = np.zeros((len(each), count_classes(each)))
            chosen[counted, each[counted]] = 1.0
            array = np.moveaxis(np.tensordot(array, chosen, axes=(place, 0)), -1, place)
    return array
