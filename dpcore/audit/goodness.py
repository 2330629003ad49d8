"""Whether draws have the distribution that they should have: the chi-square test against exact probabilities."""

from typing import Any, TypeAlias

import mpmath
import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError

Numbers: TypeAlias = npt.NDArray[np.float64]

FEWEST_EXPECTED = 25.0
"""Draws that an outcome must have on average to be looked at by itself: the statistic then has its distribution far into the tail."""


def chi_square_p(observed: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """Return the probability of an agreement this bad, if the draws have the expected distribution. Rare outcomes are pooled.

    Reference: Pearson 1900.

    >>> chi_square_p(np.array([480, 520]), np.array([500.0, 500.0])) > 0.2
    True
    >>> chi_square_p(np.array([300, 700]), np.array([500.0, 500.0])) < 1e-30
    True

    Args:
        observed: How often each outcome was drawn.
        expected: How often it is drawn on average.
    """
    if observed.shape != expected.shape or observed.ndim != 1 or observed.size < 2:
        raise UsageError("a chi-square test needs how often each of at least two outcomes was drawn, and was expected")
    seen, mean = _pooled(observed.astype(np.float64), expected.astype(np.float64))
    statistic = float(((seen - mean) ** 2 / mean).sum())
    return float(mpmath.gammainc((len(mean) - 1) / 2, statistic / 2, mpmath.inf, regularized=True))


def _pooled(observed: Numbers, expected: Numbers) -> tuple[Numbers, Numbers]:
    """Take the outcomes that are too rare together, and those with the next rarest if they still are."""
    order = np.argsort(expected)
    seen, mean = observed[order], expected[order]
    first = int(np.searchsorted(np.cumsum(mean), FEWEST_EXPECTED))
    rare = max(first, int(np.count_nonzero(mean < FEWEST_EXPECTED)) - 1)
    if rare >= len(mean) - 1:
        raise UsageError("too few draws for a chi-square test; draw more")
    return (
        np.concatenate([[seen[: rare + 1].sum()], seen[rare + 1 :]]),
        np.concatenate([[mean[: rare + 1].sum()], mean[rare + 1 :]]),
    )
