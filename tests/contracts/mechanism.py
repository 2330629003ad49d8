"""Streams of random words that a test makes up, or records and gives again."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np


def fixed_stream(words: Iterable[int]) -> Callable[[int], np.ndarray]:
    """A stream of these words, in order."""
    remaining = iter(words)
    return lambda count: np.array(list(itertools.islice(remaining, count)), dtype=np.uint64)


def recorded_words(seed: int) -> Any:
    """A stream of words that is the same each time it is started."""
    generator = np.random.default_rng(seed)
    return lambda count: generator.integers(0, 2**64, size=count, dtype=np.uint64)
