"""The errors by which verification reports the first invalid event or row."""

from dataclasses import fields
from typing import Any

from dpcore.errors import LedgerDamaged
from dpcore.ledger.rows import Event, EventKind

_NEXT = "restore the ledger from a backup"
_KINDS = frozenset(EventKind)


def at_event(event: Event, problem: str, *, then: str = _NEXT) -> LedgerDamaged:
    """Return the error for a problem with an event, or with a row that it changed."""
    whose = f"account {named(event.account)}" if event.run is None else f"run {named(event.run)}"
    kind = event.kind if event.kind in _KINDS else "of no known kind"
    return LedgerDamaged(f"event {event.seq} ({kind}, {whose}) {problem}; {then}")


def at_row(row: str, problem: str) -> LedgerDamaged:
    """Return the error for a problem with a row that belongs to no single event."""
    return LedgerDamaged(f"{row} {problem}; {_NEXT}")


def require(event: Event, condition: bool, problem: str) -> None:  # noqa: FBT001  it reads as a sentence
    """Raise the error for an event, or a row that it changed, unless the condition holds."""
    if not condition:
        raise at_event(event, problem)


def named(name: object) -> str:
    """Quote a name for a message, or say that it is unreadable.

    >>> named("run-1"), named("run" + chr(7)), named(None)
    ("'run-1'", 'without a readable name', 'without a readable name')
    """
    readable = isinstance(name, str) and name.isprintable() and 0 < len(name) <= 500
    return f"'{name}'" if readable else "without a readable name"


def differing(row: Any, expected: Any) -> str:
    """Return the names of the fields in which two records of one kind differ."""
    return ", ".join(field.name for field in fields(row) if getattr(row, field.name) != getattr(expected, field.name))
