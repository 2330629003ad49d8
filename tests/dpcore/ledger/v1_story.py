"""A ledger as the first version wrote it: fewer columns, fewer words in each event, no leases."""

import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from dpcore.ledger.chain import GENESIS, canonical, link
from dpcore.privacy.accounting import Currency
from tests.dpcore.ledger.story import NOISE, price
from tests.dpcore.ledger.v1 import APPLICATION_ID, TABLES

AT = "2026-01-02T03:04:{:02}.000006+00:00"
PRICE = price(Currency.ZCDP)
MECHANISM = NOISE[Currency.ZCDP].describe()
TERMS = {
    "cap": 100 * PRICE,
    "currency": "zcdp",
    "delta": 1e-9,
    "epsilon": 20.0,
    "neighbours": "add-remove",
    "unit": "person",
}
DIGESTS = {output: sha256(output).hexdigest() for output in (b"one", b"two")}

EVENTS: tuple[tuple[str, str | None, dict[str, Any]], ...] = (
    ("account-opened", None, TERMS),
    ("reserved", "settled", {"amount": 5 * PRICE, "claim": "claim of settled"}),
    ("data-version", "settled", {"version": "version-1"}),
    ("started", "settled", {"step": "round-1", "attempt": 1, "amount": PRICE, "mechanism": MECHANISM}),
    ("reserved", "again", {"amount": 2 * PRICE, "claim": "claim of again"}),
    ("started", "settled", {"step": "round-1", "attempt": 2, "amount": PRICE, "mechanism": MECHANISM}),
    ("committed", "settled", {"step": "round-1", "attempt": 2, "sha256": DIGESTS[b"one"], "size": 3}),
    ("released", "again", {"returned": 2 * PRICE}),
    ("settled", "settled", {"spent": 2 * PRICE, "returned": 3 * PRICE, "release": "release-1"}),
    ("reserved", "open", {"amount": 2 * PRICE, "claim": "claim of open"}),
    ("started", "open", {"step": "round-1", "attempt": 1, "amount": PRICE, "mechanism": MECHANISM}),
    ("reserved", "last", {"amount": PRICE, "claim": "claim of last"}),
    ("started", "last", {"step": "round-1", "attempt": 1, "amount": PRICE, "mechanism": MECHANISM}),
    ("committed", "last", {"step": "round-1", "attempt": 1, "sha256": DIGESTS[b"two"], "size": 3}),
)
RUNS = (
    ("settled", 5, 2, "settled", "version-1", 2, "release-1"),
    ("again", 2, 0, "released", None, 5, None),
    ("open", 2, 1, "open", None, 10, None),
    ("last", 1, 1, "open", None, 12, None),
)
OPERATIONS = (
    ("settled", 1, 4, None, None),
    ("settled", 2, 6, 7, b"one"),
    ("open", 1, 11, None, None),
    ("last", 1, 13, 14, b"two"),
)


def write_version_1(path: Path) -> None:
    """Make the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1; PRAGMA journal_mode = WAL;"
        connection.executescript(f"{TABLES} {marks}")
        connection.execute(
            "INSERT INTO account VALUES ('clinic', :currency, :cap, :epsilon, :delta, :unit, :neighbours, :spent, :held, :at)",
            {**TERMS, "spent": 4 * PRICE, "held": PRICE, "at": AT.format(1)},
        )
        previous = GENESIS
        for seq, (kind, run, body) in enumerate(EVENTS, start=1):
            at, text = AT.format(seq), canonical(body)
            event = link(previous, seq=seq, at=at, kind=kind, account="clinic", run=run, body=text)
            connection.execute(
                "INSERT INTO event VALUES (?, ?, ?, 'clinic', ?, ?, ?, ?)",
                (seq, at, kind, run, text, previous, event.hash),
            )
            previous = event.hash
        for run, reserved, spent, state, version, first, release in RUNS:
            connection.execute(
                "INSERT INTO run VALUES (NULL, ?, 'clinic', ?, ?, ?, ?, ?, ?, ?)",
                (run, reserved * PRICE, spent * PRICE, state, f"claim of {run}", version, AT.format(first), release),
            )
        for run, attempt, started, committed, output in OPERATIONS:
            state, digest = ("started", None) if output is None else ("committed", DIGESTS[output])
            connection.execute(
                "INSERT INTO operation VALUES (?, 'round-1', ?, ?, ?, ?, ?, ?, ?, ?)",
                (run, attempt, state, PRICE, canonical(MECHANISM), started, committed, digest, output),
            )
