"""The kinds of noise on whole numbers, and the best kind for each currency."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NoReturn, TypeAlias

from dpcore.errors import UsageError
from dpcore.mechanisms.gaussian import DiscreteGaussian
from dpcore.mechanisms.laplace import DiscreteLaplace
from dpcore.mechanisms.rounded import RoundedGaussian
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Sensitivity

Noise: TypeAlias = DiscreteGaussian | DiscreteLaplace | RoundedGaussian


class NoiseKind(StrEnum):
    """The kinds of noise on whole numbers. The kind decides which currencies can pay, so it has no default."""

    LAPLACE = DiscreteLaplace.name
    GAUSSIAN = DiscreteGaussian.name
    ROUNDED_GAUSSIAN = RoundedGaussian.name

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:  # noqa: ARG003  Enum's signature; the value is not shown, as it may be private
        raise UsageError(f"noise must be one of: {', '.join(cls)}")

    def at(self, scale: float, *, sensitivity: Sensitivity) -> Noise:
        """Return noise of this kind at a scale, for counts with this sensitivity."""
        if self is NoiseKind.LAPLACE:
            return DiscreteLaplace(scale=scale, sensitivity=sensitivity)
        kind = DiscreteGaussian if self is NoiseKind.GAUSSIAN else RoundedGaussian
        return kind(sigma=scale, sensitivity=sensitivity)


LEAST_NOISE: Mapping[Currency, type[Noise]] = {
    Currency.PURE: DiscreteLaplace,
    Currency.ZCDP: DiscreteGaussian,
    Currency.GDP: RoundedGaussian,
}
"""The kind with the least noise for the same amount of each currency."""


def bought_noise(
    amount: int, *, currency: Currency, sensitivity: Sensitivity, otherwise: str
) -> tuple[NoiseKind, float]:
    """Return the kind and the least scale of noise that costs at most `amount`. If there is none, raise and suggest `otherwise`.

    >>> bought_noise(10**12, currency=Currency.PURE, sensitivity=Sensitivity(3, 9, 3), otherwise="")
    (<NoiseKind.LAPLACE: 'discrete-laplace'>, 3.0)
    """
    try:
        noise = LEAST_NOISE[Currency(currency)].for_amount(amount, currency=currency, sensitivity=sensitivity)
    except UsageError as refused:
        raise UsageError(f"{refused}, or {otherwise}") from None
    return NoiseKind(noise.name), noise.scale if isinstance(noise, DiscreteLaplace) else noise.sigma


def kind_in(description: Mapping[str, object]) -> NoiseKind:
    """Return the kind of noise in a description."""
    return NoiseKind(str(description.get("noise")))


def one_number(distance: int) -> Sensitivity:
    """Return the sensitivity of a single number that moves by at most `distance`."""
    return Sensitivity(l1=distance, l2_squared=distance**2, linf=distance)
