"""The normal distribution at 400 bits, and Newton's method from the safe side of a root."""

from collections.abc import Callable
from typing import Any

from dpcore.privacy.accounting.rounding import real

_ROOT_TWO = real.sqrt(2)
_ROOT_TWO_PI = real.sqrt(2 * real.pi)


def upper_tail(x: Any) -> Any:
    """Return the probability that a standard normal number lies above x."""
    return real.erfc(x / _ROOT_TWO) / 2


def density(x: Any) -> Any:
    """Return the standard normal density."""
    return real.exp(-x * x / 2) / _ROOT_TWO_PI


def log_odds(x: Any) -> Any:
    """Return the logarithm of the odds, Phi(x) : Phi(-x), that a standard normal number lies below x.

    Its slope is h(x) + h(-x), with h the hazard rate, density / upper tail. h is convex (Sampford 1953), so the slope, which
    is even, rises with |x|: log odds are convex above 0.
    """
    return real.ln(1 / upper_tail(x) - 1)


def log_odds_quantile(odds: Any) -> Any:
    """Return the x above 0 with the given log odds, or a little more: by convexity no Newton step falls below it."""

    def better(x: Any) -> Any:
        tail = upper_tail(x)
        return x - (log_odds(x) - odds) * tail * (1 - tail) / density(x)

    # two upper bounds: from the slope at 0, and from a tail of at most e^(-x^2 / 2) / 2
    return newton(min(odds * _ROOT_TWO_PI / 4, real.sqrt(2 * odds)), better=better)


def newton(start: Any, *, better: Callable[[Any], Any]) -> Any:
    """Return the root on which Newton's steps converge.

    The root of a convex or concave function is approached from one side only. Each caller states which side, and why: on that
    side a small error is safe, so the number of steps does not matter.
    """
    # far more steps than are ever taken: a handful near a root, and one for each halving of the distance before
    for _ in range(200):
        last, start = start, better(start)
        if abs(start - last) <= abs(start) * real.mpf(2) ** -64:
            break  # the next change would be of the order of this one's square
    return start
