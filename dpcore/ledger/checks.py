"""What a ledger accepts: every argument is checked before anything is locked or written."""

import math
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

from dpcore.errors import UsageError
from dpcore.ledger.chain import canonical
from dpcore.ledger.rows import AllowanceKind
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, budget_of
from dpcore.privacy.protection import Neighbours

LARGEST = 2**62
"""The largest amount: any two of them still add up within a database's 64-bit integer."""
LONGEST = 500
"""The longest name, in characters."""
LONGEST_LEASE = 7 * 86_400
"""The longest time that a dead worker can keep others waiting, in seconds."""


def checked_amount(amount: object, *, what: str = "an amount") -> int:
    """Return a positive amount, or refuse it: a float or a zero here is always a mistake upstream."""
    if isinstance(amount, bool) or not isinstance(amount, int):
        raise UsageError(
            f"{what} must be a whole number, of multiples of 1e-12 of the currency; round a spend up, a cap down"
        )
    if not 0 < amount <= LARGEST:
        raise UsageError(f"{what} must be at least 1 and at most {LARGEST}, in multiples of 1e-12 of the currency")
    return amount


def checked_seconds(seconds: object) -> int:
    """Return the time of a lease, or refuse it."""
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 < seconds <= LONGEST_LEASE:
        raise UsageError(f"a lease is for a whole number of seconds, at least 1 and at most {LONGEST_LEASE}")
    return seconds


def checked_text(text: object, *, what: str, longest: int = LONGEST) -> str:
    """Return a name that is safe to print and compare, or refuse it."""
    if not isinstance(text, str) or not text.isprintable() or text != text.strip() or not 0 < len(text) <= longest:
        raise UsageError(f"{what} must be printable text of 1 to {longest} characters, without spaces around it")
    return text


def checked_names(names: object, *, what: str) -> tuple[str, ...]:
    """Return some names in order, each once, or refuse an empty set and what is not a name."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise UsageError(f"{what}s are given as a list of names")
    found = {checked_text(name, what=f"a {what}'s name") for name in names}
    if not found:
        raise UsageError(f"name at least one {what}; a charge that touches none is not a charge")
    return tuple(sorted(found))


def checked_mechanism(mechanism: Mapping[str, object]) -> str:
    """Return the mechanism's parameters as canonical text, or refuse what would not read back."""
    if not mechanism:
        raise UsageError("a mechanism is recorded with its parameters, so that anyone can account again: name them")
    try:
        text = canonical(dict(mechanism))
    except (TypeError, ValueError) as error:
        raise UsageError("a mechanism is recorded as JSON: finite numbers, text, lists and dictionaries") from error
    if "\\u" in text:  # not every database takes every letter
        raise UsageError("a mechanism is recorded in plain ASCII; name its parameters so")
    return text


def checked_output(output: object) -> bytes:
    """Return an operation's output, or refuse what is not bytes."""
    if not isinstance(output, bytes):
        raise UsageError("an operation's output is stored as bytes; serialise it first")
    return output


def require_manifest_hash(manifest: str | None, digest: object) -> None:
    """Refuse a manifest without its hash, a hash without a manifest, and what is no SHA-256."""
    if (manifest is None) != (digest is None):
        raise UsageError("a manifest is recorded with its SHA-256; give both, or neither")
    if digest is not None and not (isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest)):
        raise UsageError("a manifest's SHA-256 is 64 hexadecimal digits in lower case")


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


def checked_kind(kind: object) -> AllowanceKind:
    """Return the kind of allowance by that name, or refuse it."""
    try:
        return AllowanceKind(str(kind))
    except ValueError as error:
        raise UsageError(f"an allowance is for one of: {', '.join(AllowanceKind)}") from error


def require_across_applies(*, unit: str, blocks_by: str | None) -> None:
    """Refuse a cap across blocks where it would bound nothing: without blocks, or where the unit lies in one of them."""
    if blocks_by is None:
        raise UsageError(
            "a cap across blocks needs blocks; say what they are with --blocks, or leave --across-blocks out"
        )
    if unit == "row":
        raise UsageError("a row lies in one block, whose cap bounds it already; leave --across-blocks out")


def checked_across(cap: object, *, epsilon: float | None, currency: Currency, delta: float) -> int:
    """Return a cap across blocks, or refuse one that its declared epsilon cannot stand for."""
    if epsilon is None:
        raise UsageError("a cap across blocks is declared with its epsilon; give both, or neither")
    return checked_budget(currency=currency, cap=cap, epsilon=epsilon, delta=delta)


def checked_budget(*, currency: Currency, cap: object, epsilon: float, delta: float) -> int:
    """Return the cap, or refuse a declared total that it cannot stand for."""
    amount = checked_amount(cap, what="an account's cap")
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise UsageError("an account's epsilon must be a finite number above 0")
    if currency is Currency.PURE:
        if delta != 0:
            raise UsageError("an account in pure epsilon has delta 0; for another delta open it in zcdp")
        # A decimal like 0.3 is not exactly its float: whichever of the two is larger is what the steward may have meant.
        most = max(Fraction(epsilon), Fraction(repr(float(epsilon)))) * AMOUNT_OF_ONE
    else:
        if not 0 < delta < 1:
            raise UsageError(f"an account in {currency} needs a delta between 0 and 1, both excluded")
        most = Fraction(budget_of(epsilon, delta=delta, currency=currency)[1])
    if amount > most:
        raise UsageError("a cap must not exceed what its epsilon amounts to in the currency; round it down")
    return amount
