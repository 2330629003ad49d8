"""Multiply two factors, which are arrays over axes. They may have a column at different resolutions: the product has the finer one."""

import math
from collections.abc import Mapping

from dpcore.marginals.workload import Axes
from dpcore.models.factored.moves import Moves
from dpcore.models.factored.scopes import Scopes
from dpcore.models.model import Weights
from dpcore.models.passes import products

Factor = tuple[Weights, Axes]


class Factors:
    """Products of factors over the axes of some resolutions."""

    def __init__(self, scopes: Scopes, moves: Moves) -> None:
        self._scopes = scopes
        self._moves = moves
        self._resolutions = scopes.resolutions

    def product(self, left: Factor, right: Factor, *, keep: set[int]) -> Factor:
        """Multiply two factors and sum out every column that is not kept. The axes of the result ascend."""
        goal = self._versions(self._scopes.finest(keep))
        left, right = self._summed(left, right, goal), self._summed(right, left, goal)
        finest = self._versions(self._scopes.finest({*left[1], *right[1]}))
        product, over = self._multiplied(self._refined(left, finest), self._refined(right, finest), goal)
        target = tuple(sorted(max(axis, goal[self._resolutions.column(axis)]) for axis in over))
        return self._moves.sum(product, over, target), target

    def _versions(self, axes: Axes) -> dict[int, int]:
        return {self._resolutions.column(axis): axis for axis in axes}

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
        array, over = factor
        target = tuple(finest[self._resolutions.column(axis)] for axis in over)
        return self._moves.spread(array, over, target), target


def _arranged(array: Weights, over: Axes, target: Axes) -> Weights:
    return array.transpose([over.index(axis) for axis in target])
