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

    def product(self, one: Factor, other: Factor, *, keep: set[int]) -> Factor:
        """Multiply two factors and sum out every column that is not kept."""
        kept = self._versions(self._scopes.finest(keep))
        return self._matched(self._summed(one, other, kept), self._summed(other, one, kept), kept)

    def _matched(self, one: Factor, other: Factor, kept: Mapping[int, int]) -> Factor:
        """Multiply two factors that have nothing left to sum before. The axes of the result ascend."""
        column = self._worth_splitting(one, other, kept)
        if column is not None:
            return self._by_cell(one, other, column, kept)
        finest = self._versions(self._scopes.finest({*one[1], *other[1]}))
        made, over = self._multiplied(self._refined(one, finest), self._refined(other, finest), kept)
        target = tuple(sorted(max(axis, kept[self._resolutions.column(axis)]) for axis in over))
        return self._moves.sum(made, over, target), target

    def _versions(self, axes: Axes) -> dict[int, int]:
        return {self._resolutions.column(axis): axis for axis in axes}

    def _worth_splitting(self, one: Factor, other: Factor, kept: Mapping[int, int]) -> int | None:
        """Return the kept column whose resolutions differ most, if the product at the finest one is large."""
        of = self._resolutions
        sizes: dict[int, int] = {}  # of the finest version
        for array, over in (one, other):
            for axis, size in zip(over, array.shape, strict=True):
                sizes[of.column(axis)] = max(size, sizes.get(of.column(axis), 1))
        here, there = (self._versions(over) for _, over in (one, other))
        arrays = here.keys(), there.keys(), kept.keys() & sizes.keys()
        if max(math.prod(sizes[column] for column in columns) for columns in arrays) <= SMALL:
            return None
        shared = here.keys() & there.keys() & kept.keys()
        ratios = {each: sizes[each] / of.shape[max(here[each], there[each], kept[each])] for each in shared}
        column = max(ratios, key=ratios.__getitem__, default=None)
        return column if column is not None and ratios[column] > 1 else None

    def _by_cell(self, one: Factor, other: Factor, column: int, kept: Mapping[int, int]) -> Factor:
        """Multiply for each cell of the coarsest version of a column by itself.

        If that version is the one to keep, the cells within are summed. Otherwise the results lie side by side along the finer version.
        """
        here, there = (self._versions(over)[column] for _, over in (one, other))
        coarsest = max(here, there, kept[column])
        is_summed = coarsest == kept[column]
        wanted = {each: axis for each, axis in kept.items() if each != column} if is_summed else kept
        parts = []
        for cell in range(self._resolutions.shape[coarsest]):
            within = (self._within(factor, axis, coarsest, cell) for factor, axis in ((one, here), (other, there)))
            parts.append(self._matched(next(within), next(within), wanted))
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

    def _multiplied(self, one: Factor, other: Factor, kept: Mapping[int, int]) -> Factor:
        """Multiply two factors whose common columns are at the same resolution, as a batch of matrix products."""
        (a, over_a), (b, over_b) = one, other
        sizes = dict(zip(over_a + over_b, a.shape + b.shape, strict=True))
        both = set(over_a) & set(over_b)
        batch = tuple(axis for axis in over_a if axis in both and self._resolutions.column(axis) in kept)
        summed = tuple(axis for axis in over_a if axis in both and axis not in batch)
        rows = tuple(axis for axis in over_a if axis not in both)
        columns = tuple(axis for axis in over_b if axis not in both)

        def stack(array: Weights, over: Axes, *groups: Axes) -> Weights:
            wanted = tuple(axis for group in groups for axis in group)
            return _arranged(array, over, wanted).reshape(
                [math.prod(sizes[axis] for axis in group) for group in groups]
            )

        left, right = stack(a, over_a, batch, rows, summed), stack(b, over_b, batch, summed, columns)
        over = batch + rows + columns
        return products(left, right).reshape([sizes[axis] for axis in over]), over

    def _summed(self, factor: Factor, other: Factor, kept: Mapping[int, int]) -> Factor:
        """Sum each column of a factor to the finest version that is kept or that the other factor has, or out if there is none."""
        of, (array, over) = self._resolutions, factor
        needed = self._versions(self._scopes.finest({*kept.values(), *other[1]}))
        target = tuple(max(axis, needed[of.column(axis)]) for axis in over if of.column(axis) in needed)
        return self._moves.sum(array, over, target), target

    def _refined(self, factor: Factor, finest: dict[int, int]) -> Factor:
        of, (array, over) = self._resolutions, factor
        target = tuple(finest[of.column(axis)] for axis in over)
        for place, (finer, axis) in enumerate(zip(target, over, strict=True)):
            if finer != axis:
                array = np.take(array, of.groups(finer, axis), axis=place)
        return array, target


def _arranged(array: Weights, over: Axes, wanted: Axes) -> Weights:
    return array.transpose([over.index(axis) for axis in wanted])
