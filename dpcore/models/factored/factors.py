"""Multiply two factors, which are arrays over axes. They may have a column at different resolutions: the product has the finer one."""

from collections.abc import Mapping

from dpcore.marginals.workload import Axes
from dpcore.models.factored.moves import Moves
from dpcore.models.factored.scopes import Scopes
from dpcore.models.model import Weights
from dpcore.models.passes import multiplied

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
        of, sides = self._resolutions, (self._refined(left, finest), self._refined(right, finest))
        kept = {axis for _, over in sides for axis in over if of.column(axis) in goal}
        product, over = multiplied(*sides, keep=kept)
        target = tuple(sorted(max(axis, goal[of.column(axis)]) for axis in over))
        return self._moves.sum(product, over, target), target

    def _versions(self, axes: Axes) -> dict[int, int]:
        return {self._resolutions.column(axis): axis for axis in axes}

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
