"""What a ledger accepts: every argument is checked before anything is locked or written."""

import json
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dpcore.accounting import UNIT, Currency
from dpcore.errors import UsageError
from dpcore.ledger.chain import canonical
from dpcore.privacy import Neighbours

LARGEST = 2**62
"""The largest amount: any two of them still add up within a database's 64-bit integer."""
LONGEST = 500
"""The longest name, in characters."""


def checked_amount(amount: object, *, what: str = "an amount") -> int:
    """Return a positive whole number of units, or refuse it: a float or a zero here is always a mistake upstream."""
    if isinstance(amount, bool) or not isinstance(amount, int):
        raise UsageError(
            f"{what} must be a whole number of units (1e-12 of the currency); round a spend up, a cap down"
        )
    if not 0 < amount <= LARGEST:
        raise UsageError(f"{what} must be at least 1 unit and at most {LARGEST} units")
    return amount


def checked_text(text: object, *, what: str) -> str:
    """Return a name that is safe to print and compare, or refuse it."""
    if not isinstance(text, str) or not text.isprintable() or text != text.strip() or not 0 < len(text) <= LONGEST:
        raise UsageError(f"{what} must be printable text of 1 to {LONGEST} characters, without spaces around it")
    return text


def checked_mechanism(mechanism: Mapping[str, object]) -> dict[str, Any]:
    """Return the mechanism's parameters as they will read back from JSON, or refuse what would not."""
    try:
        parameters: dict[str, Any] = json.loads(canonical(dict(mechanism)))
    except (TypeError, ValueError) as error:
        raise UsageError("a mechanism is recorded as JSON: finite numbers, text, lists and dictionaries") from error
    if not parameters:
        raise UsageError("a mechanism is recorded with its parameters, so that anyone can account again: name them")
    return parameters


def checked_output(output: object) -> bytes:
    """Return an operation's output, or refuse what is not bytes."""
    if not isinstance(output, bytes):
        raise UsageError("an operation's output is stored as bytes; serialise it first")
    return output


def checked_currency(currency: object) -> Currency:
    """Return the currency by that name, or refuse it."""
    try:
        return Currency(str(currency))
    except ValueError as error:
        raise UsageError(f"the currency must be one of: {', '.join(Currency)}") from error


def checked_neighbours(neighbours: object) -> Neighbours:
    """Return the neighbouring relation by that name, or refuse it."""
    try:
        return Neighbours(str(neighbours))
    except ValueError as error:
        raise UsageError(f"the neighbours must be one of: {', '.join(Neighbours)}") from error


def checked_budget(*, currency: Currency, cap: object, epsilon: float, delta: float) -> int:
    """Return the cap, or refuse a declared total that it cannot stand for."""
    units = checked_amount(cap, what="an account's cap")
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise UsageError("an account's epsilon must be a finite number above 0")
    if currency is not Currency.PURE:
        if not 0 < delta < 1:
            raise UsageError(f"an account in {currency} needs a delta between 0 and 1, both excluded")
        return units
    if delta != 0:
        raise UsageError("an account in pure epsilon has delta 0; for another delta open it in zcdp")
    # A decimal like 0.3 is not exactly its float: whichever of the two is larger is what the steward may have meant.
    declared = max(Fraction(epsilon), Fraction(repr(float(epsilon)))) * UNIT
    if units > declared:
        raise UsageError("an account's cap must not exceed its declared epsilon; round it down")
    return units
