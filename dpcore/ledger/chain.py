"""The hash chain that makes a changed, dropped or swapped event visible.

Each event's hash covers the hash before it, so that the last one, the head, stands for the whole history.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256

from dpcore.ledger.rows import Event, EventKind
from dpcore.ledger.transaction import LedgerTransaction

GENESIS = "0" * 64
"""The head of a chain without events."""


def canonical(value: object) -> str:
    """Write a value as the one JSON text it has here: sorted keys, no spaces, ASCII only, no NaN.

    Raises:
        TypeError: If the value, or something in it, is not JSON.
        ValueError: If it holds NaN or an infinity.

    >>> canonical({"scale": 2.5, "by": ["age", "sex"]})
    '{"by":["age","sex"],"scale":2.5}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def seal(event: Event) -> Event:
    """Return the event with the hash that its content and its predecessor's hash give.

    The body enters as text, exactly as it is stored: checking a chain never depends on reading JSON and writing it again.
    """
    content = canonical([event.seq, event.at, event.kind, event.account, event.run, event.body])
    return replace(event, hash=sha256(bytes.fromhex(event.previous) + content.encode("ascii")).hexdigest())


def record(  # noqa: PLR0913  the parts of one event
    rows: LedgerTransaction, kind: EventKind, *, account: str, run: str | None, at: str, body: Mapping[str, object]
) -> Event:
    """Append a change to the chain, in the transaction that makes it."""
    last = rows.last_event()
    event = seal(
        Event(
            seq=1 if last is None else last.seq + 1,
            at=at,
            kind=kind,
            account=account,
            run=run,
            body=canonical(body),
            previous=GENESIS if last is None else last.hash,
            hash="",
        )
    )
    rows.append(event)
    return event
