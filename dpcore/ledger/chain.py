"""The hash chain that makes a changed, dropped or reordered event detectable.

Each event's hash covers the hash of the event before it, so the last hash, the head, commits to the whole history.
"""

import json
from hashlib import sha256

from dpcore.ledger.rows import Event, EventKind

GENESIS = "0" * 64
"""The head of a chain without events."""

_HEXADECIMAL = frozenset("0123456789abcdef")
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode


def canonical(value: object) -> str:
    """Serialise a value to canonical JSON: sorted keys, no spaces, ASCII only, no NaN.

    Raises:
        TypeError: If the value, or a part of it, has no JSON form.
        ValueError: If it contains NaN or an infinity.

    >>> canonical({"scale": 2.5, "by": ["age", "sex"]})
    '{"by":["age","sex"],"scale":2.5}'
    """
    return _encode(value)


def is_sha256(value: object) -> bool:
    """Return whether a value is a SHA-256 in lower-case hexadecimal digits."""
    return isinstance(value, str) and len(value) == 64 and _HEXADECIMAL.issuperset(value)


def link(  # noqa: PLR0913  the parts of one event
    previous: str, *, seq: int, at: str, kind: EventKind, account: str, run: str | None, body: str
) -> Event:
    """Return the event that follows the one with hash `previous`, and compute its hash.

    The hash covers the body as stored text, so checking a chain never depends on parsing and re-serialising JSON.
    """
    content = canonical([seq, at, kind, account, run, body])
    digest = sha256(bytes.fromhex(previous) + content.encode("ascii")).hexdigest()
    return Event(seq, at, kind, account, run, body, previous, digest)
