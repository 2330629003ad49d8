"""What mechanisms on disjoint blocks of the data cost together.

A block is chosen by a public rule, so that one unit's rows lie in one block. A unit that is added or removed then touches one
block: all other mechanisms see the same data as before, and the dearest of them is what can be lost. A unit that is replaced
leaves one block while another unit comes, perhaps to a second block: two blocks are touched, and the two prices add.

So the rule is the same for every amount that adds: epsilon, rho, mu^2 (McSherry 2009 for epsilon; for the others, the mechanisms
on untouched blocks are post-processing of what is the same on both sides). Which mechanism runs on a block, and at which price,
may depend on the answers of other blocks only if every block keeps a filter of its own.
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
        Each block's amount covers all that its mechanisms learn about one neighbour step within the block. Under replace-one
        that is a unit that is replaced, that leaves or that comes; a price which is true only for tables of one size is not
        enough, since a block can grow or shrink. Amounts are fixed in advance, or kept by a filter per block.

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

    The dearest epsilon and the dearest delta may be of different blocks; the pair that is returned covers both.

    >>> parallel_approximate([(1, 0), (Fraction(1, 2), Fraction(1, 10**6))], neighbours=Neighbours.ADD_REMOVE)
    (Fraction(1, 1), Fraction(1, 1000000))
    """
    pairs = [(positive(epsilon, what="epsilon"), checked_delta(delta)) for epsilon, delta in parts]
    epsilon = _touched([epsilon for epsilon, _ in pairs], neighbours)
    return epsilon, min(_touched([delta for _, delta in pairs], neighbours), Fraction(1))


def _touched(amounts: list[Fraction], neighbours: Neighbours) -> Fraction:
    if not isinstance(neighbours, Neighbours):
        raise UsageError("neighbours must be one of Neighbours; say whether a unit is added or replaced")
    if not amounts:
        raise UsageError("there is no block; name the amount of at least one")
    return sum(heapq.nlargest(1 if neighbours is Neighbours.ADD_REMOVE else 2, amounts), start=Fraction(0))
