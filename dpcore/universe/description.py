"""Columns as JSON, so that a reader of a release can restore what the run has found: bins, intervals and their masses."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from datetime import date, datetime
from functools import cache
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from dpcore.errors import SpecError, UsageError
from dpcore.universe.attribute import Attribute, Outside
from dpcore.universe.categorical import Boolean, Categorical
from dpcore.universe.fine_days import FineDate, FineDatetime
from dpcore.universe.fine_numbers import FineInteger, FineNumber, Scale
from dpcore.universe.leaves import Leaves
from dpcore.universe.numeric import Integer, Number, UnevenInteger
from dpcore.universe.temporal import Date, Datetime, Every

KINDS: Mapping[str, type[Attribute]] = {
    "categorical": Categorical,
    "boolean": Boolean,
    "integer": Integer,
    "uneven integer": UnevenInteger,
    "number": Number,
    "date": Date,
    "datetime": Datetime,
    "fine integer": FineInteger,
    "fine number": FineNumber,
    "fine date": FineDate,
    "fine datetime": FineDatetime,
}
_NAMES = {kind: name for name, kind in KINDS.items()}
_LONG = ("starts", "masses")  # thousands of whole numbers: one text is shorter than a list with a line for each


def describe(attribute: Attribute) -> dict[str, Any]:
    """Return a column as JSON data, from which `restored` makes the same column again.

    >>> describe(FineInteger(minimum=0, maximum=9, starts=(4,)))["starts"], describe(Boolean())["kind"]
    ('4', 'boolean')
    """
    public = {each.name: _plain(each.name, getattr(attribute, each.name)) for each in fields(attribute) if each.init}
    return {"kind": _NAMES[type(attribute)], **public}


def _plain(name: str, value: Any) -> Any:  # noqa: PLR0911  a table, one line for each type
    match value:
        case Leaves():
            return {each.name: _plain(each.name, getattr(value, each.name)) for each in fields(value)}
        case Scale():
            return asdict(value)
        case date():
            return value.isoformat()
        case Outside() | Every():
            return str(value)
        case tuple() if name in _LONG:
            return " ".join(map(str, value))
        case tuple():
            return list(value)
    return value


def restored(described: Mapping[str, Any]) -> Attribute:
    """Return the column that was described.

    Raises:
        UsageError: If this is no description.

    >>> number = Number((0, 0.1, 500), missing=True)
    >>> restored(describe(number)) == number
    True
    """
    try:
        kind = KINDS[described["kind"]]
        parts = {  # each must be there, null if it is none
            name: checker.validate_python(_restored(name, described[name], kind), strict=True)
            for name, checker in _checkers(kind).items()
        }
        return kind(**parts)
    except (KeyError, TypeError, ValueError, AttributeError, SpecError, UsageError):
        raise UsageError("the description of a column is damaged; copy the release again") from None


@cache
def _checkers(kind: type[Attribute]) -> dict[str, TypeAdapter[Any]]:
    """Return what checks the type of each part of a description."""
    types = get_type_hints(kind)
    return {each.name: TypeAdapter(types[each.name]) for each in fields(kind) if each.init}


def _restored(name: str, value: Any, kind: type[Attribute]) -> Any:  # noqa: PLR0911  a table, one line for each field
    if value is None:
        return None
    if name in ("minimum", "maximum") and issubclass(kind, Date | Datetime):
        moment: Callable[[str], date] = datetime.fromisoformat if issubclass(kind, Datetime) else date.fromisoformat
        return moment(value)
    match name:
        case "leaves" | "week":
            return Leaves(_numbers(value["starts"]), _numbers(value["masses"]), size=value["size"])
        case "starts":
            return _numbers(value)
        case "scale":
            return Scale(**value)
        case "outside":
            return Outside(value)
        case "every":
            return Every(value)
    return tuple(value) if isinstance(value, list) else value


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))
