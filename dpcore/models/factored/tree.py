"""A junction tree: cliques joined so that any two with an axis in common are connected through cliques that have it too."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from dpcore.models.factored.scopes import Scope, Scopes, axes_in


class JunctionTree:
    """Cliques, numbered as given, and the edges between them; the root is the largest clique."""

    def __init__(self, cliques: Sequence[Scope], scopes: Scopes) -> None:
        self.cliques = tuple(cliques)
        self._scopes = scopes
        self.sizes = [scopes.cells(clique) for clique in cliques]
        self.axes = [scopes.axes(clique) for clique in cliques]
        self.cells = sum(self.sizes)
        self.root = max(range(len(cliques)), key=self.sizes.__getitem__)
        self.parents: dict[int, int] = {}
        self.order = [self.root]  # parents before their children
        self._holders = [0] * len(scopes.single)  # the cliques that hold each axis, bit i for clique i
        for place, clique in enumerate(cliques):
            for axis in axes_in(clique):
                self._holders[axis] |= 1 << place
        self._join()

    def _join(self) -> None:
        """Join the cliques by the spanning tree with the largest separators (Prim), which makes it a junction tree."""
        closest = {clique: self.root for clique in range(len(self.cliques)) if clique != self.root}
        shared = {clique: self._shared(clique, self.root) for clique in closest}
        while closest:
            clique = max(closest, key=shared.__getitem__)
            self.parents[clique] = closest.pop(clique)
            self.order.append(clique)
            for other in closest:
                in_common = self._shared(other, clique)
                if in_common > shared[other]:
                    closest[other], shared[other] = clique, in_common
        self.neighbours: dict[int, list[int]] = {clique: [] for clique in range(len(self.cliques))}
        for child, parent in self.parents.items():
            self.neighbours[child].append(parent)
            self.neighbours[parent].append(child)
        self._degrees = [len(self.neighbours[clique]) for clique in range(len(self.cliques))]

    def _shared(self, one: int, other: int) -> int:
        return self.separator(one, other).bit_count()

    def separator(self, one: int, other: int) -> Scope:
        """Return the axes that two cliques have in common."""
        return self.cliques[one] & self.cliques[other]

    def home(self, scope: Scope) -> int | None:
        """Return the smallest clique that contains a scope, if any."""
        fitting = (1 << len(self.cliques)) - 1
        for axis in axes_in(scope):
            fitting &= self._holders[axis]
        return min(axes_in(fitting), key=self.sizes.__getitem__) if fitting else None

    def cells_with(self, scope: Scope) -> int:
        """Return the number of cells if a scope had to lie in one clique."""
        return self.cells if self.home(scope) is not None else sum(map(self._scopes.cells, self.cliques_with(scope)))

    def cliques_with(self, scope: Scope) -> list[Scope]:
        """Return the cliques of a tree in which one clique contains a scope. Only the part of this tree that holds its axes changes."""
        part = self._covering(scope)
        rest = [clique for place, clique in enumerate(self.cliques) if place not in part]
        new = cliques_of([*(self.cliques[place] for place in part), scope], self._scopes.cells)
        return [*rest, *new]

    def _covering(self, scope: Scope) -> set[int]:
        """Return the cliques of the smallest subtree that contains every axis of a scope, by removing leaves that add nothing."""
        left = dict.fromkeys(self.order)
        degrees = self._degrees.copy()
        holders = {axis: self._holders[axis].bit_count() for axis in axes_in(scope)}
        leaves = [clique for clique in left if degrees[clique] <= 1]
        while leaves and len(left) > 1:
            leaf = leaves.pop()
            if held := self.cliques[leaf] & scope:
                if any(holders[axis] == 1 for axis in axes_in(held)):
                    continue
                for axis in axes_in(held):
                    holders[axis] -= 1
            del left[leaf]
            for other in self.neighbours[leaf]:
                if other in left:
                    degrees[other] -= 1
                    if degrees[other] == 1:
                        leaves.append(other)
        return set(left)

    @cached_property
    def beyond(self) -> dict[tuple[int, int], Scope]:
        """For neighbouring cliques (there, here): all axes on the far side of their edge, as seen from `here`."""
        below = list(self.cliques)
        for child in reversed(self.order[1:]):
            below[self.parents[child]] |= below[child]
        everything = below[self.root]
        found: dict[tuple[int, int], Scope] = {}
        for child, parent in self.parents.items():
            found[child, parent] = below[child]
            # In a junction tree only the shared axes lie on both sides.
            found[parent, child] = everything & ~below[child] | self.separator(child, parent)
        return found


def cliques_of(sets: Iterable[Scope], cells: Callable[[Scope], int]) -> list[Scope]:
    """Return the cliques of a triangulated graph in which the axes of each set are connected: each set lies within a clique.

    Axes are eliminated one after the other, always the one whose clique has the fewest cells. Finding the best order is hard, and this
    greedy rule comes close to it (Kjaerulff 1990).

    >>> [bin(clique) for clique in cliques_of([0b011, 0b110, 0b1000], cells=lambda scope: 2 ** scope.bit_count())]
    ['0b1000', '0b11', '0b110']
    """
    joined: dict[int, Scope] = {}
    for scope in sets:
        for axis in axes_in(scope):
            joined[axis] = joined.get(axis, 0) | scope
    weights = {axis: cells(scope) for axis, scope in joined.items()}
    cliques: list[Scope] = []
    outside: list[Scope] = []
    while joined:
        axis = min(weights, key=weights.__getitem__)
        clique = joined.pop(axis)
        del weights[axis]
        if all(clique & others for others in outside):  # it is not a subset of an earlier one
            cliques.append(clique)
            outside.append(~clique)
        if clique.bit_count() == len(joined) + 1:
            break  # all remaining axes lie within this clique
        others = clique ^ (1 << axis)
        for neighbour in axes_in(others):
            now = (joined[neighbour] | others) & ~(1 << axis)
            if now != joined[neighbour]:
                joined[neighbour] = now
                weights[neighbour] = cells(now)
    return cliques
