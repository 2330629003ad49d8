"""Exact sampling of whole numbers by inverting their distribution function.

A uniform 128-bit number U is compared with the thresholds floor(2^128 F(k)). The noise is the first k whose threshold lies
above U. So k has probability p(k) within 2^-128, with p one of the distributions of `thresholds`, cut where less than 2^-140
of it is left. With n outcomes the total variation distance to the ideal distribution is below n 2^-129 + 2^-140 per draw,
and below 2^-109 at any scale. This noise differs from the ideal one in no other respect. Every release states what the
distance adds to delta (`accounting.sampler`).

The first 64 bits of U decide all but one draw in 2^45 or more; the other 64 are drawn for those only. Which path a draw
takes depends on its random bits alone, never on the counts that the noise is added to.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dpcore.mechanisms.sampling import entropy
from dpcore.mechanisms.sampling.thresholds import Shape, reach_of, thresholds

MOST_OUTCOMES = 560_001
"""The longest table: 9 MB, a second to build, for a Gaussian sigma of 19,999 or a Laplace scale of 2,857."""

_GUIDE_BITS, _LONG_GUIDE_BITS = 16, 18
"""The leading bits of a word that index the guide: 256 KB, or 1 MB for a long table, which fits in a processor's cache."""

_BATCH = 1 << 17
"""Draws made at a time, so that the intermediate arrays fit in a processor's cache as well."""


@dataclass(frozen=True, eq=False)
class InversionTable:
    """The thresholds of one distribution on -reach, -reach + 1, ..., split into their upper and lower 64 bits."""

    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]
    reach: int
    guide: npt.NDArray[np.int32] = field(init=False)
    guide_shift: np.uint64 = field(init=False)

    def __post_init__(self) -> None:
        """Build the guide: the outcome of every leading bit pattern that no threshold shares, and -1 for the others."""
        bits = _GUIDE_BITS if len(self.high) < 1 << (_GUIDE_BITS - 1) else _LONG_GUIDE_BITS
        shift = np.uint64(64 - bits)
        within = np.bincount((self.high >> shift).astype(np.intp), minlength=1 << bits)
        below = np.cumsum(within) - within
        object.__setattr__(self, "guide", np.where(within == 0, below, -1).astype(np.int32))
        object.__setattr__(self, "guide_shift", shift)

    def draw(self, count: int) -> npt.NDArray[np.int64]:
        """Return `count` independent draws."""
        if count <= _BATCH:  # most draws are of a few numbers
            return self._outcomes(entropy.random_words(count)) - np.int64(self.reach)
        noise = np.empty(count, dtype=np.int64)
        for start in range(0, count, _BATCH):
            batch = noise[start : start + _BATCH]
            batch[:] = self._outcomes(entropy.random_words(len(batch)))
        noise -= self.reach
        return noise

    def _outcomes(self, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
        """Return, for each word as the upper half of U, how many thresholds are not above U."""
        outcomes = self.guide.take((words >> self.guide_shift).view(np.int64))
        open_places = (outcomes < 0).nonzero()[0]
        if not open_places.size:
            return outcomes
        open_words = words[open_places]
        first = self.high.searchsorted(open_words, side="left")
        outcomes[open_places] = first
        tied = (self.high.take(first, mode="clip") == open_words).nonzero()[0]
        if tied.size:
            last = np.searchsorted(self.high, open_words[tied], side="right")
            lower_words = entropy.random_words(tied.size)
            for place, start, end, word in zip(open_places[tied], first[tied], last, lower_words, strict=True):
                outcomes[place] = start + np.searchsorted(self.low[start:end], word, side="right")
        return outcomes


def has_table(shape: Shape, scale: float) -> bool:
    """Return whether the table for this scale would have at most MOST_OUTCOMES outcomes."""
    return 2 * reach_of(shape, scale) + 1 <= MOST_OUTCOMES


@lru_cache(maxsize=16)  # 16 tables of the largest size are 150 MB
def inversion_table(shape: Shape, scale: float) -> InversionTable:
    """Return the table of a distribution. It is built once per scale."""
    return table_of(thresholds(shape, scale), reach=reach_of(shape, scale))


def table_of(edges: list[int], *, reach: int) -> InversionTable:
    """Return the table of the thresholds floor(2^128 F(k)) for k = -reach, -reach + 1, ... The last outcome needs no threshold."""
    halves = np.frombuffer(b"".join(edge.to_bytes(16, "big") for edge in edges), dtype=">u8")
    high, low = halves.reshape(-1, 2).T.astype(np.uint64)
    return InversionTable(high=high, low=low, reach=reach)
