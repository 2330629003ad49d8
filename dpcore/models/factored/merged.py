"""Marginals by classes of cells: cells that a question does not distinguish are merged as soon as no clique needs them.

A marginal of four columns may have millions of cells, of which a question needs a few sums. As in `across`, the axes in between are summed
out clique by clique. But an array never has more than the classes of a column, once its cells no longer decide about other columns.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpcore.marginals.resolutions import Groups, Resolutions
from dpcore.marginals.workload import Axes
from dpcore.models.factored.across import LEAST_PROBABILITY, Across, Part
from dpcore.models.model import Weights


@dataclass
class _Array:
    """An array whose dimensions are columns, each at one of its versions, and classes of columns, as `columns + column`."""

    values: Weights
    labels: list[int]
    version: dict[int, int]

    def classed(self, column: int, classes: Groups, of: Resolutions, *, kept: int | None) -> None:
        """Replace a column's cells by their classes. If `kept` is a version of the column, keep that beside the classes."""
        place = self.labels.index(column)
        here, count = self.version[column], count_classes(classes)
        both = classes if kept is None else classes + count * of.groups(here, kept)
        size = count if kept is None else count * of.shape_of((kept,))[0]
        counted = np.flatnonzero(classes >= 0)
        chosen = np.zeros((len(both), size))
        chosen[counted, both[counted]] = 1.0
        summed = np.tensordot(self.values, chosen, axes=(place, 0))
        del self.labels[place]
        if kept is None:
            self.values, self.version = summed, {**self.version}
            self.labels.append(of.columns + column)
        else:
            self.values = summed.reshape(*summed.shape[:-1], size // count, count)
            self.version = {**self.version, column: kept}
            self.labels += [column, of.columns + column]

    def times(self, other: "_Array", of: Resolutions, *, needed: set[int]) -> None:
        """Multiply by an array over coarser versions, and sum out all columns that are not needed any more."""
        factor = other.values
        for place, label in enumerate(other.labels):
            if label < of.columns and other.version[label] != self.version[label]:
                factor = np.take(factor, of.groups(self.version[label], other.version[label]), axis=place)
        result = [label for label in self.labels if label >= of.columns or label in needed]
        result += [label for label in other.labels if label >= of.columns]
        # einsum knows no more than 52 labels, and a table may have more columns
        number = {label: at for at, label in enumerate(dict.fromkeys([*self.labels, *other.labels]))}
        one, another, both = ([number[label] for label in each] for each in (self.labels, other.labels, result))
        operands: list[Any] = [self.values, one, factor, another, both]
        self.values = np.einsum(*operands, optimize=True)
        self.labels = result

    def ordered(self, axes: Axes, of: Resolutions) -> None:
        """Sum to some axes, in their order, before all classes."""
        for axis in axes:
            column = of.column(axis)
            if self.version[column] != axis:
                groups, place = of.groups(self.version[column], axis), self.labels.index(column)
                chosen = np.zeros((len(groups), of.shape_of((axis,))[0]))
                chosen[np.arange(len(groups)), groups] = 1.0
                self.values = np.moveaxis(np.tensordot(self.values, chosen, axes=(place, 0)), -1, place)
                self.version = {**self.version, column: axis}
        wanted = [of.column(axis) for axis in axes] + sorted(label for label in self.labels if label >= of.columns)
        self.values = self.values.transpose([self.labels.index(label) for label in wanted])
        self.labels = wanted


def count_classes(classes: Groups) -> int:
    """Return the number of classes, at least one. Cells of class -1 are left out.

    >>> count_classes(np.array([0, 1, -1])), count_classes(np.array([-1]))
    (2, 1)
    """
    return max(int(classes.max()) + 1, 1)


def merged_marginal(across: Across, columns: Axes, classes: Sequence[Groups]) -> Weights:
    """Return the probabilities of the classes of these columns' cells.

    Args:
        across: A calibrated distribution.
        columns: At least one column, ascending.
        classes: For each column, the class of every cell, numbered from 0. Cells of class -1 are left out.
    """
    of_column = {column: np.asarray(each, dtype=np.intp) for column, each in zip(columns, classes, strict=True)}
    home = across.tree.home(across.scopes.of(columns))
    clique = _root(across, columns, of_column) if home is None else home
    return _given(across, Part(clique, None, columns), of_column).values


def _root(across: Across, columns: Axes, classes: Mapping[int, Groups]) -> int:
    """Return the clique towards which the arrays that cliques pass on have the fewest cells: near the columns with many classes."""
    tree, cells = across.tree, across.scopes.cells
    count = {column: count_classes(each) for column, each in classes.items()}
    part = tree.covering(across.scopes.of(columns))
    costs: dict[int, int] = {}
    for clique in tree.order:
        if clique in part:
            parent = tree.parents.get(clique, clique)
            if parent not in costs:
                costs[clique] = 0
                continue
            shared = tree.separator(clique, parent)
            down, up = (
                math.prod(count[column] for column in columns if tree.beyond[ends] >> column & 1)
                for ends in ((parent, clique), (clique, parent))
            )
            costs[clique] = costs[parent] + cells(shared) * (down - up)
    return min(costs, key=costs.__getitem__)


def _given(across: Across, part: Part, classes: Mapping[int, Groups]) -> _Array:
    """Return the distribution of a part's classes given its separator."""
    clique, seen_from, axes = part
    tree, scopes, of = across.tree, across.scopes, across.scopes.resolutions
    shared = 0 if seen_from is None else tree.separator(clique, seen_from)
    own = [axis for axis in axes if tree.cliques[clique] >> axis & 1]
    further = across.further(part)
    needed = shared | scopes.of(tuple(own))
    for each in further:
        needed |= tree.separator(each.clique, clique)
    over, kept = scopes.axes(needed), {of.column(axis): axis for axis in scopes.axes(shared)}
    array = _Array(
        across.within(clique, needed), [of.column(axis) for axis in over], {of.column(axis): axis for axis in over}
    )
    factors = [_given(across, each, classes) for each in further]
    for done in range(len(factors) + 1):
        later = {label for each in factors[done:] for label in each.labels if label < of.columns}
        for column in [each for each in own if each not in later]:
            array.classed(column, classes[column], of, kept=kept.get(column))
            own.remove(column)
        if done < len(factors):
            still = {label for each in factors[done + 1 :] for label in each.labels if label < of.columns}
            array.times(factors[done], of, needed=still | {*kept, *own})
    array.ordered(tuple(kept.values()), of)
    if seen_from is not None:
        shares = across.within(clique, shared)
        inverse = np.divide(1.0, shares, out=np.zeros(shares.shape), where=shares > LEAST_PROBABILITY)
        array.values = array.values * inverse.reshape(shares.shape + (1,) * (array.values.ndim - shares.ndim))
    return array
