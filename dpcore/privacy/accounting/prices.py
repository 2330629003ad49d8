"""The prices of mechanisms in epsilon, rho or mu squared.

Rational closed forms are exact fractions. The others are floats, rounded up.
"""

from fractions import Fraction
from typing import Any

from dpcore.errors import UsageError
from dpcore.privacy.accounting.normal import log_odds_quantile
from dpcore.privacy.accounting.rounding import as_real, positive, real, rounded_up

_SMALLEST, _LARGEST = Fraction(1, 10**30), 1e6
"""The range of epsilon. Below, differences of nearly equal numbers lose their digits; no account goes above."""


def pure_zcdp(epsilon: Fraction | float) -> float:
    """Return the least rho that covers every epsilon-DP mechanism: epsilon tanh(epsilon / 2).

    Every epsilon-DP mechanism is post-processing of randomised response (Kairouz, Oh and Viswanath 2015), whose Renyi
    divergence per order is largest as the order tends to 1, where it is this. It is slightly less than the usual
    epsilon^2 / 2.
    """
    exact = as_real(_epsilon(epsilon))
    return rounded_up(exact * real.tanh(exact / 2))


def discrete_laplace_zcdp(scale: Fraction | float, *, l1: int, linf: int) -> float:
    """Return the rho of discrete Laplace noise on whole counts that move by at most `l1` in all and `linf` each.

    With t = 1 / scale, one count that moves by d costs f(d) = t d - (1 - e^(-t d)) t / sinh t. This is the
    Kullback-Leibler divergence, t (E|k - d| - E|k|), and no order a has a larger Renyi divergence per order. Proof:
    write K(u) for the logarithm of E e^(u L), with L the privacy loss divided by t, under the distribution midway
    between the two (the normalised root of their product). There L is symmetric on -d, -d + 2, ..., d: uniform, but
    with both ends heavier by v = 1 / (e^t - 1). The divergence of order a is [K(u) - K(t/2)] / (a - 1) with u = (a -
    1/2) t, so it stays below a f(d) for all a > 1 if K'' falls with u > 0. It does: the numerator of K''' is a
    polynomial in v. Its constant term belongs to the uniform distribution, K = ln sinh (d + 1) u - ln sinh u, and is
    negative since x^3 cosh x / sinh^3 x falls. Its other terms are sums of sinh(n u), n > 0, times the sum of (x -
    n/3)(y - n/3)(z - n/3) over points x + y + z = n of which one, two or all three are ends; summed up, none is
    positive.

    For d = 1 this is epsilon tanh(epsilon / 2), the same as for any pure mechanism; for a large scale it tends to the
    continuous noise's epsilon + e^-epsilon - 1, from above.

    Divergences of independent noises add. f is convex with f(0) = 0 (its second difference is 2 t P(k = d)), so a
    movement costs most when it is concentrated: as many counts as possible move by `linf`, and one by the rest of `l1`.
    """
    if not 1 <= linf <= l1:
        raise UsageError("sensitivities must be whole numbers with 1 <= linf <= l1")
    inverse = as_real(
        1 / positive(scale, what="a scale", smallest=1 / Fraction(_LARGEST), largest=float(1 / _SMALLEST))
    )
    damping = inverse / real.sinh(inverse)

    def one_count(distance: int) -> Any:
        return inverse * distance - (1 - real.exp(-inverse * distance)) * damping

    whole, rest = divmod(l1, linf)
    return rounded_up(whole * one_count(linf) + one_count(rest))


def exponential_zcdp(epsilon: Fraction | float) -> Fraction:
    """Return the rho of the exponential mechanism, P ~ e^(epsilon score / (2 sensitivity)): epsilon^2 / 8.

    Reference: Cesar and Rogers 2021, from its bounded range (Dong, Durfee and Rogers 2020).
    """
    return _epsilon(epsilon) ** 2 / 8


def gaussian_zcdp(*, l2_squared: Fraction | int, sigma: Fraction | float) -> Fraction:
    """Return the rho of Gaussian noise, continuous or discrete on whole counts: l2^2 / (2 sigma^2).

    Reference: Bun and Steinke 2016; Canonne, Kamath and Steinke 2020 for discrete noise on vectors.
    """
    return positive(l2_squared, what="an L2 sensitivity") / (2 * positive(sigma, what="sigma") ** 2)


def pure_gdp(epsilon: Fraction | float) -> float:
    """Return the least mu^2 that covers every epsilon-DP mechanism: mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)).

    Every epsilon-DP mechanism is post-processing of randomised response. The errors of the best tests between its two
    inputs lie on two straight lines, which meet where both errors are 1 / (1 + e^epsilon). Those of N(0, 1) against
    N(mu, 1) lie on a convex curve with the same ends, so they are nowhere larger if they are not larger at that point.

    A small epsilon costs mu = sqrt(pi / 2) epsilon, a quarter more than Gaussian noise of the same Kullback-Leibler
    divergence. A large one costs about mu^2 = 8 epsilon.

    Reference: Dong, Roth and Su 2022; Kairouz, Oh and Viswanath 2015.
    """
    exact = positive(epsilon, what="epsilon", smallest=_SMALLEST, largest=1e30)
    return rounded_up(4 * log_odds_quantile(as_real(exact)) ** 2)


def exponential_gdp(epsilon: Fraction | float) -> float:
    """Return the least mu^2 that covers the exponential mechanism: that of a pure epsilon / 2.

    On any two neighbours its privacy loss lies in an interval of length epsilon, [t - epsilon, t] for some t: its range
    is bounded (Dong, Durfee and Rogers 2020). So the curve of the best tests' errors, convex and with slopes within
    those limits, lies nowhere below two straight lines that meet where an event has probabilities q here and p there
    with ln(p / q) = t and ln((1 - p) / (1 - q)) = t - epsilon. For any t their log odds differ by epsilon, and the
    required mu is the distance of their normal quantiles. Log odds as a function of the quantile have a slope that is
    even and rises with the distance from 0 (see `normal.log_odds`), so among the intervals over which they rise by
    epsilon the longest is the one around 0: t = epsilon / 2, which is randomised response with epsilon / 2.
    """
    return pure_gdp(positive(epsilon, what="epsilon") / 2)


def gaussian_gdp(*, l2_squared: Fraction | int, sigma: Fraction | float) -> Fraction:
    """Return the mu^2 of continuous Gaussian noise, or of post-processing of counts with such noise: l2^2 / sigma^2.

    It does not hold for the discrete Gaussian, whose outputs on neighbours can be told apart a little better.

    Reference: Dong, Roth and Su 2022, for the Gaussian mechanism.
    """
    return 2 * gaussian_zcdp(l2_squared=l2_squared, sigma=sigma)


def _epsilon(epsilon: Fraction | float) -> Fraction:
    return positive(epsilon, what="epsilon", smallest=_SMALLEST, largest=_LARGEST)
