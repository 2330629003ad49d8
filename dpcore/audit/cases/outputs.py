"""Draw many outputs of a mechanism on one made-up table, each encoded as one integer."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpcore.audit.checks import Draw
from dpcore.audit.events import Outcomes

REACH = 12
"""When several noisy counts are encoded together, each is clipped to this distance from 0."""


class Noise(Protocol):
    """A mechanism that adds independent noise to each of an array of counts."""

    def draw(self, counts: npt.NDArray[np.int64], /) -> npt.NDArray[np.int64]:
        """Return noisy counts."""


class Selecting(Protocol):
    """A mechanism that selects one of several scores."""

    def draw(self, scores: npt.NDArray[np.int64], /) -> int:
        """Return the index of the selected score."""


def once(draw: Draw) -> Draw:
    """Cache draws, so that several checks share them."""
    return lru_cache(maxsize=1)(draw)


def noisy(mechanism: Noise, counts: Sequence[int]) -> Draw:
    """Return draws of noisy counts: a single count as it is, several as the digits of one number."""

    def draw(count: int) -> Outcomes:
        table = mechanism.draw(np.tile(np.array(counts, dtype=np.int64), (count, 1)))
        return table[:, 0] if len(counts) == 1 else digits(table)

    return draw


def digits(table: npt.NDArray[np.int64]) -> Outcomes:
    """Encode each row of noisy counts, clipped to `REACH`, as one number."""
    places: Outcomes = (2 * REACH + 1) ** np.arange(table.shape[1], dtype=np.int64)
    return (np.clip(table, -REACH, REACH) + REACH) @ places


def selected(mechanism: Selecting, scores: Sequence[int]) -> Draw:
    """Return draws of the index selected among some scores."""
    candidates = np.array(scores, dtype=np.int64)

    def draw(count: int) -> Outcomes:
        return np.fromiter((mechanism.draw(candidates) for _ in range(count)), dtype=np.int64, count=count)

    return draw
