"""Turn functions into the marginals of all cliques, by passing messages to the root of the tree and back.

A clique's weights are a product of factors: the exponentials of its functions, and the messages from its children. Factors are far smaller
than the clique. They are multiplied pairwise, those with the smallest product first, so that few products have all cells. No
exponential of a whole clique is taken. If the factors range over too many orders of magnitude for a product of floats, logarithms are added
instead, which takes several times as long.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from dpcore.marginals.workload import Axes
from dpcore.marginals.zeros import IMPOSSIBLE
from dpcore.models.factored.moves import Moves
from dpcore.models.factored.scopes import Scopes
from dpcore.models.factored.tree import JunctionTree
from dpcore.models.model import Weights

WIDEST = 600.0  # the range of a clique's logarithms up to which products neither underflow nor lose precision


class Beliefs(NamedTuple):
    """The marginals of all cliques, and those of the axes of all functions, as probabilities."""

    cliques: list[Weights]
    functions: dict[Axes, Weights]


class _Join(NamedTuple):
    """Combine two factors, by their places in the list of factors, into one over the given axes, which is added to the list."""

    left: int | None  # None if there is no factor
    right: int | None  # None if there is at most one factor
    axes: Axes


class _Plan(NamedTuple):
    """A clique's factors, in order: functions, then messages from children. The joins end with one of all the clique's axes."""

    functions: tuple[Axes, ...]
    children: tuple[int, ...]
    axes: tuple[Axes, ...]  # of every factor
    joins: tuple[_Join, ...]


class Calibration:
    """The order of work for the functions of some sets of axes, each of which lies in a clique of the tree."""

    def __init__(self, sets: Mapping[Axes, int], tree: JunctionTree, scopes: Scopes, moves: Moves) -> None:
        """Plan the work.

        Args:
            sets: The axes of each function, and the clique that it belongs to.
            tree: The tree.
            scopes: The axes of its cliques.
            moves: Converts arrays between axes.
        """
        self._tree, self._scopes, self._moves = tree, scopes, moves
        self._separators = {child: scopes.axes(tree.separator(child, parent)) for child, parent in tree.parents.items()}
        functions: dict[int, list[Axes]] = {}
        for axes, clique in sets.items():
            functions.setdefault(clique, []).append(axes)
        children: dict[int, list[int]] = {}
        for child, parent in tree.parents.items():
            if self._separators[child]:  # without axes in common, the message is a constant
                children.setdefault(parent, []).append(child)
        self._plans = [
            self._plan(clique, functions.get(clique, []), children.get(clique, [])) for clique in range(len(tree.axes))
        ]

    def beliefs(self, functions: Mapping[Axes, Weights]) -> Beliefs:
        """Return the marginals of the distribution that is proportional to exp of the sum of the functions."""
        collected = self._collect(functions) or self._collect_logarithms(functions)
        return self._distribute(*collected)

    def _collect(self, functions: Mapping[Axes, Weights]) -> tuple[list[Weights], dict[int, Weights]] | None:
        """Pass messages from the leaves to the root. Return each clique's weights and their sums for each cell of its separator.

        Returns None if the weights of a clique range too widely for floats. Weights are relative to a bound on the largest one.
        """
        weights: list[Weights] = [np.empty(0)] * len(self._plans)
        sums: dict[int, Weights] = {}
        for clique in reversed(self._tree.order):
            plan, widest, factors = self._plans[clique], 0.0, []
            for axes in plan.functions:
                function = functions[axes]
                highest = float(function.max())
                widest += _range(function, highest)
                factors.append(np.exp(function - highest))
            for child in plan.children:
                largest = float(sums[child].max())
                least = float(sums[child].min())
                # Only what constraints exclude has no weight at all.
                widest += math.log(largest / (least or float(sums[child][sums[child] > 0].min())))
                factors.append(sums[child] / largest)
            if widest > WIDEST:
                return None
            weights[clique] = self._joined(plan, factors, np.multiply)
            sums[clique] = self._moves.sum(weights[clique], self._tree.axes[clique], self._separators.get(clique, ()))
        return weights, sums

    def _collect_logarithms(self, functions: Mapping[Axes, Weights]) -> tuple[list[Weights], dict[int, Weights]]:
        """Do the same for weights of any range: they are relative to the largest in their slice of the separator.

        So no relevant weight underflows, however small the slice is compared with others, and all sums are 1 or more.
        """
        weights: list[Weights] = [np.empty(0)] * len(self._plans)
        sums: dict[int, Weights] = {}
        messages: dict[int, Weights] = {}
        for clique in reversed(self._tree.order):
            plan, axes, shared = self._plans[clique], self._tree.axes[clique], self._separators.get(clique, ())
            terms = [functions[key] for key in plan.functions] + [messages[child] for child in plan.children]
            array = self._joined(plan, terms, np.add)
            highest = self._moves.highest(array, axes, shared)
            array -= self._moves.spread(highest, shared, axes)
            weights[clique] = np.exp(array, out=array)
            sums[clique] = self._moves.sum(array, axes, shared)
            messages[clique] = highest + np.log(sums[clique])
        return weights, sums

    def _distribute(self, weights: list[Weights], sums: Mapping[int, Weights]) -> Beliefs:
        """Pass messages from the root to the leaves, so that every clique holds its marginal. The weights are changed in place."""
        tree, marginals = self._tree, Beliefs(weights, {})
        goals: dict[int, Weights] = {}  # the marginal of each separator, as its clique's parent knows it
        for clique in tree.order:
            plan, shared, held = self._plans[clique], self._separators.get(clique, ()), sums[clique]
            goal = goals.pop(clique, np.ones(()))
            share = np.divide(goal, held, out=np.zeros(held.shape), where=held > 0)
            weights[clique] *= self._moves.spread(share, shared, tree.axes[clique])
            own, functions = self._marginals_of_factors(plan, weights[clique]), len(plan.functions)
            marginals.functions.update(zip(plan.functions, own[:functions], strict=True))
            goals.update(zip(plan.children, own[functions:], strict=True))
        return marginals

    def _marginals_of_factors(self, plan: _Plan, marginal: Weights) -> list[Weights]:
        """Return a clique's marginal summed to the axes of each of its factors, by way of all joins: backwards, so that few sums are large."""
        factors = len(plan.axes)
        over = [*plan.axes, *(join.axes for join in plan.joins)]
        marginals = {len(over) - 1: marginal}
        for place in reversed(range(factors, len(over))):
            join, whole = plan.joins[place - factors], marginals.pop(place)
            for part in (join.left, join.right):
                if part is not None:
                    marginals[part] = self._moves.sum(whole, join.axes, over[part])
        return [marginals[place] for place in range(factors)]

    def _joined(self, plan: _Plan, factors: list[Weights], combine: np.ufunc) -> Weights:
        """Combine a clique's factors, or terms, into a new array."""
        over, arrays, spread = list(plan.axes), list(factors), self._moves.spread
        of = self._scopes.resolutions
        for left, right, axes in plan.joins:
            result = np.empty(of.shape_of(axes))
            if left is None:
                result[...] = combine.identity
            elif right is None:
                result[...] = spread(arrays[left], over[left], axes)
            else:
                combine(spread(arrays[left], over[left], axes), spread(arrays[right], over[right], axes), out=result)
            arrays.append(result)
            over.append(axes)
        return arrays[-1]

    def _plan(self, clique: int, functions: Sequence[Axes], children: Sequence[int]) -> _Plan:
        axes = (*functions, *(self._separators[child] for child in children))
        cells, over = self._scopes.cells, list(map(self._scopes.of, axes))
        joins: list[_Join] = []
        waiting = list(range(len(over)))
        while len(waiting) > 2:  # the last two are joined to the whole clique
            left, right = min(combinations(waiting, 2), key=lambda pair: cells(over[pair[0]] | over[pair[1]]))
            waiting = [place for place in waiting if place not in (left, right)] + [len(over)]
            over.append(over[left] | over[right])
            joins.append(_Join(left, right, self._scopes.axes(over[-1])))
        left_one, right_one = [*waiting, None, None][:2]
        joins.append(_Join(left_one, right_one, self._tree.axes[clique]))
        return _Plan(tuple(functions), tuple(children), axes, tuple(joins))


def _range(function: Weights, highest: float) -> float:
    """Return how far logarithms lie below the highest one, except for cells that constraints exclude: their weight is exactly zero."""
    lowest = float(function.min())
    if lowest < highest + IMPOSSIBLE / 2:
        lowest = float(function[function >= highest + IMPOSSIBLE / 2].min())
    return highest - lowest
