"""Rounded Gaussian noise that is calibrated to (epsilon, delta): the classic bound, and the least sigma."""

from fractions import Fraction
from typing import Any

from dpcore.errors import UsageError
from dpcore.mechanisms.noise import RoundedGaussian, checked_sensitivity
from dpcore.privacy.accounting import epsilon_to_gdp
from dpcore.privacy.accounting.rounding import as_real, below_one, positive, real, rounded_up
from dpcore.privacy.protection import Sensitivity


def classic_gaussian(
    *, epsilon: Fraction | float, delta: Fraction | float, sensitivity: Sensitivity
) -> RoundedGaussian:
    """Return noise of the classic sigma, l2 sqrt(2 ln(1.25 / delta)) / epsilon, rounded up.

    Guarantee:
        (epsilon, delta), for 0 < epsilon < 1 only. From 1 on the bound is not proved, and for large epsilons it is false:
        at epsilon 10 and delta 1e-10 it gives less noise than is needed. `analytic_gaussian` always gives less noise
        where both hold. This bound is here because the literature quotes it.

    Sensitivity:
        l2, of whole counts, kept as its square.

    Randomness:
        That of `RoundedGaussian`.

    Reference:
        Dwork and Roth 2014, Thm. A.1.

    >>> classic_gaussian(epsilon=1, delta=1e-6, sensitivity=Sensitivity(1, 1, 1))
    Traceback (most recent call last):
    dpcore.errors.UsageError: the classic Gaussian bound holds for an epsilon below 1 only; use analytic_gaussian, which holds for any
    """
    squared = checked_sensitivity(sensitivity).l2_squared
    sigma = classic_gaussian_sigma(epsilon, delta=delta, l2_squared=squared)
    return RoundedGaussian(scale=sigma, sensitivity=sensitivity)


def analytic_gaussian(
    *, epsilon: Fraction | float, delta: Fraction | float, sensitivity: Sensitivity
) -> RoundedGaussian:
    """Return noise of the least sigma that keeps (epsilon, delta), rounded up.

    Guarantee:
        (epsilon, delta), for any epsilon: sigma = l2 / mu, with the largest mu for which Phi(mu/2 - epsilon/mu) -
        e^epsilon Phi(-mu/2 - epsilon/mu) <= delta. One part in 10^12 is left to rounding: a sigma that is smaller by more
        than that does not satisfy (epsilon, delta).

    Sensitivity:
        l2, of whole counts, kept as its square.

    Randomness:
        That of `RoundedGaussian`.

    Reference:
        Balle and Wang 2018, Thm. 8 of arXiv:1805.06530v2.

    >>> round(analytic_gaussian(epsilon=1, delta=1e-6, sensitivity=Sensitivity(1, 1, 1)).scale, 6)
    4.224679
    """
    squared = checked_sensitivity(sensitivity).l2_squared
    sigma = analytic_gaussian_sigma(epsilon, delta=delta, l2_squared=squared)
    return RoundedGaussian(scale=sigma, sensitivity=sensitivity)


def analytic_gaussian_sigma(
    epsilon: Fraction | float, *, delta: Fraction | float, l2_squared: Fraction | float
) -> float:
    """Return the least sigma of continuous Gaussian noise that satisfies (epsilon, delta), rounded up by at most 1e-12 of it.

    Assumptions:
        Continuous noise, or post-processing of counts with such noise. Not for the discrete Gaussian, whose profile is above.

    Reference:
        Balle and Wang 2018, Thm. 8 of arXiv:1805.06530v2.

    >>> 3.7306316348159 < analytic_gaussian_sigma(1.0, delta=1e-5, l2_squared=1) < 3.73063163483
    True
    """
    return rounded_up(real.sqrt(_checked_square(l2_squared) / as_real(epsilon_to_gdp(epsilon, delta=delta))))


def classic_gaussian_sigma(
    epsilon: Fraction | float, *, delta: Fraction | float, l2_squared: Fraction | float
) -> float:
    """Return the sigma of the classic bound, l2 sqrt(2 ln(1.25 / delta)) / epsilon, rounded up.

    Assumptions:
        An epsilon below 1; larger ones are rejected, because the bound is not proved for them and is wrong for large ones.
        Continuous noise.

    Reference:
        Dwork and Roth 2014, Thm. A.1.
    """
    exact = positive(epsilon, what="epsilon", smallest=Fraction(1e-12))
    if exact >= 1:
        raise UsageError(
            "the classic Gaussian bound holds for an epsilon below 1 only; use analytic_gaussian, which holds for any"
        )
    return rounded_up(
        real.sqrt(2 * _checked_square(l2_squared) * real.ln(as_real(Fraction(5, 4) / below_one(delta))))
        / as_real(exact)
    )


def _checked_square(l2_squared: Fraction | float) -> Any:
    return as_real(positive(l2_squared, what="an L2 sensitivity", smallest=Fraction(1, 10**30), largest=1e30))
