"""Marginals whose axes lie in different cliques: the axes in between are summed out, clique by clique.

Given a separator, the two sides of the tree are independent. So the marginal of axes a, b, c around a clique is the clique's own
distribution times P(a | separator towards a) and so on, summed to a, b, c. The factors P(a | separator) are cached as long as they take
little memory, because the hundreds of marginals of a round share them.
"""

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np

from dpcore.marginals.workload import Axes
from dpcore.models.factored.factors import Factor, Factors
from dpcore.models.factored.moves import Moves
from dpcore.models.factored.scopes import Scope, Scopes
from dpcore.models.factored.tree import JunctionTree
from dpcore.models.model import Weights

MOST_BYTES = 1 << 27  # of cached factors
MOST_ORDERED = 4  # factors of which all orders are tried


class Part(NamedTuple):
    """Some axes in a clique or beyond it, as seen from a neighbour. With `seen_from` None, in any direction."""

    clique: int
    seen_from: int | None
    axes: Axes


class Across:
    """Marginals of a calibrated distribution on a tree, and the factors that they share."""

    def __init__(self, tree: JunctionTree, beliefs: list[Weights], scopes: Scopes, moves: Moves) -> None:
        self.tree = tree
        self._beliefs = beliefs
        self.scopes = scopes
        self._moves = moves
        self._factors = Factors(scopes, moves)
        self._parts: dict[tuple[int, Scope, Scope | None], Weights] = {}
        self._conditionals: dict[Part, Factor] = {}

    def marginal(self, axes: Axes) -> Weights:
        """Return the probabilities of the cells of these axes."""
        self.forget()
        ends = self._ends(axes)
        core = self._core(axes, ends)
        home = self.tree.home(self.scopes.of(core))
        array = self._middle_joint(core) if home is None else self.within(home, self.scopes.of(core))
        array, over = self._multiplied(array, core, list(map(self._conditional, ends)), axes)
        return self._moves.sum(array, over, axes)

    def work(self, axes: Axes) -> int:
        """Return about how many cells all arrays together have that computing a marginal takes, if nothing is cached. Nothing is computed."""
        ends = self._ends(axes)
        core = self._core(axes, ends)
        waiting, cells = list(ends), self._least_work([self.needed(end, ())[1] for end in ends], core, axes)[0]
        if self.tree.home(self.scopes.of(core)) is None:
            waiting.append(Part(self.middle(core), None, core))
        for part in waiting:  # the list grows during the loop
            further = self.further(part)
            waiting += further
            over, result = self.needed(part, further)
            results = [self.needed(beyond, ())[1] for beyond in further]
            cells += self.scopes.resolutions.cells(over) + self._least_work(results, over, result)[0]
        return cells

    def _ends(self, axes: Axes) -> list[Part]:
        """Return a part for each axis that a separator of fewer cells than its own lies before, as seen from all other axes.

        The axis is independent of the others given this separator. So its cells can wait until all of the tree in between is summed out.
        """
        tree, scopes, ends = self.tree, self.scopes, []
        for axis in axes:
            others = sum(1 << other for other in axes if other != axis)
            here, before = tree.home(scopes.of((axis,))) or 0, None
            while not tree.cliques[here] & others:
                towards = [
                    there for there in tree.neighbours[here] if there != before and tree.beyond[there, here] & others
                ]
                if len(towards) != 1:
                    break
                before, here = here, towards[0]
                if scopes.cells(tree.separator(before, here)) < scopes.resolutions.shape[axis]:
                    ends.append(Part(before, here, (axis,)))
                    break
        return ends

    def _core(self, axes: Axes, ends: Sequence[Part]) -> Axes:
        """Return the axes of the marginal that is left if parts at the ends are cut off at their separators."""
        core = set(axes) - {axis for end in ends for axis in end.axes}
        for end in ends:
            core.update(self.scopes.axes(self.separator(end)))
        return self.scopes.finest(core)

    def _middle_joint(self, axes: Axes) -> Weights:
        """Return the probabilities of the cells of axes in several cliques."""
        whole = Part(self.middle(axes), None, axes)
        further = self.further(whole)
        for part in further:
            self._conditional(part)
        return self._joint(whole, further)[0]

    def _conditional(self, part: Part) -> Factor:
        """Return the distribution of a part's axes given its separator, which is cached."""
        waiting = [part]
        further: dict[Part, list[Part]] = {}
        for beyond in waiting:  # the list grows during the loop
            if beyond not in self._conditionals:
                further[beyond] = self.further(beyond)
                waiting += further[beyond]
        for beyond in reversed(further):
            self._conditionals[beyond] = self._joint(beyond, further[beyond])
        return self._conditionals[part]

    def forget(self) -> None:
        """Drop the oldest cached factors, if all together take too much memory. Nothing that is being computed may depend on them."""
        held = sum(array.nbytes for array, _ in self._conditionals.values())
        while held > MOST_BYTES:
            array, _ = self._conditionals.pop(next(iter(self._conditionals)))
            held -= array.nbytes
        held = sum(array.nbytes for array in self._parts.values())
        while held > MOST_BYTES:
            held -= self._parts.pop(next(iter(self._parts))).nbytes

    def middle(self, axes: Axes) -> int:
        """Return the clique at which the conditionals of all directions together have the fewest cells."""
        scope, cells = self.scopes.of(axes), self.scopes.cells
        return self.tree.middle(scope, lambda shared, beyond: cells(shared | scope & beyond))

    def separator(self, part: Part) -> Scope:
        """Return the axes that a part shares with the clique that it is seen from; none for one that is not seen from any."""
        return 0 if part.seen_from is None else self.tree.separator(part.clique, part.seen_from)

    def further(self, part: Part) -> list[Part]:
        """Return the sub-parts that lie beyond the clique's other neighbours."""
        clique, seen_from, axes = part
        tree = self.tree
        parts = []
        if behind := [axis for axis in axes if not tree.cliques[clique] >> axis & 1]:
            for there in tree.neighbours[clique]:
                beyond = tree.beyond[there, clique]
                if there != seen_from and (there_only := tuple(axis for axis in behind if beyond >> axis & 1)):
                    parts.append(Part(there, clique, there_only))
        return parts

    def _joint(self, part: Part, further: Sequence[Part]) -> Factor:
        """Return the distribution of a part's axes given its separator. The conditionals of all further parts must be cached."""
        clique, seen_from, axes = part
        over, result = self.needed(part, further)
        given = None if seen_from is None else self.separator(part)
        array = self.within(clique, self.scopes.of(over), given=given)
        array, over = self._multiplied(array, over, [self._conditionals[beyond] for beyond in further], result)
        goal = axes if seen_from is None else result
        return self._moves.sum(array, over, goal), goal

    def _multiplied(self, array: Weights, over: Axes, conditionals: Sequence[Factor], result: Axes) -> Factor:
        """Multiply an array over some axes by conditionals, in the order of the least work. Sum out what the result does not need."""
        _, order = self._least_work([its_axes for _, its_axes in conditionals], over, result)
        factors = [conditionals[place] for place in order]
        for done, factor in enumerate(factors, start=1):
            keep = _still_needed(result, [its_axes for _, its_axes in factors[done:]])
            array, over = self._factors.product((array, over), factor, keep=keep)
        return array, over

    def needed(self, part: Part, further: Sequence[Part]) -> tuple[Axes, Axes]:
        """Return the axes of a part's clique that are needed, and those of the part given its separator."""
        clique, _, axes = part
        scopes, separator = self.scopes, self.separator(part)
        needed = separator | scopes.of(tuple(axis for axis in axes if self.tree.cliques[clique] >> axis & 1))
        for beyond in further:
            needed |= self.separator(beyond)
        return scopes.axes(needed), scopes.finest({*axes, *scopes.axes(separator)})

    def _least_work(self, factors: Sequence[Axes], over: Axes, result: Axes) -> tuple[int, tuple[int, ...]]:
        """Return in which order an array over some axes is multiplied by factors with the least work, to be summed to a result.

        The product is the same in every order. The arrays in between can be a hundred times as large in one order as in another. The
        first number is that of their cells. Of many factors, the next one is that with the smallest product.
        """
        places = range(len(factors))
        if len(factors) <= MOST_ORDERED:
            return min((sum(self._products_in(order, factors, over, result)), order) for order in permutations(places))
        order: tuple[int, ...] = ()
        while len(order) < len(factors):
            left = [place for place in places if place not in order]
            order = min(
                ((*order, place, *(other for other in left if other != place)) for place in left),
                key=lambda tried: self._products_in(tried, factors, over, result)[len(order)],
            )[: len(order) + 1]
        return sum(self._products_in(order, factors, over, result)), order

    def _products_in(self, order: Sequence[int], factors: Sequence[Axes], over: Axes, result: Axes) -> list[int]:
        """Return how many cells each product has if an array is multiplied by factors in an order."""
        of, finest, axes, cells = self.scopes.resolutions, self.scopes.finest, set(over), []
        for done, place in enumerate(order, start=1):
            multiplied = finest({*axes, *factors[place]})
            still = {of.column(axis) for axis in _still_needed(result, [factors[at] for at in order[done:]])}
            cells.append(of.cells(multiplied))
            axes = {axis for axis in multiplied if of.column(axis) in still}
        return cells

    def within(self, clique: int, needed: Scope, *, given: Scope | None = None) -> Weights:
        """Return the probabilities of the cells of some axes of a clique, maybe given some of them."""
        key = clique, needed, given
        if key not in self._parts:
            source, target = self.tree.axes[clique], self.scopes.axes(needed)
            array = self._moves.sum(self._beliefs[clique], source, target)
            if given is not None:
                condition = self.scopes.axes(given)
                array = array * self._moves.spread(
                    inverse(self._moves.sum(array, target, condition)), condition, target
                )
            self._parts[key] = array
        return self._parts[key]


def inverse(shares: Weights) -> Weights:
    """Return what divides by shares; 0 where they are so small that it would overflow."""
    return np.divide(1.0, shares, out=np.zeros(shares.shape), where=shares > 1e-300)


def _still_needed(result: Axes, factors: Sequence[Axes]) -> set[int]:
    """Return the axes of a result, and those of factors that it is yet to be multiplied by."""
    return {*result, *(axis for axes in factors for axis in axes)}
