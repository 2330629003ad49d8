"""Which numbers of a query are shares or cannot be negative, and how counts that they are computed from move together."""

from collections.abc import Iterator, Mapping

import numpy as np

from dpcore.answers.cut_leaves import Sides
from dpcore.answers.query import (
    Aggregate,
    All,
    Always,
    AnyOf,
    Arithmetic,
    Condition,
    Constant,
    Count,
    Number,
    Overall,
    Sum,
)
from dpcore.models.model import Weights

Values = Mapping[Aggregate, Weights]


def never_negative(number: Number) -> bool:
    """Return whether a number cannot be below zero, because it is computed from counts without a difference.

    >>> never_negative(Arithmetic("/", Count(), Overall(Count()))), never_negative(Arithmetic("-", Count(), Count()))
    (True, False)
    """
    match number:
        case Count() | Overall(Count()):
            return True
        case Constant(value):
            return value >= 0
        case Arithmetic(operator, left, right):
            return operator in "+*/" and never_negative(left) and never_negative(right)
    return False


def is_share(number: Number) -> bool:
    """Return whether a number cannot be above one: a count is divided by one of the same rows and maybe others.

    >>> is_share(Arithmetic("/", Count(), Overall(Count()))), is_share(Arithmetic("/", Count(), Constant(2)))
    (True, False)
    """
    match number:
        case Arithmetic("/", Count(part), Count(whole) | Overall(Count(whole))):
            return implies(part, whole)
    return False


def implies(part: Condition, whole: Condition) -> bool:
    """Return whether all rows that satisfy a condition satisfy another one, as far as their forms show it.

    >>> from dpcore.answers.query import IsNull, Not, Term
    >>> null = IsNull(Term(0))
    >>> implies(All((null, Always(truth=True))), AnyOf((null, Not(null)))), implies(Always(truth=True), null)
    (True, False)
    """
    if part == whole:
        return True
    match whole:
        case Always(truth):
            return truth
        case All(parts):
            return all(implies(part, each) for each in parts)
        case AnyOf(parts) if any(implies(part, each) for each in parts):
            return True
    match part:
        case All(parts):
            return any(implies(each, whole) for each in parts)
    return False


def moved(number: Number, values: Values, sides: Mapping[Count | Sum, Sides]) -> Iterator[Values]:
    """Yield the values of a number's aggregates, each time with counts that have moved to one side for one reason.

    A share's two counts often count the same values of a leaf. Then they move together, as far as both of them may.

    Args:
        number: The number.
        values: The values of its aggregates.
        sides: The squares of how far each of its counts and sums may move.
    """
    match number:
        case Arithmetic("/", Count() as part, Count() as whole) if is_share(number) and part != whole:
            for sign, own, other in (
                (-1, sides[part].below, sides[whole].below),
                (1, sides[part].above, sides[whole].above),
            ):
                both = np.minimum(own, other)
                for of_part, of_whole in ((own - both, 0.0), (0.0, other - both), (both, both)):
                    less = np.clip(values[part] + sign * np.sqrt(of_part), 0.0, None)
                    yield {**values, part: less, whole: np.maximum(values[whole] + sign * np.sqrt(of_whole), less)}
        case _:
            for moving, each in sides.items():
                less = values[moving] - np.sqrt(each.below)
                yield {**values, moving: np.maximum(less, 0.0) if isinstance(moving, Count) else less}
                yield {**values, moving: values[moving] + np.sqrt(each.above)}
