"""The schema of each event's body."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from dpcore.ledger.chain import canonical, is_sha256
from dpcore.ledger.checks import LARGEST
from dpcore.ledger.rows import AllowanceKind, Event, EventKind
from dpcore.ledger.verification.findings import at_event, require
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours

_Check: TypeAlias = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _amount(value: Any) -> bool:
    return type(value) is int and 0 < value <= LARGEST


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST


def _number(value: Any) -> bool:
    return isinstance(value, float)


def _names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_text, value)) and value == sorted(set(value))


def _parameters(value: Any) -> bool:
    return isinstance(value, dict) and bool(value)


def _or_none(check: _Check) -> _Check:
    return lambda value: value is None or check(value)


def _one_of(kinds: type[Currency] | type[Neighbours] | type[AllowanceKind]) -> _Check:
    known = frozenset(map(str, kinds))
    return lambda value: isinstance(value, str) and value in known


_BODIES: Mapping[str, Mapping[str, _Check]] = {
    EventKind.ACCOUNT_OPENED: {
        "currency": _one_of(Currency),
        "cap": _amount,
        "epsilon": _number,
        "delta": _number,
        "unit": _text,
        "neighbours": _one_of(Neighbours),
        "description": lambda value: isinstance(value, str),
        "blocks_by": _or_none(_text),
        "across": _or_none(_amount),
        "across_epsilon": _or_none(_number),
    },
    EventKind.ACROSS_RAISED: {"across": _amount, "across_epsilon": _number, "reason": _text},
    EventKind.CAP_RAISED: {"cap": _amount, "epsilon": _number, "reason": _text},
    EventKind.ACCOUNT_CLOSED: {"reason": _text},
    EventKind.ALLOWED: {
        "kind": _one_of(AllowanceKind),
        "name": _text,
        "cap": _amount,
        "epsilon": _number,
        "reason": _text,
    },
    EventKind.BLOCKS_OPENED: {"blocks": _names},
    EventKind.BLOCKS_SEALED: {"blocks": _names},
    EventKind.ADOPTED: {"folder": _text, "owner": _or_none(is_sha256), "reason": _text},
    EventKind.RESTORED: {"seq": _amount, "hash": is_sha256, "reason": _text},
    EventKind.RESERVED: {
        "amount": _amount,
        "claim": _text,
        "blocks": _or_none(_names),
        "analyst": _or_none(_text),
        "purpose": _or_none(_text),
    },
    EventKind.LEASED: {"fence": _amount, "holder": _text, "seconds": _count},
    EventKind.DATA_VERSION: {"version": _text},
    EventKind.CHARGED: {
        "step": _text,
        "attempt": _amount,
        "amount": _amount,
        "mechanism": _parameters,
        "fence": _amount,
    },
    EventKind.COMMITTED: {"step": _text, "attempt": _amount, "sha256": is_sha256, "size": _count},
    EventKind.SETTLED: {
        "spent": _count,
        "returned": _count,
        "release": _or_none(_text),
        "manifest": _or_none(_text),
        "manifest_sha256": _or_none(is_sha256),
    },
    EventKind.REFUNDED: {"returned": _amount},
    EventKind.REPUBLISHED: {"run": _text, "release": _text, "manifest": _text, "manifest_sha256": is_sha256},
    EventKind.WITHDRAWN: {"release": _text, "reason": _text, "keep": _or_none(_amount)},
    EventKind.SHARED: {"run": _text, "analyst": _text, "cap": _amount, "token": _or_none(is_sha256)},
}


def read_body(event: Event) -> dict[str, Any]:
    """Parse an event's body. Raise if no ledger can have written it."""
    expected = _BODIES.get(event.kind)
    if expected is None:
        raise at_event(event, "is of a kind that this version does not know")
    try:
        details: dict[str, Any] = json.loads(event.body)
        text = canonical(details)
    except (ValueError, TypeError, RecursionError):
        raise at_event(event, "has a body that cannot be parsed") from None
    require(event, text == event.body and isinstance(details, dict), "has a body that is not a canonical JSON object")
    require(event, details.keys() == expected.keys(), "has a body with missing or unknown keys")
    for key, check in expected.items():
        if not check(details[key]):
            raise at_event(event, f"has a body with an invalid {key}")
    return details
