"""How accurate an answer must be, and which noise makes it so."""

import math
import re
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from dpcore.answers.intervals import checked_level
from dpcore.errors import UsageError
from dpcore.mechanisms.noise import LEAST_NOISE, Noise
from dpcore.mechanisms.pricing import widest_noise
from dpcore.models.model import Weights
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Sensitivity

_PERCENT = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*%\s*")
_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(points?)?\s*")
SLACK = 1e-9  # rounding errors of a half width, as a share of it
LOWEST_LEVEL = 0.5  # below, an interval says so little that a purchase for it would teach nothing
LEAST = 0.5  # the least noise that is sold: with less, most counts would be exact
LEAST_WIDTH = 1e-100  # half widths below are zero: their squares cannot be computed
CLOSE, STEPS = 1e-10, 200  # how close noise comes to what is wanted, and after how many steps at most


@dataclass(frozen=True)
class Within:
    """The wanted half width of every interval, and its level.

    Attributes:
        size: In units of the number itself: rows of a count, the column's units of a mean; or a share of the number, if `relative`.
        relative: Whether `size` is a share.
        level: The probability that an interval contains the true number.
    """

    size: float
    relative: bool
    level: float

    @classmethod
    def of(cls, within: float | str, *, level: float = 0.95) -> "Within":
        """Read a wanted accuracy: a number such as 50, or a text such as "50", "2%", or "2 points" for a share of rows, which are 0.02.

        >>> Within.of("2%"), Within.of(50).size, Within.of("2 points").size
        (Within(size=0.02, relative=True, level=0.95), 50.0, 0.02)
        """
        if checked_level(level) < LOWEST_LEVEL:
            raise UsageError(f"the level of a bought answer is at least {LOWEST_LEVEL}; use 0.95 for 95 % intervals")
        if isinstance(within, str):
            percent, number = _PERCENT.fullmatch(within), _NUMBER.fullmatch(within)
            if percent is None and number is None:
                raise _unreadable()
            read, relative = percent or number, percent is not None
            hundredths = relative or (number is not None and number[2] is not None)
            size = float(read[1]) / (100 if hundredths else 1) if read else 0.0
        else:
            if isinstance(within, bool) or not isinstance(within, int | float):
                raise _unreadable()
            size, relative = float(within), False
        if not (math.isfinite(size) and size > 0):
            raise _unreadable()
        return cls(size, relative, level)

    @property
    def normal(self) -> float:
        """How many standard errors a normal interval of this level extends to either side."""
        return NormalDist().inv_cdf((1 + self.level) / 2)

    @property
    def words(self) -> str:
        """The accuracy as text."""
        return f"{100 * self.size:g} %" if self.relative else f"{self.size:g}"

    def covers(self, other: "Within") -> bool:
        """Return whether an answer that is as accurate as this is as accurate as another accuracy wants."""
        return self.relative == other.relative and self.size <= other.size and self.level >= other.level

    def half_widths(self, values: Weights) -> Weights:
        """Return the wanted half width of each number. A share is of what is expected now, before anything is bought."""
        return np.abs(values) * self.size if self.relative else np.full(values.shape, self.size)

    def satisfied(self, halves: Weights, values: Weights) -> bool:
        """Return whether all half widths are as wanted. A number that does not exist, such as a mean of no rows, has none."""
        wanted = self.half_widths(values) * (1 + SLACK)
        return bool(np.all((halves <= wanted) | np.isnan(values)))


def _unreadable() -> UsageError:
    return UsageError(
        'say how accurate, with a number above 0: within 50 for an interval of 50 to either side, "2%" of the number, or "2 points" of a share'
    )


def needed_noise(
    halves: Weights, wanted: Weights, per_noise: Weights, *, normal: float, rounding: Weights | float = 0.0
) -> float:
    """Return the largest standard deviation of noise that makes all numbers accurate enough, combined with what is known.

    A number with standard error s, averaged by inverse variances with a bought one of variance v, has the variance 1 / (1 / s^2 + 1 / v).
    So v = 1 / (1 / a^2 - 1 / s^2) for a wanted standard error a. A sum of k cells of noise sigma has the variance k sigma^2.

    Args:
        halves: The half width of each number now.
        wanted: The wanted half width of each.
        per_noise: The variance of each bought number, at noise of standard deviation 1: of a count, the cells that it is summed from.
        normal: How many standard errors a half width has.
        rounding: What rounding adds to the standard error of each, whatever the noise.

    >>> round(needed_noise(np.array([100.0]), np.array([60.0]), np.array([1.0]), normal=1.0), 6)
    75.0
    """
    short = halves > wanted * (1 + SLACK)
    if not short.any():
        return math.inf
    if (wanted[short] < LEAST_WIDTH).any():
        return 0.0  # a share of nothing, or as good as exact
    known, target = halves[short] / normal, wanted[short] / normal
    bought = 1 / np.sqrt(1 / target**2 - 1 / known**2) - np.broadcast_to(rounding, halves.shape)[short]
    return max(float((bought / np.sqrt(per_noise[short])).min()), 0.0)


def cheapest(noise: float, *, currency: Currency, sensitivity: Sensitivity) -> Noise | None:
    """Return the cheapest noise with at most this standard deviation; None if no noise is as small, or none as wide.

    >>> cheapest(10.0, currency=Currency.ZCDP, sensitivity=Sensitivity(1, 1, 1)).price(Currency.ZCDP)
    5000000000
    """
    kind = LEAST_NOISE[currency]
    if noise < LEAST:
        return None
    least = widest_noise(currency, sensitivity).price(currency)
    widest = kind.for_amount(least, currency=currency, sensitivity=sensitivity)
    if noise >= widest.standard_deviation:
        return widest
    scale = noise
    for _ in range(STEPS):  # the standard deviation is almost in proportion to the scale
        made = kind(scale=scale, sensitivity=sensitivity)
        if 1 - CLOSE <= made.standard_deviation / noise <= 1:
            break
        scale *= noise / made.standard_deviation * (1 - CLOSE / 2)
    return made
