"""The least noise that an amount of budget pays for."""

from collections.abc import Callable
from fractions import Fraction

from dpcore.accounting import UNIT
from dpcore.errors import UsageError


def closest_affordable(price: Callable[[float], Fraction], *, units: int, wanted: float, cheapest: float) -> float:
    """Return the parameter nearest to `wanted` whose price is at most `units`, to the last bit of a float.

    Args:
        price: What a parameter costs, in epsilon or rho; it falls from `wanted` to `cheapest`.
        units: The amount that may be spent.
        wanted: The parameter with the least noise.
        cheapest: The parameter with the most noise.
    """
    if isinstance(units, bool) or not isinstance(units, int) or units < 1:
        raise UsageError("an amount to spend must be at least 1 unit; leave more of the budget for this step")
    if price(wanted) * UNIT <= units:
        return wanted
    if price(cheapest) * UNIT > units:
        raise UsageError(
            f"{units} units buy no usable answer even with the most noise; leave more of the budget for this step"
        )
    while (middle := cheapest + (wanted - cheapest) / 2) not in {cheapest, wanted}:
        if price(middle) * UNIT <= units:
            cheapest = middle
        else:
            wanted = middle
    return cheapest
