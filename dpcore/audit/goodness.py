"""The chi-square goodness-of-fit test of draws against exact probabilities."""

from typing import Any, TypeAlias

import mpmath
import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError

Numbers: TypeAlias = npt.NDArray[np.float64]

FEWEST_EXPECTED = 25.0
"""The expected count that an outcome needs to avoid pooling. The chi-square approximation then holds far into the tail."""


def chi_square_p(observed: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """Return the p-value of the chi-square test of observed against expected counts. Rare outcomes are pooled.

    Reference: Pearson 1900.

    >>> chi_square_p(np.array([480, 520]), np.array([500.0, 500.0])) > 0.2
    True
    >>> chi_square_p(np.array([300, 700]), np.array([500.0, 500.0])) < 1e-30
    True

    Args:
        observed: The number of draws of each outcome.
        expected: The expected number of draws of each outcome.
    """
    if observed.shape != expected.shape or observed.ndim != 1 or observed.size < 2:
        raise UsageError("a chi-square test needs an observed and an expected count for each of at least two outcomes")
    seen, mean = _pooled(observed.astype(np.float64), expected.astype(np.float64))
    statistic = float(((seen - mean) ** 2 / mean).sum())
    return float(mpmath.gammainc((len(mean) - 1) / 2, statistic / 2, mpmath.inf, regularized=True))


def _pooled(observed: Numbers, expected: Numbers) -> tuple[Numbers, Numbers]:
    """Pool the outcomes that are too rare, and add the next rarest until the pool is large enough."""
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
