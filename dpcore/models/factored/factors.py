"""Multiply two factors, which are arrays over axes. They may have a column at different resolutions.

Refining the coarser factor can make it many times as large, and so can a product that is finer than what is kept of it. Where that is more
than `SMALL` cells, the product is computed for each cell of the coarsest version by itself. Within such a cell the coarser factor does not
depend on the column.
"""

import math
from collections.abc import Mapping

import numpy as np

from dpcore.marginals.workload import Axes
from dpcore.models.factored.moves import Moves
from dpcore.models.factored.scopes import Scopes
from dpcore.models.model import Weights
from dpcore.models.passes import products

Factor = tuple[Weights, Axes]

SMALL = 1 << 17  # cells up to which an array takes less time than a product for each coarse cell


class Factors:
    """Products of factors over the axes of some resolutions."""

    def __init__(self, scopes: Scopes, moves: Moves) -> None:
        self._scopes = scopes
        self._moves = moves
        self._resolutions = scopes.resolutions

    def product(self, left: Factor, right: Factor, *, keep: set[int]) -> Factor:
        """Multiply two factors and sum out every column that is not goal."""
        goal = self._versions(self._scopes.finest(keep))
        return self._matched(self._summed(left, right, goal), self._summed(right, left, goal), goal)

    def _matched(self, left: Factor, right: Factor, goal: Mapping[int, int]) -> Factor:
        """Multiply two factors that have nothing left to sum before. The axes of the result ascend."""
        column = self._worth_splitting(left, right, goal)
        if column is not None:
            return self._by_cell(left, right, column, goal)
        finest = self._versions(self._scopes.finest({*left[1], *right[1]}))
        product, over = self._multiplied(self._refined(left, finest), self._refined(right, finest), goal)
        target = tuple(sorted(max(axis, goal[self._resolutions.column(axis)]) for axis in over))
        return self._moves.sum(product, over, target), target

    def _versions(self, axes: Axes) -> dict[int, int]:
        return {self._resolutions.column(axis): axis for axis in axes}

    def _worth_splitting(self, left: Factor, right: Factor, goal: Mapping[int, int]) -> int | None:
        """Return the kept column whose resolutions differ most, if the product at the finest one is large."""
        of = self._resolutions
        sizes: dict[int, int] = {}  # of the finest version
        for array, over in (left, right):
            for axis, size in zip(over, array.shape, strict=True):
                sizes[of.column(axis)] = max(size, sizes.get(of.column(axis), 1))
        here, there = (self._versions(over) for _, over in (left, right))
        arrays = here.keys(), there.keys(), goal.keys() & sizes.keys()
        if max(math.prod(sizes[column] for column in columns) for columns in arrays) <= SMALL:
            return None
        shared = here.keys() & there.keys() & goal.keys()
        ratios = {column: sizes[column] / of.shape[max(here[column], there[column], goal[column])] for column in shared}
        column = max(ratios, key=ratios.__getitem__, default=None)
        return column if column is not None and ratios[column] > 1 else None

    def _by_cell(self, left: Factor, right: Factor, column: int, goal: Mapping[int, int]) -> Factor:
        """Multiply for each cell of the coarsest version of a column by itself.

        If that version is the one to keep, the cells within are summed. Otherwise the results lie side by side along the finer version.
        """
        here, there = (self._versions(over)[column] for _, over in (left, right))
        coarsest = max(here, there, goal[column])
        is_summed = coarsest == goal[column]
        of_part = {at: axis for at, axis in goal.items() if at != column} if is_summed else goal
        parts = []
        for cell in range(self._resolutions.shape[coarsest]):
            within = (self._within(factor, axis, coarsest, cell) for factor, axis in ((left, here), (right, there)))
            parts.append(self._matched(next(within), next(within), of_part))
        arrays, over = [array for array, _ in parts], parts[0][1]
        if is_summed:
            result = tuple(sorted((coarsest, *over)))
            return _arranged(np.stack(arrays), (coarsest, *over), result), result
        place, groups = over.index(min(here, there)), self._resolutions.groups(min(here, there), coarsest)
        joined = np.concatenate(arrays, axis=place)
        if (groups[1:] >= groups[:-1]).all():
            return joined, over
        return np.take(joined, np.argsort(np.argsort(groups, kind="stable")), axis=place), over

    def _within(self, factor: Factor, axis: int, coarser: int, cell: int) -> Factor:
        """Return the part of a factor within a cell of a coarser version of an axis. If the axis is that version, it is left out."""
        array, over = factor
        place = over.index(axis)
        if axis == coarser:
            return np.moveaxis(array, place, 0)[cell], over[:place] + over[place + 1 :]
        members = np.flatnonzero(self._resolutions.groups(axis, coarser) == cell)
        first, last = int(members[0]), int(members[-1])
        if last - first + 1 == len(members):  # neighbours: no copy is needed
            return array[*[slice(None)] * place, first : last + 1], over
        return np.take(array, members, axis=place), over

    def _multiplied(self, left: Factor, right: Factor, goal: Mapping[int, int]) -> Factor:
        """Multiply two factors whose common columns are at the same resolution, as a batch of matrix products."""
        (a, over_a), (b, over_b) = left, right
        sizes = dict(zip(over_a + over_b, a.shape + b.shape, strict=True))
        both = set(over_a) & set(over_b)
        batch = tuple(axis for axis in over_a if axis in both and self._resolutions.column(axis) in goal)
        summed = tuple(axis for axis in over_a if axis in both and axis not in batch)
        rows = tuple(axis for axis in over_a if axis not in both)
        columns = tuple(axis for axis in over_b if axis not in both)

        def stack(array: Weights, over: Axes, *groups: Axes) -> Weights:
            sides = [math.prod(sizes[axis] for axis in group) for group in groups]
            return _arranged(array, over, sum(groups, ())).reshape(sides)

        stacks = stack(a, over_a, batch, rows, summed), stack(b, over_b, batch, summed, columns)
        over = batch + rows + columns
        return products(*stacks).reshape([sizes[axis] for axis in over]), over

    def _summed(self, factor: Factor, partner: Factor, goal: Mapping[int, int]) -> Factor:
        """Sum each column of a factor to the finest version that is kept or that its partner has, or out if there is none."""
        of, (array, over) = self._resolutions, factor
        needed = self._versions(self._scopes.finest({*goal.values(), *partner[1]}))
        target = tuple(max(axis, needed[of.column(axis)]) for axis in over if of.column(axis) in needed)
        return self._moves.sum(array, over, target), target

    def _refined(self, factor: Factor, finest: dict[int, int]) -> Factor:
        of, (array, over) = self._resolutions, factor
        target = tuple(finest[of.column(axis)] for axis in over)
        for place, (finer, axis) in enumerate(zip(target, over, strict=True)):
            if finer != axis:
                array = np.take(array, of.groups(finer, axis), axis=place)
        return array, target


def _arranged(array: Weights, over: Axes, target: Axes) -> Weights:
    return array.transpose([over.index(axis) for axis in target])
