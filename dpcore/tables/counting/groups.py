"""Group work so that each group fits into memory."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def in_groups(items: Iterable[T], *, cells: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Yield the items in order, in groups of at most `most` cells. An item with more cells is a group of its own.

    >>> list(in_groups(["aa", "b", "ccccc", "d"], cells=len, most=3))
    [['aa', 'b'], ['ccccc'], ['d']]
    """
    group: list[T] = []
    taken = 0
    for item in items:
        size = cells(item)
        if group and taken + size > most:
            yield group
            group, taken = [], 0
        group.append(item)
        taken += size
    if group:
        yield group
