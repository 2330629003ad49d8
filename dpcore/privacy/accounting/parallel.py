"""Parallel composition: what mechanisms on disjoint blocks of the data cost together.

Blocks are assigned by a public rule, so that all rows of a unit lie in one block. Adding or removing a unit then touches one
block. All other mechanisms see the same data as before, so the loss is at most the largest price of a block. Replacing a unit
removes it from one block and may add the new unit to another: two blocks are touched, and their prices add.

The rule is the same for every amount that adds: epsilon, rho, mu^2 (McSherry 2009 for epsilon; for the others, the mechanisms
on untouched blocks are post-processing of data that is the same on both sides). The mechanism that runs on a block, and its
price, may depend on the answers of other blocks only if every block has its own filter.
"""

import heapq
from collections.abc import Iterable
from fractions import Fraction

from dpcore.errors import UsageError
from dpcore.privacy.accounting.composition import Parts, checked_delta
from dpcore.privacy.accounting.rounding import positive
from dpcore.privacy.protection import Neighbours


def parallel_composition(amounts: Iterable[Fraction | float], *, neighbours: Neighbours) -> Fraction:
    """Return what mechanisms on disjoint blocks cost together, in epsilon, rho or mu^2, from each block's amount.

    Assumptions:
        Each block's amount covers everything that its mechanisms reveal about one neighbour step within the block. Under
        replace-one a unit may be replaced, leave or arrive. A price that holds only for tables of a fixed size is not enough,
        because a block can grow or shrink. Amounts are fixed in advance, or enforced by a filter per block.

    Reference:
        McSherry 2009, on parallel composition, for blocks; the sum of two under replace-one is basic composition over the two blocks.

    >>> parallel_composition([1, 3, 2], neighbours=Neighbours.ADD_REMOVE)
    Fraction(3, 1)
    >>> parallel_composition([1, 3, 2], neighbours=Neighbours.REPLACE_ONE)
    Fraction(5, 1)
    """
    exact = [positive(amount, what="a block's amount") for amount in amounts]
    return _touched(exact, neighbours)


def parallel_approximate(parts: Parts, *, neighbours: Neighbours) -> tuple[Fraction, Fraction]:
    """Return the (epsilon, delta) of mechanisms on disjoint blocks, from each block's pair.

    The largest epsilon and the largest delta may come from different blocks. The returned pair covers both.

    >>> parallel_approximate([(1, 0), (Fraction(1, 2), Fraction(1, 10**6))], neighbours=Neighbours.ADD_REMOVE)
    (Fraction(1, 1), Fraction(1, 1000000))
    """
    pairs = [(positive(epsilon, what="epsilon"), checked_delta(delta)) for epsilon, delta in parts]
    epsilon = _touched([epsilon for epsilon, _ in pairs], neighbours)
    return epsilon, min(_touched([delta for _, delta in pairs], neighbours), Fraction(1))


def _touched(amounts: list[Fraction], neighbours: Neighbours) -> Fraction:
    if not isinstance(neighbours, Neighbours):
        raise UsageError("neighbours must be one of Neighbours; declare whether a unit is added or replaced")
    if not amounts:
        raise UsageError("there are no blocks to compose; give the amount of at least one")
    return sum(heapq.nlargest(1 if neighbours is Neighbours.ADD_REMOVE else 2, amounts), start=Fraction(0))
