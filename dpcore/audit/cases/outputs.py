"""Draws as whole numbers: many outputs of a mechanism on one made-up table, each told by one number."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpcore.audit.checks import Draw
from dpcore.audit.events import Outcomes

REACH = 12
"""Noisy counts that are farther from 0 are told as if they were so far only, where several are told together."""


class Noise(Protocol):
    """Whatever adds noise to an array of counts, each with its own."""

    def draw(self, counts: npt.NDArray[np.int64], /) -> npt.NDArray[np.int64]:
        """Return noisy counts."""


class Selecting(Protocol):
    """Whatever selects one of some scores."""

    def draw(self, scores: npt.NDArray[np.int64], /) -> int:
        """Return the place of the selected score."""


def once(draw: Draw) -> Draw:
    """Return draws that are made once and looked at by several checks."""
    return lru_cache(maxsize=1)(draw)


def noisy(mechanism: Noise, counts: Sequence[int]) -> Draw:
    """Return draws of noisy counts: a single one as it is, several as the digits of one number."""

    def draw(count: int) -> Outcomes:
        table = mechanism.draw(np.tile(np.array(counts, dtype=np.int64), (count, 1)))
        return table[:, 0] if len(counts) == 1 else digits(table)

    return draw


def digits(table: npt.NDArray[np.int64]) -> Outcomes:
    """Return each row of noisy counts, cut to what tells something, as one number."""
    places: Outcomes = (2 * REACH + 1) ** np.arange(table.shape[1], dtype=np.int64)
    return (np.clip(table, -REACH, REACH) + REACH) @ places


def selected(mechanism: Selecting, scores: Sequence[int]) -> Draw:
    """Return selections among some scores."""
    candidates = np.array(scores, dtype=np.int64)

    def draw(count: int) -> Outcomes:
        return np.fromiter((mechanism.draw(candidates) for _ in range(count)), dtype=np.int64, count=count)

    return draw
