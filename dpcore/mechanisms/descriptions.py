"""Write a mechanism's public parameters, with its protection, to a ledger row, and read them back."""

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from fractions import Fraction
from types import UnionType
from typing import Any, NamedTuple, NoReturn, TypeAlias, get_args, get_origin

from dpcore.errors import SpecError, UsageError
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity
from dpcore.scalars import is_whole

Description: TypeAlias = dict[str, str | int]
"""JSON-serialisable. Floats are stored as text that parses to the same float, so that no serialiser can round them."""


class Named(StrEnum):
    """A choice by its name, which a description holds. An unknown name is rejected, and not shown, as it may be private."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:  # noqa: ARG003  Enum's signature
        raise UsageError(f"{cls.__name__} must be one of: {', '.join(cls)}")


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
    if not is_whole(number):
        raise UsageError(f"this mechanism's description lacks the whole number {key}; record it with describe()")
    return number


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


class Form(NamedTuple):
    """How a value of one type stands in a description: as the entry of its name, or as entries of its own."""

    write: Callable[[str, Any], Description]
    read: Callable[[Mapping[str, object], str], Any]


def form_of(kind: Any) -> Form:
    """Return the form of a declared type. What is read as text or as a list is left to a constructor to check."""
    if get_origin(kind) is UnionType:
        form = form_of(get_args(kind)[0])
        return Form(
            lambda name, value: {} if value is None else form.write(name, value),
            lambda description, name: form.read(description, name) if name in description else None,
        )
    if get_origin(kind) is tuple:
        return Form(lambda name, value: {name: json.dumps(value, default=str)}, _list_in)
    if kind in _FORMS:
        return _FORMS[kind]
    if issubclass(kind, Named):
        return Form(lambda name, value: {name: value.value}, lambda description, name: kind(str(description.get(name))))
    return Form(lambda _, value: value.describe(), lambda description, _: kind.from_description(description))


def _list_in(description: Mapping[str, object], name: str) -> tuple[Any, ...]:
    try:
        listed = json.loads(str(description.get(name)))
        return tuple(tuple(part) if isinstance(part, list) else part for part in listed)
    except (ValueError, TypeError):
        raise UsageError(f"this description does not list its {name}; record it with describe()") from None


_FORMS: Mapping[type, Form] = {
    bool: Form(lambda name, value: {name: "yes" if value else "no"}, flag_in),
    int: Form(lambda name, value: {name: value}, whole_in),
    float: Form(lambda name, value: {name: repr(value)}, number_in),
    Fraction: Form(lambda name, value: {name: str(value)}, lambda description, name: str(description.get(name))),
    Neighbours: Form(lambda name, value: {name: value.value}, lambda description, name: str(description.get(name))),
    Sensitivity: Form(lambda _, value: describe_sensitivity(value), lambda description, _: sensitivity_in(description)),
    Protection: Form(lambda _, value: describe_protection(value), lambda description, _: protection_in(description)),
}
