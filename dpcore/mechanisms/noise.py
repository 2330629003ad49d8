"""Noise on whole counts: discrete Laplace, discrete Gaussian and rounded Gaussian, and the best kind for each currency.

Rounded Gaussian noise is post-processing of continuous noise and so has the same guarantee. Discrete Gaussian noise of the same
sigma does not.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

from dpcore.errors import UsageError
from dpcore.mechanisms.calibration import checked_amount, closest_affordable
from dpcore.mechanisms.descriptions import Description, describe_sensitivity, number_in, sensitivity_in
from dpcore.mechanisms.mechanism import Mechanism
from dpcore.mechanisms.sampling.noise import LARGEST_SCALE, SMALLEST_SCALE, Counts, with_noise
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.privacy.accounting import (
    Currency,
    discrete_laplace_zcdp,
    gaussian_gdp,
    gaussian_zcdp,
    gdp_to_pure,
    pure_gdp,
    spend_amount,
)
from dpcore.privacy.protection import Sensitivity
from dpcore.scalars import is_number, is_whole

LARGEST_SIGMA = 19_999.0
"""The widest noise that has a table. Rounded Gaussian noise is drawn from a table only."""


@dataclass(frozen=True, kw_only=True)
class Noise(Mechanism):
    """Add to each count independent noise of one shape. Each shape has a class with its guarantee.

    Attributes:
        scale: The width of the noise, which is sigma for the Gaussian shapes.
        sensitivity: How far one neighbour step can move the counts.
    """

    shape: ClassVar[Shape]
    width: ClassVar[str] = "sigma"
    """The name of the scale in descriptions, which is that of the literature."""
    widest: ClassVar[float] = LARGEST_SCALE

    scale: float
    sensitivity: Sensitivity

    def __post_init__(self) -> None:
        """Validate the scale and the sensitivity before any draw."""
        if not is_number(self.scale):
            raise UsageError("a noise scale must be a finite number")
        if not SMALLEST_SCALE <= self.scale <= LARGEST_SCALE:
            limits = f"from {SMALLEST_SCALE:g} to {LARGEST_SCALE:g}"
            raise UsageError(f"a noise scale must be {limits}; spend less for more noise, or more for less")
        self._normalise(scale=float(self.scale))
        checked_sensitivity(self.sensitivity)

    @classmethod
    def for_amount(cls, amount: int, *, currency: Currency, sensitivity: Sensitivity) -> Self:
        """Return the mechanism with the least noise that costs at most `amount`."""
        checked_sensitivity(sensitivity)
        scale = closest_affordable(
            lambda scale: cls._price(scale, sensitivity=sensitivity, currency=Currency(currency)),
            amount=amount,
            best=SMALLEST_SCALE,
            cheapest=cls.widest,
            guess=cls._guess(sensitivity, currency=Currency(currency)),
        )
        return cls(scale=scale, sensitivity=sensitivity)

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from its description."""
        return cls(scale=number_in(description, cls.width), sensitivity=sensitivity_in(description))

    @property
    @abstractmethod
    def standard_deviation(self) -> float:
        """The noise's standard deviation, per count."""

    def price(self, currency: Currency) -> int:
        """Return the price of one draw over all counts, as an amount."""
        return spend_amount(self._price(self.scale, sensitivity=self.sensitivity, currency=Currency(currency)))

    def draw(self, counts: Counts) -> Counts:
        """Return noisy counts."""
        return with_noise(counts, shape=self.shape, scale=self.scale)

    def describe(self) -> Description:
        """Return the public parameters, from which anyone can recompute the price."""
        return {"name": self.name, self.width: repr(self.scale), **describe_sensitivity(self.sensitivity)}

    @classmethod
    @abstractmethod
    def _price(cls, scale: float, *, sensitivity: Sensitivity, currency: Currency) -> Fraction:
        """Return the exact price of a scale. Raise for a currency in which this noise has none."""

    @classmethod
    def _guess(cls, sensitivity: Sensitivity, *, currency: Currency) -> Callable[[Fraction], float] | None:  # noqa: ARG003
        """Return the function of an amount that approximates the scale it buys; None if there is no simple formula."""
        return None


class DiscreteLaplace(Noise):
    """Add to each count an independent whole number k with probability proportional to e^(-|k| / scale).

    Guarantee:
        In pure currency l1 / scale, exactly. In zCDP the least rho that covers every movement of whole counts within
        l1 and linf, by `accounting.discrete_laplace_zcdp`, which also proves it. The well-known rho of continuous
        Laplace noise, e + exp(-e) - 1, does not cover discrete noise: a count that moves by 1 costs e tanh(e / 2),
        which is more. In GDP the mu^2 of any mechanism with that pure price; a movement of a single count by 1 costs no
        less. Up to the sampler's distance of 2^-109 per count from this distribution.

    Sensitivity:
        l1 and linf, of whole counts. A movement spread over several counts costs at most as much as one concentrated in
        as few counts as linf allows.

    Randomness:
        The operating system's, through `entropy`: from a table, and beyond scale 2,857 digit by digit. It never depends on
        the counts.

    Reference:
        Ghosh, Roughgarden and Sundararajan 2009 (the geometric mechanism); Dwork, McSherry, Nissim and Smith 2006.
    """

    name: ClassVar[str] = "discrete-laplace"
    shape: ClassVar[Shape] = Shape.LAPLACE
    width: ClassVar[str] = "scale"

    @property
    def standard_deviation(self) -> float:
        """The noise's standard deviation, per count."""
        return 1.0 / (math.sqrt(2.0) * math.sinh(0.5 / self.scale))

    @classmethod
    def _price(cls, scale: float, *, sensitivity: Sensitivity, currency: Currency) -> Fraction:
        if currency is Currency.ZCDP:
            return Fraction(discrete_laplace_zcdp(scale, l1=sensitivity.l1, linf=sensitivity.linf))
        epsilon = sensitivity.l1 / Fraction(scale)
        return epsilon if currency is Currency.PURE else Fraction(pure_gdp(epsilon))

    @classmethod
    def _guess(cls, sensitivity: Sensitivity, *, currency: Currency) -> Callable[[Fraction], float] | None:
        match currency:
            case Currency.PURE:
                return lambda budget: float(sensitivity.l1 / budget)
            case Currency.GDP:
                return lambda budget: sensitivity.l1 / gdp_to_pure(budget)
        return None


class DiscreteGaussian(Noise):
    """Add to each count an independent whole number k with probability proportional to e^(-k^2 / (2 sigma^2)).

    Guarantee:
        In zCDP l2^2 / (2 sigma^2), exactly as for continuous noise. No pure guarantee. The (epsilon, delta) profile of
        continuous noise does not hold for a small sigma, so the price goes through rho only, and there is no price in GDP.
        Up to the sampler's distance of 2^-109 per count from this distribution.

    Sensitivity:
        l2, of whole counts, kept as its square.

    Randomness:
        The operating system's, through `entropy`: from a table, and beyond sigma 19,999 by rejection, where the number of
        tries depends on the noise alone. It never depends on the counts.

    Reference:
        Canonne, Kamath and Steinke 2020, The discrete Gaussian for differential privacy.
    """

    name: ClassVar[str] = "discrete-gaussian"
    shape: ClassVar[Shape] = Shape.GAUSSIAN

    @property
    def standard_deviation(self) -> float:
        """The noise's standard deviation, per count: sigma, or less where sigma is small against the step of 1."""
        if self.scale >= 2.0:
            return self.scale  # they differ by less than 1e-30 of it
        weights = [math.exp(-0.5 * (k / self.scale) ** 2) for k in range(30)]
        return math.sqrt(2 * sum(k * k * weight for k, weight in enumerate(weights)) / (2 * sum(weights) - 1))

    @classmethod
    def _price(cls, scale: float, *, sensitivity: Sensitivity, currency: Currency) -> Fraction:
        if currency is Currency.GDP:
            raise UsageError(
                "discrete Gaussian noise lacks the profile of continuous noise; in gdp use RoundedGaussian"
            )
        return _gaussian_price(scale, sensitivity=sensitivity, currency=currency)

    @classmethod
    def _guess(cls, sensitivity: Sensitivity, *, currency: Currency) -> Callable[[Fraction], float] | None:  # noqa: ARG003  it is always zcdp
        return lambda budget: math.sqrt(sensitivity.l2_squared / (2 * budget))


class RoundedGaussian(Noise):
    """Add to each count an independent normal number of standard deviation sigma, rounded to the nearest whole number.

    Guarantee:
        The noisy counts are post-processing of the continuous Gaussian mechanism, because a whole count plus rounded noise
        is the count plus continuous noise, rounded. So they have all of its guarantees: mu^2 = l2^2 / sigma^2 in Gaussian
        differential privacy, which the discrete Gaussian does not satisfy, and l2^2 / (2 sigma^2) in zCDP. No pure
        guarantee. Up to the sampler's distance of 2^-109 per count from this distribution.

    Sensitivity:
        l2, of whole counts, kept as its square.

    Randomness:
        The operating system's, through `entropy`. It never depends on the counts.

    Reference:
        Dong, Roth and Su 2022, Gaussian differential privacy; Balle and Wang 2018 for its (epsilon, delta) profile.
    """

    name: ClassVar[str] = "rounded-gaussian"
    shape: ClassVar[Shape] = Shape.ROUNDED_GAUSSIAN
    widest: ClassVar[float] = LARGEST_SIGMA

    _TOO_WIDE: ClassVar[str] = f"rounded Gaussian noise has a sigma of at most {LARGEST_SIGMA:,.0f}"

    def __post_init__(self) -> None:
        """Validate sigma and the sensitivity before any draw."""
        super().__post_init__()
        if self.scale > self.widest:
            raise UsageError(f"{self._TOO_WIDE}; spend more, or add discrete Gaussian noise from an account in zcdp")

    @classmethod
    def for_amount(cls, amount: int, *, currency: Currency, sensitivity: Sensitivity) -> Self:
        """Return the mechanism with the least noise that costs at most `amount`."""
        least = cls(scale=cls.widest, sensitivity=sensitivity).price(currency)
        if checked_amount(amount) < least:
            raise UsageError(
                f"{cls._TOO_WIDE}, which costs more than an amount of {amount}; leave at least {least} for this step, keep fewer rows "
                "per unit, or use an account in zcdp"
            )
        return super().for_amount(amount, currency=currency, sensitivity=sensitivity)

    @property
    def standard_deviation(self) -> float:
        """The noise's standard deviation, per count. Rounding adds the variance of a unit interval, unless sigma is small."""
        if self.scale >= 2.0:
            return math.sqrt(self.scale**2 + 1 / 12)  # they differ by less than 1e-30 of it
        beyond = [math.erfc((k - 0.5) / (self.scale * math.sqrt(2.0))) for k in range(1, 30)]
        return math.sqrt(sum((2 * k - 1) * mass for k, mass in enumerate(beyond, start=1)))

    @classmethod
    def _price(cls, scale: float, *, sensitivity: Sensitivity, currency: Currency) -> Fraction:
        return _gaussian_price(scale, sensitivity=sensitivity, currency=currency)


KIND_OF_NOISE: Mapping[Shape, type[Noise]] = {
    kind.shape: kind for kind in (DiscreteLaplace, DiscreteGaussian, RoundedGaussian)
}

LEAST_NOISE: Mapping[Currency, type[Noise]] = {
    Currency.PURE: DiscreteLaplace,
    Currency.ZCDP: DiscreteGaussian,
    Currency.GDP: RoundedGaussian,
}
"""The kind with the least noise for the same amount of each currency."""


def bought_noise(amount: int, *, currency: Currency, sensitivity: Sensitivity, otherwise: str) -> Noise:
    """Return the least noise that costs at most `amount`. If there is none, raise and suggest `otherwise`.

    >>> bought_noise(10**12, currency=Currency.PURE, sensitivity=Sensitivity(3, 9, 3), otherwise="").scale
    3.0
    """
    try:
        return LEAST_NOISE[Currency(currency)].for_amount(amount, currency=currency, sensitivity=sensitivity)
    except UsageError as refused:
        raise UsageError(f"{refused}, or {otherwise}") from None


def one_number(distance: int) -> Sensitivity:
    """Return the sensitivity of a single number that moves by at most `distance`."""
    return Sensitivity(l1=distance, l2_squared=distance**2, linf=distance)


def checked_sensitivity(sensitivity: Sensitivity) -> Sensitivity:
    """Return the sensitivity. Raise if no movement of whole counts can have it."""
    if not isinstance(sensitivity, Sensitivity):
        raise UsageError("a sensitivity must be a Sensitivity with its three norms; derive it from a Protection")
    l1, l2_squared, linf = sensitivity.l1, sensitivity.l2_squared, sensitivity.linf
    if any(not is_whole(norm) for norm in (l1, l2_squared, linf)):
        raise UsageError(
            "a sensitivity's norms must be whole numbers, the L2 norm as its square; derive it from a Protection"
        )
    if not (1 <= linf <= l1 and linf**2 <= l2_squared <= l1 * linf):
        raise UsageError(
            "a sensitivity must have 1 <= linf <= l1 and linf^2 <= l2^2 <= l1 linf; derive it from a Protection"
        )
    return sensitivity


def _gaussian_price(sigma: float, *, sensitivity: Sensitivity, currency: Currency) -> Fraction:
    if currency is Currency.PURE:
        raise UsageError("Gaussian noise has no pure epsilon; use Laplace noise, or an account with a delta")
    price = gaussian_gdp if currency is Currency.GDP else gaussian_zcdp
    return price(l2_squared=sensitivity.l2_squared, sigma=sigma)
