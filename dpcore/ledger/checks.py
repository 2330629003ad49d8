"""Validation of the ledger's arguments, before anything is locked or written."""

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from fractions import Fraction
from typing import TypeVar

from dpcore.errors import UsageError
from dpcore.ledger.chain import canonical, is_sha256
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, budget_of
from dpcore.scalars import is_whole

Choice = TypeVar("Choice", bound=StrEnum)

LARGEST = 2**62
"""The largest amount: the sum of any two still fits a database's 64-bit integer."""
LONGEST = 500
"""The longest name, in characters."""
LONGEST_LEASE = 7 * 86_400
"""The longest lease, in seconds: a dead worker cannot keep others waiting for longer."""


def checked_amount(amount: object, *, what: str = "an amount") -> int:
    """Return the amount. Raise unless it is a positive integer: a float or a zero is always a mistake of the caller."""
    if not is_whole(amount):
        raise UsageError(
            f"{what} must be a whole number, in multiples of 1e-12 of the currency; round a spend up, a cap down"
        )
    if not 0 < amount <= LARGEST:
        raise UsageError(f"{what} must be at least 1 and at most {LARGEST}, in multiples of 1e-12 of the currency")
    return amount


def checked_seconds(seconds: object) -> int:
    """Return the length of a lease; 0 gives the run back. Raise if it is out of range."""
    if not is_whole(seconds) or not 0 <= seconds <= LONGEST_LEASE:
        raise UsageError(f"a lease lasts a whole number of seconds, at least 0 and at most {LONGEST_LEASE}")
    return seconds


def checked_text(text: object, *, what: str, longest: int = LONGEST) -> str:
    """Return the text. Raise unless it is safe to print and compare."""
    if not isinstance(text, str) or not text.isprintable() or text != text.strip() or not 0 < len(text) <= longest:
        raise UsageError(f"{what} must be printable text of 1 to {longest} characters, without spaces around it")
    return text


def checked_names(names: object, *, what: str) -> tuple[str, ...]:
    """Return the names sorted and without duplicates. Raise if there are none, or one is not a valid name."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise UsageError(f"{what}s are given as a list of names")
    distinct = {checked_text(name, what=f"a {what}'s name") for name in names}
    if not distinct:
        raise UsageError(f"name at least one {what}; a charge must touch one or more")
    return tuple(sorted(distinct))


def checked_mechanism(mechanism: Mapping[str, object]) -> str:
    """Return the mechanism's parameters as canonical JSON. Raise if they would not survive the round trip."""
    if not mechanism:
        raise UsageError("a mechanism is recorded with its parameters, so that its price can be recomputed; give them")
    try:
        text = canonical(dict(mechanism))
    except (TypeError, ValueError) as error:
        raise UsageError("a mechanism is recorded as JSON: finite numbers, text, lists and dictionaries") from error
    if "\\u" in text:  # not every database accepts every character
        raise UsageError("a mechanism is recorded in ASCII; use only ASCII characters in its parameters")
    return text


def checked_output(output: object) -> bytes:
    """Return an operation's output. Raise unless it is bytes."""
    if not isinstance(output, bytes):
        raise UsageError("an operation's output is stored as bytes; serialise it first")
    return output


def require_manifest_hash(manifest: str | None, digest: object) -> None:
    """Raise unless manifest and hash are given together, and the hash is a SHA-256."""
    if (manifest is None) != (digest is None):
        raise UsageError("a manifest is recorded with its SHA-256; give both, or neither")
    if digest is not None and not is_sha256(digest):
        raise UsageError("a manifest's SHA-256 is 64 hexadecimal digits in lower case")


def checked_choice(choices: type[Choice], value: object, *, what: str) -> Choice:
    """Return the member of an enumeration with this name. Raise if there is none; `what` begins the message."""
    try:
        return choices(str(value))
    except ValueError as error:
        raise UsageError(f"{what} one of: {', '.join(choices)}") from error


def require_across_applies(*, unit: str, blocks_by: str | None) -> None:
    """Raise if a cap across blocks would bound nothing: there are no blocks, or every unit lies in a single block."""
    if blocks_by is None:
        raise UsageError("a cap across blocks needs blocks; define them with --blocks, or leave --across-blocks out")
    if unit == "row":
        raise UsageError("a row lies in one block, and the block's cap bounds it already; leave --across-blocks out")


def checked_across(cap: object, *, epsilon: float | None, currency: Currency, delta: float) -> int:
    """Return a cap across blocks. Raise if it exceeds its declared epsilon."""
    if epsilon is None:
        raise UsageError("a cap across blocks is declared with its epsilon; give both, or neither")
    return checked_budget(currency=currency, cap=cap, epsilon=epsilon, delta=delta)


def checked_budget(*, currency: Currency, cap: object, epsilon: float, delta: float) -> int:
    """Return the cap. Raise if the declared epsilon and delta are invalid, or the cap exceeds them."""
    amount = checked_amount(cap, what="an account's cap")
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise UsageError("an account's epsilon must be a finite number above 0")
    if currency is Currency.PURE:
        if delta != 0:
            raise UsageError("an account in pure epsilon has delta 0; for another delta open it in zcdp")
        # A decimal such as 0.3 differs from its nearest float. The steward may have meant either, so the larger one is the limit.
        most = max(Fraction(epsilon), Fraction(repr(float(epsilon)))) * AMOUNT_OF_ONE
    else:
        if not 0 < delta < 1:
            raise UsageError(f"an account in {currency} needs a delta between 0 and 1, both excluded")
        most = Fraction(budget_of(epsilon, delta=delta, currency=currency)[1])
    if amount > most:
        raise UsageError("a cap must not exceed its epsilon converted to the currency; round it down")
    return amount
