"""Write a mechanism's public parameters to a ledger row, and read them back."""

from collections.abc import Mapping
from typing import TypeAlias

from dpcore.errors import UsageError
from dpcore.privacy.protection import Sensitivity

Description: TypeAlias = dict[str, str | int]
"""JSON-serialisable. Floats are stored as text that parses to the same float, so that no serialiser can round them."""


def describe_sensitivity(sensitivity: Sensitivity) -> Description:
    """Return the three norms of a sensitivity."""
    return {"l1": sensitivity.l1, "l2_squared": sensitivity.l2_squared, "linf": sensitivity.linf}


def sensitivity_in(description: Mapping[str, object]) -> Sensitivity:
    """Return the sensitivity in a description."""
    return Sensitivity(
        l1=whole_in(description, "l1"),
        l2_squared=whole_in(description, "l2_squared"),
        linf=whole_in(description, "linf"),
    )


def number_in(description: Mapping[str, object], key: str) -> float:
    """Return a float, which a description holds as text."""
    text = description.get(key)
    if not isinstance(text, str):
        raise UsageError(f"this mechanism's description lacks the number {key}, as text; record it with describe()")
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"this mechanism's {key} is not a number; record it with describe()") from None


def whole_in(description: Mapping[str, object], key: str) -> int:
    """Return a whole number in a description."""
    number = description.get(key)
    if isinstance(number, bool) or not isinstance(number, int):
        raise UsageError(f"this mechanism's description lacks the whole number {key}; record it with describe()")
    return number


def flag_text(flag: bool) -> str:  # noqa: FBT001  the flag is the only argument
    """Return a flag in the form of a description: yes or no."""
    return "yes" if flag else "no"


def flag_in(description: Mapping[str, object], key: str) -> bool:
    """Return a flag in a description."""
    word = description.get(key)
    if word not in {"yes", "no"}:
        raise UsageError(f"this mechanism's description must say {key} yes or no; record it with describe()")
    return word == "yes"
