"""The normal distribution at 400 bits, and roots that are approached from their safe side."""

from collections.abc import Callable
from typing import Any

from dpcore.privacy.accounting.rounding import real

_ROOT_TWO = real.sqrt(2)
_ROOT_TWO_PI = real.sqrt(2 * real.pi)

_FINE = real.mpf(2) ** -64
"""A step that changes so little is the last one: Newton's next would be of the order of its square."""

_STEPS = 200
"""Far more than are ever taken: a handful once a root is near, one for each halving of the distance before."""


def upper_tail(x: Any) -> Any:
    """Return the probability that a standard normal number lies above x."""
    return real.erfc(x / _ROOT_TWO) / 2


def density(x: Any) -> Any:
    """Return the standard normal density."""
    return real.exp(-x * x / 2) / _ROOT_TWO_PI


def log_odds(x: Any) -> Any:
    """Return the logarithm of the odds, Phi(x) : Phi(-x), that a standard normal number lies below x.

    Its slope is h(x) + h(-x), with h the hazard rate, density / upper tail. h is convex (Sampford 1953), so that the
    slope, which is even, rises with |x|: log odds are convex above 0.
    """
    return real.ln(1 / upper_tail(x) - 1)


def log_odds_quantile(odds: Any) -> Any:
    """Return the x above 0 with the given log odds, from above: by convexity no step of Newton's falls below it."""

    def better(x: Any) -> Any:
        tail = upper_tail(x)
        return x - (log_odds(x) - odds) * tail * (1 - tail) / density(x)

    # two bounds from above: the slope at 0, and a tail of at most e^(-x^2 / 2) / 2
    return newton(min(odds * _ROOT_TWO_PI / 4, real.sqrt(2 * odds)), better=better)


def upper_quantile(probability: Any) -> Any:
    """Return the x with the given upper tail, a probability above 0 and below 1, from above.

    The logarithm of the upper tail is concave and falls: a tangent lies above it, so that each step of Newton's ends at or beyond the root.
    """

    def better(x: Any) -> Any:
        tail = upper_tail(x)
        return x + real.ln(tail / probability) * tail / density(x)

    return newton(real.sqrt(-2 * real.ln(probability)), better=better)


def newton(start: Any, *, better: Callable[[Any], Any]) -> Any:
    """Return where Newton's steps settle.

    The root of a convex or concave function is approached from one side only. Each caller says from which, and why: it
    is the side on which being a little off is safe, so that it does not matter after how many steps this ends.
    """
    for _ in range(_STEPS):
        last, start = start, better(start)
        if abs(start - last) <= abs(start) * _FINE:
            break
    return start
