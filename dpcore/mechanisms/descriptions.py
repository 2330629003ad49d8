"""Reading a mechanism back from the public parameters that its ledger row holds."""

from collections.abc import Mapping
from typing import TypeAlias

from dpcore.errors import UsageError
from dpcore.privacy.protection import Sensitivity

Description: TypeAlias = dict[str, str | int]
"""JSON-able: floats are text that reads back as the same float, so that no serialiser can round them."""


def describe_sensitivity(sensitivity: Sensitivity) -> Description:
    """Return the three norms of a sensitivity."""
    return {"l1": sensitivity.l1, "l2_squared": sensitivity.l2_squared, "linf": sensitivity.linf}


def sensitivity_in(description: Mapping[str, object]) -> Sensitivity:
    """Return the sensitivity that a description holds."""
    return Sensitivity(
        l1=whole_in(description, "l1"),
        l2_squared=whole_in(description, "l2_squared"),
        linf=whole_in(description, "linf"),
    )


def number_in(description: Mapping[str, object], key: str) -> float:
    """Return a float that a description holds as text."""
    text = description.get(key)
    if not isinstance(text, str):
        raise UsageError(f"this mechanism's description lacks the number {key}, as text; record it with describe()")
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"this mechanism's {key} does not read as a number; record it with describe()") from None


def whole_in(description: Mapping[str, object], key: str) -> int:
    """Return a whole number that a description holds."""
    number = description.get(key)
    if isinstance(number, bool) or not isinstance(number, int):
        raise UsageError(f"this mechanism's description lacks the whole number {key}; record it with describe()")
    return number


def said(flag: bool) -> str:  # noqa: FBT001  it is what the function is about
    """Return a yes or a no as a description holds it."""
    return "yes" if flag else "no"


def flag_in(description: Mapping[str, object], key: str) -> bool:
    """Return a yes or a no that a description holds."""
    word = description.get(key)
    if word not in {"yes", "no"}:
        raise UsageError(f"this mechanism's description must say {key} yes or no; record it with describe()")
    return word == "yes"
