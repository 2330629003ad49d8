"""Gaussian noise calibrated to (epsilon, delta): by the classic bound, and by the exact one.

Both return rounded Gaussian noise, which is post-processing of continuous noise and so has the same guarantee. Discrete
Gaussian noise of the same sigma does not.
"""

from fractions import Fraction

from dpcore.mechanisms.rounded import RoundedGaussian
from dpcore.mechanisms.sampling.noise import checked_sensitivity
from dpcore.privacy.accounting import analytic_gaussian_sigma, classic_gaussian_sigma
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
    return RoundedGaussian(sigma=sigma, sensitivity=sensitivity)


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

    >>> round(analytic_gaussian(epsilon=1, delta=1e-6, sensitivity=Sensitivity(1, 1, 1)).sigma, 6)
    4.224679
    """
    squared = checked_sensitivity(sensitivity).l2_squared
    sigma = analytic_gaussian_sigma(epsilon, delta=delta, l2_squared=squared)
    return RoundedGaussian(sigma=sigma, sensitivity=sensitivity)
