"""The hash chain that makes a changed, dropped or swapped event visible.

Each event's hash covers the hash before it, so that the last one, the head, stands for the whole history.
"""

import json
from hashlib import sha256

from dpcore.ledger.rows import Event, EventKind

GENESIS = "0" * 64
"""The head of a chain without events."""


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode


def canonical(value: object) -> str:
    """Write a value as the one JSON text it has here: sorted keys, no spaces, ASCII only, no NaN.

    Raises:
        TypeError: If the value, or something in it, is not JSON.
        ValueError: If it holds NaN or an infinity.

    >>> canonical({"scale": 2.5, "by": ["age", "sex"]})
    '{"by":["age","sex"],"scale":2.5}'
    """
    return _encode(value)


def link(  # noqa: PLR0913  the parts of one event
    previous: str, *, seq: int, at: str, kind: EventKind, account: str, run: str | None, body: str
) -> Event:
    """Return the event that follows the one of this hash, with the hash that its content gives it.

    The body enters as text, exactly as it is stored: checking a chain never depends on reading JSON and writing it again.
    """
    content = canonical([seq, at, kind, account, run, body])
    digest = sha256(bytes.fromhex(previous) + content.encode("ascii")).hexdigest()
    return Event(seq, at, kind, account, run, body, previous, digest)
