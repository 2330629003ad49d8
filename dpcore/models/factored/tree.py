"""A junction tree: cliques joined so that any two with an axis in common are connected through cliques that have it too."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import chain

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
            for waiting in closest:
                in_common = self._shared(waiting, clique)
                if in_common > shared[waiting]:
                    closest[waiting], shared[waiting] = clique, in_common
        self.neighbours: dict[int, list[int]] = {clique: [] for clique in range(len(self.cliques))}
        for child, parent in self.parents.items():
            self.neighbours[child].append(parent)
            self.neighbours[parent].append(child)

    def _shared(self, clique: int, neighbour: int) -> int:
        return self.separator(clique, neighbour).bit_count()

    def separator(self, clique: int, neighbour: int) -> Scope:
        """Return the axes that two cliques have in common."""
        return self.cliques[clique] & self.cliques[neighbour]

    def home(self, scope: Scope) -> int | None:
        """Return the smallest clique that contains a scope, if any."""
        fitting = (1 << len(self.cliques)) - 1
        for axis in axes_in(scope):
            fitting &= self._holders[axis]
        return min(axes_in(fitting), key=self.sizes.__getitem__) if fitting else None

    def cells_with(self, scope: Scope) -> int:
        """Return the number of cells if a scope had to lie in one clique."""
        if self.home(scope) is not None:
            return self.cells
        part = sorted(self.covering(scope))
        sets, known = (*(self.cliques[place] for place in part), scope), self._scopes.forecasts
        if sets not in known:
            known[sets] = sum(map(self._scopes.cells, cliques_of(sets, self._scopes.cells)))
        return self.cells - sum(self.sizes[place] for place in part) + known[sets]

    def cliques_with(self, scope: Scope) -> list[Scope]:
        """Return the cliques of a tree in which one clique contains a scope. Only the part of this tree that holds its axes changes."""
        part = self.covering(scope)
        rest = [clique for place, clique in enumerate(self.cliques) if place not in part]
        new = cliques_of([*(self.cliques[place] for place in sorted(part)), scope], self._scopes.cells)
        return [*rest, *new]

    def covering(self, scope: Scope) -> set[int]:
        """Return the cliques of the smallest subtree that contains every axis of a scope, which lies in no single clique.

        It consists of the edges with axes of the scope on either side that the other side lacks.
        """
        sides = (edge for *edge, below, above in self._sides if scope & below and scope & above)
        return set(chain.from_iterable(sides))

    def middle(self, scope: Scope, cells: Callable[[Scope, Scope], int]) -> int:
        """Return the clique at which all arrays that others pass towards it, to learn of a scope, together have the fewest cells.

        Args:
            scope: The scope, which lies in no single clique.
            cells: Returns the number of cells of such an array, by the separator that it passes and all axes beyond it.
        """
        part = self.covering(scope)
        costs: dict[int, int] = {}
        for clique in self.order:
            if clique in part:
                parent = self.parents.get(clique, clique)
                costs[clique] = 0
                if parent in costs and parent != clique:
                    shared, above, below = (
                        self.separator(clique, parent),
                        self.beyond[parent, clique],
                        self.beyond[clique, parent],
                    )
                    costs[clique] = costs[parent] + cells(shared, above) - cells(shared, below)
        return min(costs, key=costs.__getitem__)

    @cached_property
    def _sides(self) -> list[tuple[int, int, Scope, Scope]]:
        """Each edge as its child and its parent, with the axes that are only on the child's side and only on the parent's."""
        return [
            (child, parent, self.beyond[child, parent] & ~shared, self.beyond[parent, child] & ~shared)
            for child, parent in self.parents.items()
            for shared in (self.separator(child, parent),)
        ]

    @cached_property
    def beyond(self) -> dict[tuple[int, int], Scope]:
        """For neighbouring cliques (there, here): all axes on the far side of their edge, as seen from `here`."""
        below = list(self.cliques)
        for child in reversed(self.order[1:]):
            below[self.parents[child]] |= below[child]
        everything = below[self.root]
        beyond: dict[tuple[int, int], Scope] = {}
        for child, parent in self.parents.items():
            beyond[child, parent] = below[child]
            # In a junction tree only the shared axes lie on both sides.
            beyond[parent, child] = everything & ~below[child] | self.separator(child, parent)
        return beyond


def cliques_of(sets: Iterable[Scope], cells: Callable[[Scope], int]) -> list[Scope]:
    """Return the cliques of a triangulated graph in which the axes of each set are connected: each set lies within a clique.

    Axes are eliminated one after the other. An axis that only one set holds is free to eliminate: its clique is that set. Where there is
    none, it is an axis whose clique has the fewest cells. Finding the best order is hard, and this greedy rule comes close to it (Kjaerulff
    1990). Sets that form a tree are eliminated for free altogether (Graham 1979).

    >>> [bin(clique) for clique in cliques_of([0b011, 0b110, 0b1000], cells=lambda scope: 2 ** scope.bit_count())]
    ['0b11', '0b110', '0b1000']
    """
    cliques: list[Scope] = []
    left = _largest([], list(sets))
    while left:
        shared = _shared(left)
        free = [scope for scope in left if scope & ~shared]
        if free:
            left = _largest([scope for scope in left if not scope & ~shared], [scope & shared for scope in free])
        else:
            alike, clique = min(_choices(left), key=lambda choice: cells(choice[1]))
            free = [clique]
            left = _largest([scope for scope in left if not scope & alike], [clique & ~alike])
        cliques += [scope for scope in free if not _covered(scope, cliques)]
    return cliques


def _shared(sets: Sequence[Scope]) -> Scope:
    """Return the axes that several sets hold."""
    once = twice = 0
    for scope in sets:
        twice |= once & scope
        once |= scope
    return twice


def _largest(sets: Sequence[Scope], more: Sequence[Scope]) -> list[Scope]:
    """Add some sets to others, none of which lies within another. Leave out those that would."""
    largest = [scope for scope in sets if not _covered(scope, more)]
    for scope in sorted(more, key=int.bit_count, reverse=True):
        if scope and not _covered(scope, largest):
            largest.append(scope)
    return largest


def _covered(scope: Scope, sets: Sequence[Scope]) -> bool:
    """Return whether a scope lies within one of some sets."""
    for whole in sets:  # noqa: SIM110  a generator takes twice as long, and this is called for every candidate
        if not scope & ~whole:
            return True
    return False


def _choices(sets: Sequence[Scope]) -> list[tuple[Scope, Scope]]:
    """Return the axes by the sets that hold them, and their clique: the union of these sets.

    Axes in the same sets have the same neighbours, so they are eliminated together.

    >>> [(bin(alike), bin(clique)) for alike, clique in _choices([0b0111, 0b1110])]
    [('0b1', '0b111'), ('0b110', '0b1111'), ('0b1000', '0b1110')]
    """
    choices: list[tuple[Scope, Scope]] = []
    for scope in sets:
        new, split = scope, []
        for alike, clique in choices:
            common = alike & scope
            if common != alike:
                split.append((alike ^ common, clique))
            if common:
                split.append((common, clique | scope))
                new ^= common
        if new:
            split.append((new, scope))
        choices = split
    return choices
