"""Exactly uniform whole numbers."""

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.mechanisms.sampling import entropy
from dpcore.scalars import is_whole

MOST = 1 << 63
"""The largest bound: every number below it is a signed 64-bit integer."""


def below(bound: int, count: int) -> npt.NDArray[np.int64]:
    """Return `count` independent whole numbers, uniform over 0, ..., bound - 1.

    A word's remainder is uniform if the word is below the largest multiple of the bound that fits in 64 bits. Other words are
    drawn again; for a bound of a million this happens to one word in 10^13.

    >>> sorted(set(below(3, 1000).tolist()))
    [0, 1, 2]
    """
    if not is_whole(bound) or not 1 <= bound <= MOST:
        raise UsageError("a uniform number's bound must be a whole number from 1 to 2^63; offer at least one outcome")
    words = np.array(entropy.random_words(checked_count(count)))
    if beyond := (1 << 64) % bound:
        largest = np.uint64((1 << 64) - beyond - 1)
        while (again := (words > largest).nonzero()[0]).size:
            words[again] = entropy.random_words(again.size)
    return (words % np.uint64(bound)).astype(np.int64)


def checked_count(count: int) -> int:
    """Return a number of draws. Raise unless it is a whole number of at least 0."""
    if not is_whole(count) or count < 0:
        raise UsageError("the number of draws must be a whole number of at least 0")
    return count
