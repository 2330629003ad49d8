"""The interactive part of the sparse vector technique: values compared one after another with one noisy threshold."""

import os
import threading
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.mechanisms.sampling.noise import with_noise
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.private import Private

_BATCH = 1 << 14
"""Values compared at a time. A small batch wastes little noise if the last positive comes early."""


class Session(Private):
    """Hold a noisy threshold, which must be neither shown nor used twice.

    A session therefore cannot be copied, pickled or used in a forked process. Threads that share a session share its
    positives. To compare each value with a threshold of its own, ask about the differences with a threshold of 0.
    """

    __slots__ = ("_bar", "_lock", "_owner", "_positives_left", "_query_scale")

    def __init__(self, threshold: int, *, scales: tuple[float, float], positives: int) -> None:
        if not _whole(threshold) or not -(2**63) <= threshold < 2**63:
            raise UsageError("a threshold must be a 64-bit integer; round it, or count in larger steps")
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._positives_left = positives
        self._query_scale = scales[1]
        self._bar = int(threshold) + _noises(1, scale=scales[0])[0]

    @property
    def positives_left(self) -> int:
        """How many positive answers are left. It follows from the answers and is as public as they are."""
        return self._positives_left

    def ask(self, value: int) -> bool:
        """Return whether the value plus its noise reaches the noisy threshold."""
        if not _whole(value):
            raise UsageError("a value to compare must be a whole number; round it to a grid first")
        self._check_owner()
        with self._lock:
            return self._answers([int(value)])[0]

    def ask_all(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return the answer for each value in order, up to the last positive one. There may be fewer answers than values."""
        if not isinstance(values, np.ndarray) or values.dtype != np.int64 or values.ndim != 1:
            raise UsageError("values must be a one-dimensional array of 64-bit integers; round them to a grid first")
        self._check_owner()
        answers: list[bool] = []
        with self._lock:
            for start in range(
                0, max(len(values), 1), _BATCH
            ):  # at least once: an ended session raises for no values too
                answers += self._answers(values[start : start + _BATCH].tolist())
                if not self._positives_left:
                    break
        return np.array(answers, dtype=np.bool_)

    def _answers(self, values: list[int]) -> list[bool]:
        if not self._positives_left:
            raise UsageError("this session has given its last positive answer; begin a new one, which is charged again")
        answers: list[bool] = []
        # Python's integers never wrap around. The proof needs this: a larger value is never less likely to be above.
        for value, noise in zip(values, _noises(len(values), scale=self._query_scale), strict=True):
            answers.append(value + noise >= self._bar)
            if answers[-1]:
                self._positives_left -= 1
                if not self._positives_left:
                    break
        return answers

    def _check_owner(self) -> None:
        """Raise in a forked process, before waiting for a lock that no thread there will release."""
        if os.getpid() != self._owner:
            raise UsageError(
                "this session began in another process; ask there, or begin a new one, which is charged again"
            )

    def _refuse(self, what: str) -> NoReturn:
        raise TypeError(
            f"a session cannot be {what}: its noise may be used once; begin a new one, which is charged again"
        )


def _whole(number: object) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _noises(count: int, *, scale: float) -> list[int]:
    noises: list[int] = with_noise(np.zeros(count, dtype=np.int64), shape=Shape.LAPLACE, scale=scale).tolist()
    return noises
