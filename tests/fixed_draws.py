"""The same noise in every run of a test: a failure is then the code's, and never chance's.

Noise is drawn from a generator that begins anew for each test, from the test's name. Other processes that a test starts, forked ones
too, draw from the operating system: the same words in a killed run and in the one that goes on would hide noise that is drawn twice.
A test of the source itself is marked `system_entropy`.
"""

import hashlib
import os
import threading

import numpy as np
import numpy.typing as npt
import pytest

from dpcore.mechanisms.sampling import entropy

SYSTEM = entropy.random_words


_AHEAD = 4096
"""The words that are made at a time: an audit asks millions of times for one or two."""


class FixedWords:
    """Words from a seeded generator in the process that made it, and the operating system's in every other."""

    def __init__(self, name: str) -> None:
        self._process = os.getpid()
        self._next_words = np.random.PCG64(list(hashlib.sha256(name.encode()).digest())).random_raw
        self._made = self._next_words(0)
        self._used = 0
        self._lock = threading.Lock()

    def __call__(self, count: int) -> npt.NDArray[np.uint64]:
        if os.getpid() != self._process:
            return SYSTEM(count)
        with self._lock:
            end = self._used + count
            if end > self._made.size:
                rest = self._made[self._used :]
                self._made = np.concatenate([rest, self._next_words(max(_AHEAD, count) - rest.size)])
                self._made.flags.writeable = False  # as the operating system's words are
                self._used, end = 0, count
            words = self._made[self._used : end]
            self._used = end
        return words


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin the test's draws, before its fixtures are made."""
    entropy.random_words = SYSTEM if item.get_closest_marker("system_entropy") else FixedWords(item.nodeid)
