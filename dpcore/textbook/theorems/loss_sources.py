"""Privacy loss distributions of common mechanisms, each the same in both directions.

Each docstring names the pair that dominates the mechanism. All noise here is log-concave, so the best test compares the
output with a threshold. The larger the shift, the smaller the errors of that test. So the largest shift dominates all smaller ones.
"""

import math
from fractions import Fraction

import numpy as np

from dpcore.errors import UsageError
from dpcore.privacy.accounting.rounding import as_real, float_up, positive, real
from dpcore.textbook.theorems.composition import checked_delta
from dpcore.textbook.theorems.divergences import Pair
from dpcore.textbook.theorems.losses import POINTS, LossDistribution, Masses, on_grid, split

_REACH = 11.5
"""Standard deviations at which normal noise is cut off."""

_BEYOND = 1e-29
"""More than the probability beyond the cut-off, on both sides together. It counts as infinite loss."""

_NODES = 5
"""The nodes per cell at which a smooth density is evaluated, to integrate it by Gaussian quadrature.

The cells are at most a fiftieth of a standard deviation wide. The remainder, w^11 (5!)^4 / (11 (10!)^3) times the tenth derivative, is
then below 1e-14 of a cell's mass even 11.5 deviations out: far less than the margin that `losses.split` adds.
"""

_SMALLEST, _LARGEST = Fraction(1e-12), 1e3
"""The range of epsilon. Above, nobody is protected; below, nothing is lost. The float 1e-12 is a little below 10^-12."""

_WIDEST = 1e5
"""The largest discrete sigma, or shift, whose outcomes are enumerated."""


def approximate_losses(epsilon: Fraction | float, *, delta: Fraction | float) -> LossDistribution:
    """Return the losses that dominate any (epsilon, delta)-DP mechanism.

    The dominating experiment reveals everything with probability delta, and otherwise answers truthfully with odds e^epsilon : 1.

    Reference:
        Kairouz, Oh and Viswanath 2015; Murtagh and Vadhan 2016.
    """
    exact, lost = _epsilon(epsilon), checked_delta(delta)
    rest, true = 1 - as_real(lost), 1 / (1 + real.exp(-as_real(exact)))
    masses = [float(rest * (1 - true)), float(rest * true)]
    infinite = float_up(lost)
    return on_grid(np.array([-float(exact), float(exact)]), np.array(masses), infinite=infinite)


def laplace_losses(epsilon: Fraction | float) -> LossDistribution:
    """Return the losses of continuous Laplace noise at sensitivity / scale = epsilon, on one number.

    Half of all answers have the loss epsilon, e^-epsilon / 2 have -epsilon, and between them the density is e^((L - epsilon) / 2) / 4.
    """
    exact = float(_epsilon(epsilon))
    fineness = math.floor(math.log2(POINTS / 4 / exact))
    nodes, widths = _cells(-exact, exact, fineness)
    masses = widths * np.exp((nodes - exact) / 2) / 4
    losses = np.concatenate([nodes, [exact, -exact]])
    ends = np.concatenate([masses, [0.5, math.exp(-exact) / 2]])
    return split(losses, ends, infinite=0.0, fineness=fineness, most=exact)


def discrete_laplace_losses(scale: Fraction | float, *, shift: int) -> LossDistribution:
    """Return the losses of discrete Laplace noise, P(k) ~ e^(-|k| / scale), on one whole number that moves by at most `shift`."""
    inverse = float(1 / positive(scale, what="a scale", smallest=Fraction(1, 1000), largest=1e9))
    distance = _shift(shift)
    between = np.arange(1, distance)
    stay = math.tanh(inverse / 2)  # the probability of no noise
    end = 1 / (1 + math.exp(-inverse))  # the probability of noise that is not above 0
    losses = np.concatenate([[distance], distance - 2.0 * between, [-distance]]) * inverse
    masses = np.concatenate([[end], stay * np.exp(-inverse * between), [end * math.exp(-inverse * distance)]])
    return on_grid(losses, masses, infinite=0.0)


def gaussian_losses(mu_squared: Fraction | float) -> LossDistribution:
    """Return the losses that dominate any mu-GDP mechanism: normal, of mean mu^2 / 2 and variance mu^2."""
    exact = positive(mu_squared, what="mu squared", smallest=Fraction(1, 10**18), largest=1e6)
    mu = math.sqrt(exact)
    middle, reach = mu * mu / 2, _REACH * mu
    fineness = math.floor(math.log2(POINTS / 2 / reach))
    nodes, widths = _cells(middle - reach, middle + reach, fineness)
    masses = widths * np.exp(-(((nodes - middle) / mu) ** 2) / 2) / (mu * math.sqrt(2 * math.pi))
    return split(nodes, masses, infinite=_BEYOND, fineness=fineness, most=middle + reach)


def discrete_gaussian_losses(sigma: Fraction | float, *, shift: int) -> LossDistribution:
    """Return the losses of discrete Gaussian noise, P(k) ~ e^(-k^2 / (2 sigma^2)), on one whole number that moves by at most `shift`.

    Beyond 11.5 sigma + 1 lies less than beyond 11.5 sigma of normal noise (the tail bound of Canonne, Kamath and Steinke 2020).
    """
    deviation = float(positive(sigma, what="sigma", smallest=Fraction(1, 100), largest=_WIDEST))
    distance = _shift(shift)
    reach = math.ceil(_REACH * deviation) + 2
    noise = np.arange(-reach, reach + 1, dtype=np.float64)
    weights = np.exp(-((noise / deviation) ** 2) / 2)
    losses = distance * (distance - 2 * noise) / (2 * deviation * deviation)
    return on_grid(losses, weights / weights.sum(), infinite=_BEYOND)


def pair_losses(pair: Pair) -> LossDistribution:
    """Return the losses of a pair of finite distributions, in this direction only. A guarantee needs `pair.reversed` as well."""
    infinite = sum((here for here, there in pair.outcomes if there == 0), start=Fraction(0))
    finite = [(here, there) for here, there in pair.outcomes if here > 0 and there > 0]
    above = float_up(infinite)
    if not finite:
        return LossDistribution(0, 0, np.zeros(1), 1.0, 0.0)
    losses = np.array([float(real.ln(as_real(here / there))) for here, there in finite])
    return on_grid(losses, np.array([float(here) for here, _ in finite]), infinite=above)


def _cells(low: float, high: float, fineness: int) -> tuple[Masses, Masses]:
    """Return the quadrature nodes and weights for a density over the grid's cells from low to high."""
    spacing = math.ldexp(1.0, -fineness)
    inner = np.arange(math.floor(low / spacing) + 1, math.ceil(high / spacing)) * spacing
    edges = np.concatenate([[low], inner, [high]])
    middles, halves = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    places, weights = np.polynomial.legendre.leggauss(_NODES)
    nodes = middles[:, None] + halves[:, None] * places[None, :]
    return nodes.ravel(), (halves[:, None] * weights[None, :]).ravel()


def _epsilon(epsilon: Fraction | float) -> Fraction:
    return positive(epsilon, what="epsilon", smallest=_SMALLEST, largest=_LARGEST)


def _shift(shift: int) -> int:
    if isinstance(shift, bool) or not isinstance(shift, int) or not 1 <= shift <= _WIDEST:
        raise UsageError(f"a shift must be a whole number from 1 to {_WIDEST:,.0f}")
    return shift
