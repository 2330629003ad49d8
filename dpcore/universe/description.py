"""Columns as JSON, so that a reader of a release can restore what the run has found: bins, intervals and their masses."""

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from dpcore.errors import SpecError, UsageError
from dpcore.universe.attribute import Attribute
from dpcore.universe.categorical import Boolean, Categorical
from dpcore.universe.fine_days import FineDate, FineDatetime
from dpcore.universe.fine_numbers import FineInteger, FineNumber
from dpcore.universe.numeric import Integer, Number, UnevenInteger
from dpcore.universe.temporal import Date, Datetime

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


@cache
def _adapter(kind: type[Attribute]) -> tuple[TypeAdapter[Attribute], set[str]]:
    """Return what reads and writes a kind of column, and the names of its public parts."""
    return TypeAdapter(kind), {part.name for part in fields(kind) if part.init}


def describe(attribute: Attribute) -> dict[str, Any]:
    """Return a column as JSON data, from which `restored` makes the same column again.

    >>> describe(FineInteger(minimum=0, maximum=9, starts=(4,)))["starts"], describe(Boolean())["kind"]
    ('4', 'boolean')
    """
    adapter, names = _adapter(type(attribute))
    return {"kind": _NAMES[type(attribute)], **adapter.dump_python(attribute, mode="json", include=names)}


def restored(described: Mapping[str, Any]) -> Attribute:
    """Return the column that was described.

    Raises:
        UsageError: If this is no description.

    >>> number = Number((0, 0.1, 500), missing=True)
    >>> restored(describe(number)) == number
    True
    """
    try:
        adapter, names = _adapter(KINDS[described["kind"]])
        parts = {name: described[name] for name in names}  # each must be there, null if it is none
        return adapter.validate_json(json.dumps(parts), strict=True)
    except (KeyError, TypeError, ValueError, AttributeError, SpecError, UsageError):
        raise UsageError("the description of a column is damaged; copy the release again") from None
