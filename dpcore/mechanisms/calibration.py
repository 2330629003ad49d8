"""The least noise that an amount of budget pays for."""

from collections.abc import Callable
from fractions import Fraction

from dpcore.errors import UsageError
from dpcore.privacy.accounting import AMOUNT_OF_ONE
from dpcore.scalars import is_whole

_NEAR = 1e-15
"""The relative error of a good guess: a few neighbouring floats."""


def checked_amount(amount: int) -> int:
    """Return an amount to spend. Raise unless it is a whole number of at least 1."""
    if not is_whole(amount) or amount < 1:
        raise UsageError(
            "an amount to spend must be a whole number of at least 1; leave more of the budget for this step"
        )
    return amount


def closest_affordable(
    price: Callable[[float], Fraction],
    *,
    amount: int,
    best: float,
    cheapest: float,
    guess: Callable[[Fraction], float] | None = None,
) -> float:
    """Return the parameter nearest to `best` whose price is at most `amount`, to the last bit of a float.

    Args:
        price: The price of a parameter, which falls from `best` to `cheapest`.
        amount: The amount that may be spent.
        best: The parameter with the least noise.
        cheapest: The parameter with the most noise.
        guess: An approximation of what an amount buys. It saves most of the search where a price takes long to evaluate,
            and does not change the result.
    """
    checked_amount(amount)

    def affordable(parameter: float) -> bool:
        return price(parameter) * AMOUNT_OF_ONE <= amount

    if affordable(best):
        return best
    if not affordable(cheapest):
        raise UsageError(
            f"an amount of {amount} buys no usable answer even with the most noise; leave more of the budget for this step"
        )
    if guess:
        rough = guess(Fraction(amount, AMOUNT_OF_ONE))
        for place in (rough * (1 - _NEAR), rough * (1 + _NEAR)):
            if min(cheapest, best) < place < max(cheapest, best):
                cheapest, best = (place, best) if affordable(place) else (cheapest, place)
    while (middle := cheapest + (best - cheapest) / 2) not in {cheapest, best}:
        cheapest, best = (middle, best) if affordable(middle) else (cheapest, middle)
    return cheapest
