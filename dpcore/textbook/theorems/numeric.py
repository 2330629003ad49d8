"""Numerical composition: privacy loss distributions by Google's `dp_accounting`, which the extra `theorems` installs.

The privacy loss of an answer is ln(P / Q), where P and Q are its probabilities on two neighbours. Losses of independent answers add, so
their distributions are convolved. A pair (P, Q) dominates a mechanism if no pair of neighbours has a larger delta at any epsilon. Products
of dominating pairs dominate compositions, including those of adaptively chosen mechanisms (Zhu, Dong and Wang 2022).

Assumptions: the dominating pairs, that is all parameters, are fixed in advance. This is not a filter.

Losses are split between the points of a grid, which errs upwards (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022), but the library convolves by Fourier
transforms in floats, whose error may have either sign: a delta of 1e-12 was seen to be off by several percent. So a result is an estimate, unlike all
others of this package, and a delta below `LEAST_DELTA` is refused.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpcore.errors import UsageError
from dpcore.privacy.accounting.rounding import below_one, positive
from dpcore.textbook.theorems.composition import checked_delta

LEAST_DELTA = 1e-11
"""The least delta of an estimate: far above the error of a Fourier transform."""

_MOST = 10**6
"""The most equal losses. More of them would take minutes."""


@dataclass(frozen=True)
class Losses:
    """Privacy losses that dominate a mechanism in both directions.

    Attributes:
        size: About how large a loss is.
        on_grid: Returns their distribution on a grid of a given spacing, from the library's module of distributions.
        count: How many such losses add up.
    """

    size: float
    on_grid: Callable[[Any, float], Any]
    count: int = 1


def approximate_losses(epsilon: Fraction | float, *, delta: Fraction | float, count: int = 1) -> Losses:
    """Return the losses that dominate any (epsilon, delta)-DP mechanism.

    The dominating experiment reveals everything with probability delta, and otherwise answers truthfully with odds e^epsilon : 1.

    Reference:
        Kairouz, Oh and Viswanath 2015; Murtagh and Vadhan 2016.
    """
    size, lost = float(positive(epsilon, what="epsilon", largest=1e3)), float(checked_delta(delta))

    def on_grid(library: Any, spacing: float) -> Any:
        masses: dict[int, float] = {}
        for loss in (
            size,
            -size,
        ):  # an answer is split between two grid points, so that the sums of P and of Q stay the same
            below = math.floor(loss / spacing)
            above = math.expm1(below * spacing - loss) / math.expm1(-spacing)
            for place, part in ((below, 1 - above), (below + 1, above)):
                masses[place] = masses.get(place, 0.0) + part * (1 - lost) / (1 + math.exp(-loss))
        return library.PrivacyLossDistribution.create_from_rounded_probability(masses, lost, spacing)

    return Losses(size, on_grid, count)


def gaussian_losses(mu_squared: Fraction | float) -> Losses:
    """Return the losses that dominate any mu-GDP mechanism: normal, of mean mu^2 / 2 and variance mu^2."""
    mu = math.sqrt(positive(mu_squared, what="mu squared", largest=1e6))
    return Losses(mu, _noise("gaussian", scale=1 / mu))


def discrete_gaussian_losses(sigma: Fraction | float, *, count: int = 1) -> Losses:
    """Return the losses of discrete Gaussian noise, P(k) ~ e^(-k^2 / (2 sigma^2)), on whole numbers that move by 1 each."""
    scale = float(positive(sigma, what="sigma", smallest=Fraction(1, 100), largest=1e5))
    return Losses(1 / scale, _noise("discrete_gaussian", scale=scale), count)


def laplace_losses(epsilon: Fraction | float) -> Losses:
    """Return the losses of continuous Laplace noise at sensitivity / scale = epsilon, on one number."""
    size = float(positive(epsilon, what="epsilon", largest=1e3))
    return Losses(size, _noise("laplace", scale=1 / size))


def numeric_composition(parts: Sequence[tuple[Losses, int]], *, delta: Fraction | float) -> float:
    """Estimate the epsilon at `delta` of all losses together, each repeated by its count.

    Raises:
        UsageError: If the library is not installed, or `delta` is too small for it or for losses that are infinite.
    """
    allowed = float(below_one(delta))
    counted = [(losses, losses.count * count) for losses, count in parts]
    if not counted:
        raise UsageError("there is nothing to compose; name at least one privacy loss")
    if allowed < LEAST_DELTA:
        raise UsageError(f"numerical composition needs a delta of at least {LEAST_DELTA:g}; choose another theorem")
    if max(count for _, count in counted) > _MOST:
        raise UsageError(f"numerical composition takes at most {_MOST:,} equal losses; choose another theorem")
    library = _library()
    variance = math.fsum(count * losses.size**2 for losses, count in counted)
    spacing = min(losses.size for losses, _ in counted) / 64
    # with 24 standard deviations, both tails together, at most 2^17 points
    spacing = max(spacing, (24 * math.sqrt(variance) + variance) / 2**17)
    tails = allowed * 1e-9
    whole = library.identity(value_discretization_interval=spacing)
    with np.errstate(over="ignore"):  # losses of hundreds, of noise that protects nobody
        for losses, count in counted:
            whole = whole.compose(losses.on_grid(library, spacing).self_compose(count, tails), tails)
    epsilon = float(whole.get_epsilon_for_delta(allowed))
    if math.isinf(epsilon):
        raise UsageError("these mechanisms have an infinite loss with more than this probability; allow a larger delta")
    return epsilon


def _noise(kind: str, *, scale: float) -> Callable[[Any, float], Any]:
    """Return the losses on a grid of noise of a scale, on a number that moves by 1."""

    def on_grid(library: Any, spacing: float) -> Any:
        make = getattr(library, f"from_{kind}_mechanism")
        return make(scale, value_discretization_interval=spacing, use_connect_dots=True)

    return on_grid


def _library() -> Any:
    try:
        from dp_accounting.pld import privacy_loss_distribution  # noqa: PLC0415  an extra, and it takes long to import
    except ImportError:
        raise UsageError(
            "numerical composition needs dp_accounting: run `pip install -e '.[theorems]'` in the folder of dpflow"
        ) from None
    return privacy_loss_distribution
