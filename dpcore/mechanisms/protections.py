"""Write a mechanism's protection to its description, and read it back from a ledger row."""

from collections.abc import Mapping

from dpcore.errors import SpecError, UsageError
from dpcore.mechanisms.descriptions import Description, whole_in
from dpcore.privacy.protection import Neighbours, Protection


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
