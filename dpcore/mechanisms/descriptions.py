"""Write a mechanism's public parameters, with its protection, to a ledger row, and read them back."""

from collections.abc import Mapping
from typing import TypeAlias

from dpcore.errors import SpecError, UsageError
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity

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


def describe_protection(protection: Protection) -> Description:
    """Return the parameters that a sensitivity is derived from.

    >>> describe_protection(Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE))
    {'unit': 'row', 'rows_per_unit': 1, 'neighbours': 'add-remove'}
    """
    described: Description = {
        "unit": protection.unit,
        "rows_per_unit": protection.rows_per_unit,
        "neighbours": protection.neighbours.value,
    }
    if protection.weight is not None:
        described |= {"weight": protection.weight, "row_weight": protection.row_weight}
    return described


def protection_in(description: Mapping[str, object]) -> Protection:
    """Return the protection that a description holds."""
    unit, weight = description.get("unit"), description.get("weight")
    if not isinstance(unit, str) or not (weight is None or isinstance(weight, str)):
        raise UsageError("this mechanism's description does not name its unit; record it with describe()")
    try:
        return Protection(
            unit=unit,
            rows_per_unit=whole_in(description, "rows_per_unit"),
            neighbours=Neighbours(str(description.get("neighbours"))),
            weight=weight,
            row_weight=1 if weight is None else whole_in(description, "row_weight"),
        )
    except ValueError:
        raise UsageError(f"this mechanism's neighbours must be one of: {', '.join(Neighbours)}") from None
    except SpecError as error:
        raise UsageError(f"this mechanism's description has an invalid protection: {error}") from None


def checked_protection(protection: Protection) -> Protection:
    """Return a protection from which sensitivities can be derived. Raise for anything else."""
    if not isinstance(protection, Protection):
        raise UsageError("protection must be a Protection; declare its unit and its neighbours")
    if protection.weight is None and protection.row_weight != 1:
        raise UsageError("rows that count more than once need a weight column; name it in the Protection")
    return protection
