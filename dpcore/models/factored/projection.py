"""Evidence: a distribution multiplied by a function of single columns, and summed to what a question distinguishes.

A condition on a column is a weight for each of its cells, and a group key sends each cell to a group. Both are matrices with a row for each
cell. So one pass from the cliques with such columns towards one of them is enough: each clique sums out a column as soon as no other clique
needs it. No array has the cells of several columns that lie in different cliques, whatever the number of columns.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.models.factored.across import Across, Part, inverse
from dpcore.models.factored.scopes import Scope
from dpcore.models.model import Matrix, Weights
from dpcore.models.passes import merging, multiplied, products, sum_to


@dataclass
class _Array:
    """An array whose dimensions are columns, each at one of its versions, and results of columns, as `columns + column`.

    A column with a single result has no dimension: its matrix is a weight for each cell.
    """

    values: Weights
    labels: list[int]
    version: dict[int, int]

    def projected(self, column: int, matrix: Matrix, of: Resolutions, *, separator: int | None) -> None:
        """Multiply a column's cells by a matrix, and sum them out. If `separator` is a version of the column, it stays beside the results."""
        place = self.labels.index(column)
        if matrix is None:
            if separator is None:
                self.labels[place] = of.columns + column
                return
            matrix = np.eye(self.values.shape[place])
        several = [of.columns + column] * (matrix.shape[1] > 1)
        results = (matrix.shape[1],) if several else ()
        cells_last = np.moveaxis(self.values, place, -1)
        del self.labels[place]
        if separator is None:
            summed = products(cells_last.reshape(1, -1, len(matrix)), matrix[None])
            self.values = summed.reshape((*cells_last.shape[:-1], *results))
            self.labels = [*self.labels, *several]
            return
        scaled = cells_last[..., None] * matrix if several else cells_last * matrix[:, 0]
        self.values, self.labels, self.version = scaled, [*self.labels, column, *several], {**self.version}
        self.coarsen(column, separator, of)

    def coarsen(self, column: int, version: int, of: Resolutions) -> None:
        """Sum a column to a coarser version of it."""
        here, place = self.version[column], self.labels.index(column)
        if here != version:
            merge = merging(self.values.shape, place, of.groups(here, version), of.shape[version])
            self.values = merge(self.values)
            self.version = {**self.version, column: version}

    def times(self, factor: "_Array", of: Resolutions, *, needed: set[int]) -> None:
        """Multiply by an array over coarser versions, and sum out all columns that are not needed any more."""
        values = factor.values
        for place, label in enumerate(factor.labels):
            if label < of.columns and factor.version[label] != self.version[label]:
                values = np.take(values, of.groups(self.version[label], factor.version[label]), axis=place)
        keep = {label for label in (*self.labels, *factor.labels) if label >= of.columns or label in needed}
        places = tuple(at for at, label in enumerate(self.labels) if label in keep or label in factor.labels)
        own = sum_to(np.ascontiguousarray(self.values), places), tuple(self.labels[place] for place in places)
        self.values, labels = multiplied(own, (values, tuple(factor.labels)), keep=keep)
        self.labels = list(labels)

    def ordered(self, axes: Axes, of: Resolutions) -> None:
        """Sum to some axes, in their order, before all results."""
        for axis in axes:
            self.coarsen(of.column(axis), axis, of)
        ordered = [of.column(axis) for axis in axes] + sorted(label for label in self.labels if label >= of.columns)
        self.values = self.values.transpose([self.labels.index(label) for label in ordered])
        self.labels = ordered


def projection(across: Across, columns: Axes, matrices: Sequence[Matrix]) -> Weights:
    """Return the probabilities of these columns' cells, multiplied along each column by a matrix.

    Args:
        across: A calibrated distribution.
        columns: At least one column, ascending.
        matrices: For each column, a row for each of its cells and a column for each result; None keeps the cells.
    """
    across.forget()
    of_column = dict(zip(columns, matrices, strict=True))
    shape = across.scopes.resolutions.shape
    results = {column: shape[column] if matrix is None else matrix.shape[1] for column, matrix in of_column.items()}
    tree, cells, scope = across.tree, across.scopes.cells, across.scopes.of(columns)

    def passed(shared: Scope, beyond: Scope) -> int:
        return cells(shared) * math.prod(results[column] for column in columns if beyond >> column & 1)

    home = tree.home(scope)
    clique = tree.middle(scope, passed) if home is None else home  # near the columns with many results
    array = _given(across, Part(clique, None, columns), of_column)
    return array.values.reshape(list(results.values()))


def _given(across: Across, part: Part, matrices: Mapping[int, Matrix]) -> _Array:
    """Return the distribution of a part's results given its separator."""
    clique, seen_from, axes = part
    scopes, of, shared = across.scopes, across.scopes.resolutions, across.separator(part)
    own = [axis for axis in axes if across.tree.cliques[clique] >> axis & 1]
    further = across.further(part)
    over, separator = across.needed(part, further)[0], {of.column(axis): axis for axis in scopes.axes(shared)}
    version = {of.column(axis): axis for axis in over}
    array = _Array(across.within(clique, scopes.of(over)), list(version), version)
    factors = [_given(across, beyond, matrices) for beyond in further]
    for done in range(len(factors) + 1):
        later = {label for factor in factors[done:] for label in factor.labels if label < of.columns}
        for column in [column for column in own if column not in later]:
            array.projected(column, matrices[column], of, separator=separator.get(column))
            own.remove(column)
        if done < len(factors):
            still = {label for factor in factors[done + 1 :] for label in factor.labels if label < of.columns}
            array.times(factors[done], of, needed=still | {*separator, *own})
    array.ordered(tuple(separator.values()), of)
    if seen_from is not None:
        shares = across.within(clique, shared)
        array.values = array.values * inverse(shares).reshape(shares.shape + (1,) * (array.values.ndim - shares.ndim))
    return array
