"""Which numbers of a query are shares or cannot be negative."""

from dpcore.answers.query import All, Always, AnyOf, Arithmetic, Condition, Constant, Count, Number, Overall


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
    >>> implies(All((null, Always())), AnyOf((null, Not(null)))), implies(Always(), null)
    (True, False)
    """
    if part == whole:
        return True
    match whole:
        case Always(truth):
            return truth
        case All(parts):
            return all(implies(part, required) for required in parts)
        case AnyOf(parts) if any(implies(part, allowed) for allowed in parts):
            return True
    match part:
        case All(parts):
            return any(implies(stated, whole) for stated in parts)
    return False
