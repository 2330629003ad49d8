"""Which noise each currency buys the least of, by a name and a scale."""

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
    """The noises on whole numbers. It decides which currencies can pay, and has no default."""

    LAPLACE = DiscreteLaplace.name
    GAUSSIAN = DiscreteGaussian.name
    ROUNDED_GAUSSIAN = RoundedGaussian.name

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:  # noqa: ARG003  Enum's own signature; it may be private no less than public
        raise UsageError(f"noise must be one of: {', '.join(cls)}")

    def at(self, scale: float, *, sensitivity: Sensitivity) -> Noise:
        """Return the noise of a scale, for counts that move so far."""
        if self is NoiseKind.LAPLACE:
            return DiscreteLaplace(scale=scale, sensitivity=sensitivity)
        kind = DiscreteGaussian if self is NoiseKind.GAUSSIAN else RoundedGaussian
        return kind(sigma=scale, sensitivity=sensitivity)


LEAST_NOISE: Mapping[Currency, type[Noise]] = {
    Currency.PURE: DiscreteLaplace,
    Currency.ZCDP: DiscreteGaussian,
    Currency.GDP: RoundedGaussian,
}
"""The noise that each currency buys the least of."""


def bought_noise(
    amount: int, *, currency: Currency, sensitivity: Sensitivity, otherwise: str
) -> tuple[NoiseKind, float]:
    """Return the noise with the least scale that costs at most `amount`; where there is none, say what else would help.

    >>> bought_noise(10**12, currency=Currency.PURE, sensitivity=Sensitivity(3, 9, 3), otherwise="")
    (<NoiseKind.LAPLACE: 'discrete-laplace'>, 3.0)
    """
    try:
        noise = LEAST_NOISE[Currency(currency)].for_amount(amount, currency=currency, sensitivity=sensitivity)
    except UsageError as refused:
        raise UsageError(f"{refused}, or {otherwise}") from None
    return NoiseKind(noise.name), noise.scale if isinstance(noise, DiscreteLaplace) else noise.sigma


def kind_in(description: Mapping[str, object]) -> NoiseKind:
    """Return the kind of noise that a description holds."""
    return NoiseKind(str(description.get("noise")))


def one_number(distance: int) -> Sensitivity:
    """Return the sensitivity of a single number that moves by at most a distance."""
    return Sensitivity(l1=distance, l2_squared=distance**2, linf=distance)
