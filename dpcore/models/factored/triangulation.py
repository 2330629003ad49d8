"""Triangulate: find cliques such that every given set of axes lies within one of them and they form a tree."""

from collections.abc import Callable, Iterable

from dpcore.models.factored.scopes import Scope, axes_in


def cliques_of(sets: Iterable[Scope], cells: Callable[[Scope], int]) -> list[Scope]:
    """Return the cliques of a triangulated graph in which the axes of each set are connected.

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
