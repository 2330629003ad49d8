"""Build a large ledger in a minute or two, by writing in bulk the rows that the protocol would have written.

It holds runs of a hundred operations each, reserved, leased, measured and settled one after the other. It passes `verify`.
"""

import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, fields
from hashlib import sha256
from typing import Any

import psycopg

from benchmarks.ledger_scenario import MECHANISM, VERSION
from dpcore.ledger import Event, EventKind, Run, RunState, open_ledger
from dpcore.ledger.chain import canonical, link
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours

ACCOUNT = "visits"
CAP = 1 << 58
OPERATIONS_PER_RUN, BLOCKS_PER_RUN, RUNS_PER_BATCH = 100, 3, 50
AMOUNT, OUTPUT_BYTES = 1_000, 200
AT = "2026-11-15T12:00:00.000000+00:00"
HOLDER = "machine 1 1"

Write = Callable[[str, Sequence[str], Iterable[Sequence[Any]]], None]
"""Adds rows to a table: its name, the columns, the rows."""

_EVENT = [field.name for field in fields(Event)]
_RUN = [field.name for field in fields(Run)]
_OPERATION = [
    "run",
    "step",
    "attempt",
    "state",
    "amount",
    "mechanism",
    "fence",
    "charged",
    "committed",
    "sha256",
    "output",
]


def block_names(blocks: int) -> list[str]:
    """Return the names of the given number of blocks."""
    return [f"block-{number:06}" for number in range(blocks)]


def open_blocks(url: str, *, blocks: int) -> None:
    """Create a ledger that contains only an account with the given number of sealed blocks."""
    with open_ledger(url, create=True) as ledger:
        terms = {"unit": "row", "neighbours": Neighbours.ADD_REMOVE, "blocks_by": "block"}
        ledger.open_account(ACCOUNT, currency=Currency.ZCDP, cap=CAP, epsilon=400_000.0, delta=1e-9, **terms)
        ledger.open_blocks(ACCOUNT, block_names(blocks))
        ledger.seal_blocks(ACCOUNT, block_names(blocks))


def build(url: str, *, operations: int, blocks: int) -> None:
    """Create a ledger with the given number of committed operations in an account with the given number of blocks."""
    open_blocks(url, blocks=blocks)
    with open_ledger(url) as ledger, ledger.reading() as rows:
        head = rows.head()
    history = _History(seq=head.seq, head=head.hash, names=block_names(blocks))
    with _writing_to(url) as (write, use):
        for first in range(0, operations, OPERATIONS_PER_RUN * RUNS_PER_BATCH):
            last = min(first + OPERATIONS_PER_RUN * RUNS_PER_BATCH, operations)
            for begin in range(first, last, OPERATIONS_PER_RUN):
                history.add_run(begin, until=min(begin + OPERATIONS_PER_RUN, last))
            history.flush(write)
        use(history.used)


class _History:
    """The rows after a head of the chain, buffered until they are written."""

    def __init__(self, *, seq: int, head: str, names: Sequence[str]) -> None:
        self.seq, self.head = seq, head
        self.used: Counter[str] = Counter()
        self._names = names
        self._rng = random.Random(0)  # noqa: S311  which blocks a run names is no secret
        self._mechanism = canonical(MECHANISM)
        self._events: list[tuple[Any, ...]] = []
        self._runs: list[tuple[Any, ...]] = []
        self._operations: list[tuple[Any, ...]] = []

    def add_run(self, begin: int, *, until: int) -> None:
        """Add a run with its operations, from its reservation to its settlement."""
        run, total = f"run-{begin:09}", AMOUNT * (until - begin)
        blocks = sorted(self._rng.sample(self._names, min(BLOCKS_PER_RUN, len(self._names))))
        request = {"amount": total, "claim": "bulk", "blocks": blocks, "analyst": None, "purpose": None}
        first = self._record(EventKind.RESERVED, run, request)
        self._record(EventKind.LEASED, run, {"fence": 1, "holder": HOLDER, "seconds": 300})
        self._record(EventKind.DATA_VERSION, run, {"version": VERSION})
        for number in range(begin, until):
            self._add_operation(run, f"step-{number:09}")
        settlement = {"spent": total, "returned": 0, "release": run, "manifest": None, "manifest_sha256": None}
        last = self._record(EventKind.SETTLED, run, settlement)
        row = Run(
            *(run, ACCOUNT, total, total, RunState.SETTLED, "bulk", None, None, VERSION, AT, run),
            fence=1,
            holder=HOLDER,
            lease_seconds=300,
            first=first,
            last=last,
        )
        self._runs.append(astuple(row))
        self.used.update(dict.fromkeys(blocks, total))

    def flush(self, write: Write) -> None:
        """Write the buffered rows."""
        for table, columns, rows in (
            ("event", _EVENT, self._events),
            ("run", _RUN, self._runs),
            ("operation", _OPERATION, self._operations),
        ):
            write(table, columns, rows)
            rows.clear()

    def _add_operation(self, run: str, step: str) -> None:
        output = self._rng.randbytes(OUTPUT_BYTES)
        digest = sha256(output).hexdigest()
        charge = {"step": step, "attempt": 1, "amount": AMOUNT, "mechanism": MECHANISM, "fence": 1, "analyst": None}
        charged = self._record(EventKind.CHARGED, run, charge)
        commit = {"step": step, "attempt": 1, "sha256": digest, "size": len(output)}
        committed = self._record(EventKind.COMMITTED, run, commit)
        row = (run, step, 1, "committed", AMOUNT, self._mechanism, 1, charged, committed, digest, output)
        self._operations.append(row)

    def _record(self, kind: EventKind, run: str, body: dict[str, object]) -> int:
        event = link(self.head, seq=self.seq + 1, at=AT, kind=kind, account=ACCOUNT, run=run, body=canonical(body))
        self.seq, self.head = event.seq, event.hash
        self._events.append(tuple(vars(event).values()))
        return event.seq


Use = Callable[[Counter[str]], None]
"""Sets, at the end, the amount used of each block."""


@contextmanager
def _writing_to(url: str) -> Iterator[tuple[Write, Use]]:
    """Write directly to the store with the ledger's rules disabled. At the end they are restored and everything is on disk."""
    with _writing_to_sqlite(url) if url.startswith("sqlite") else _writing_to_postgres(url) as writers:
        yield writers


@contextmanager
def _writing_to_sqlite(url: str) -> Iterator[tuple[Write, Use]]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        rules = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        connection.execute("BEGIN")
        for name, _ in rules:
            connection.execute(f"DROP TRIGGER {name}")

        def write(table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
            places = ", ".join("?" * len(columns))
            connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", rows)  # noqa: S608  our own names

        def use(used: Counter[str]) -> None:
            connection.executemany("UPDATE block SET used = ? WHERE name = ?", [(u, name) for name, u in used.items()])

        yield write, use
        for _, rule in rules:
            connection.execute(rule)
        connection.execute("COMMIT")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@contextmanager
def _writing_to_postgres(url: str) -> Iterator[tuple[Write, Use]]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path TO dpflow")
        connection.execute("SET session_replication_role TO replica")  # disables the triggers

        def write(table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
            with connection.cursor().copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)

        def use(used: Counter[str]) -> None:
            with connection.transaction():
                connection.cursor().executemany(
                    "UPDATE block SET used = %s WHERE name = %s", [(u, name) for name, u in used.items()]
                )

        yield write, use
        connection.execute("VACUUM (ANALYZE)")  # as autovacuum would have done over time
        connection.execute("CHECKPOINT")
