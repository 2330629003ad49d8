"""Split a sparse vector's epsilon between the noise of its threshold and the noise of its values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from dpcore.errors import UsageError
from dpcore.mechanisms.calibration import closest_affordable
from dpcore.mechanisms.descriptions import Description
from dpcore.mechanisms.exponential import price
from dpcore.mechanisms.sampling.noise import LARGEST_SCALE, SMALLEST_SCALE
from dpcore.privacy.accounting import Currency, gdp_to_pure
from dpcore.privacy.accounting.rounding import float_down, float_up, real

SMALLEST_EPSILON, LARGEST_EPSILON = 1e-12, 1e3
"""Below, every answer is a coin flip; above, nobody is protected."""

_GUESSES: Mapping[Currency, Callable[[Fraction], float]] = {Currency.PURE: float, Currency.GDP: gdp_to_pure}
"""The epsilon that an amount buys, up to rounding. There is no simple formula in zCDP."""


@dataclass(frozen=True)
class Division:
    """The widths of both noises: the scale of a noise is its width / epsilon."""

    threshold: Fraction
    query: Fraction

    def scales(self, epsilon: float) -> tuple[float, float]:
        """Return both scales, rounded up, so that together they never cost more than epsilon."""
        return float_up(self.threshold / Fraction(epsilon)), float_up(self.query / Fraction(epsilon))

    def described_scales(self, epsilon: float) -> Description:
        """Return both scales in the form of a description."""
        threshold, query = self.scales(epsilon)
        return {"threshold_scale": repr(threshold), "query_scale": repr(query)}

    @property
    def limits(self) -> tuple[float, float]:
        """The smallest and the largest epsilon for which both noises can be drawn."""
        least = max(self.threshold, self.query) / Fraction(LARGEST_SCALE)
        most = min(self.threshold, self.query) / Fraction(SMALLEST_SCALE)
        return max(SMALLEST_EPSILON, float_up(least)), min(LARGEST_EPSILON, float_down(most))

    def checked(self, epsilon: float) -> float:
        """Return epsilon as a float. Raise if both noises cannot be drawn for it."""
        least, most = self._usable()
        number = isinstance(epsilon, int | float) and not isinstance(epsilon, bool)
        if not (number and least <= epsilon <= most):  # a NaN fails this too
            raise UsageError(
                f"this sparse vector's epsilon must be from {least:g} to {most:g}; spend an amount in that range, or allow "
                "another number of positives"
            )
        return float(epsilon)

    def affordable(self, amount: int, *, currency: Currency) -> float:
        """Return the largest epsilon that costs at most `amount`."""
        least, most = self._usable()
        return closest_affordable(
            lambda epsilon: price(epsilon, currency=currency, bounded_range=False),
            amount=amount,
            wanted=most,
            cheapest=least,
            guess=_GUESSES.get(Currency(currency)),
        )

    def _usable(self) -> tuple[float, float]:
        least, most = self.limits
        if least > most:
            raise UsageError(
                "both noises of this sparse vector can be drawn for no epsilon; allow fewer positives, or count in larger steps"
            )
        return least, most


def least_noise(*, sensitivity: int, positives: int, monotone: bool) -> Division:
    """Return the division that minimises the variance of a comparison: e1 : e2 = 1 : (2 c)^(2/3), or 1 : c^(2/3)."""
    return _division(
        sensitivity=sensitivity,
        positives=positives,
        monotone=monotone,
        ratio=lambda steps: Fraction(float(real.cbrt(steps * steps))),
    )


def even(*, sensitivity: int, positives: int, monotone: bool) -> Division:
    """Return the division into two equal halves."""
    return _division(sensitivity=sensitivity, positives=positives, monotone=monotone, ratio=lambda _: Fraction(1))


def _division(*, sensitivity: int, positives: int, monotone: bool, ratio: Callable[[int], Fraction]) -> Division:
    for number, what in ((sensitivity, "sensitivity"), (positives, "number of positives")):
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number < 2**31:
            raise UsageError(f"a sparse vector's {what} must be a whole number from 1 to 2,147,483,647")
    if not isinstance(monotone, bool):
        raise UsageError("pass monotone=True if a neighbour step moves all values the same way, else monotone=False")
    steps = positives if monotone else 2 * positives
    share = ratio(steps)
    return Division(threshold=sensitivity * (1 + share), query=sensitivity * steps * (1 + 1 / share))
