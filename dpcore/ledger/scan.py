"""Stream every stored row of a ledger, for verification.

Values stay as stored and are not converted. So an invalid value raises no error here: its row is compared like any other, and the report
names its table and key. Memory use is constant, whatever the number of rows.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from dpcore.errors import LedgerDamaged
from dpcore.ledger.rows import Event, Run
from dpcore.ledger.store import Store
from dpcore.ledger.transaction import TABLES, LedgerTransaction, select


class OperationRow(NamedTuple):
    """The columns of an operation's row. `mechanism` is the stored text, `digest` the hash of the output now in the row, or None."""

    run: str
    step: str
    attempt: int
    state: str
    amount: int
    mechanism: str
    fence: int
    analyst: str | None
    charged: int
    committed: int | None
    sha256: str | None
    digest: str | None


class LedgerScan(LedgerTransaction):
    """Streams whole tables in a transaction with a consistent snapshot."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._streams: list[Any] = []

    def close(self) -> None:
        """Close the streams that were not read to their end. The traceback of an error may otherwise keep them open."""
        for stream in self._streams:
            stream.close()

    def every(self, kind: Any) -> Iterator[Any]:
        """Iterate over all records of a kind, in no order."""
        return self._records(kind, TABLES[kind])

    def chain(self) -> Iterator[Event]:
        """Iterate over all events, oldest first."""
        return self._records(Event, "event ORDER BY seq")

    def publications(self) -> Iterator[Event]:
        """Iterate over the events that record releases, oldest first: settled runs, and releases that were written again."""
        return self._records(Event, "event WHERE kind IN ('settled', 'republished') ORDER BY seq")

    def runs_by_last_event(self) -> Iterator[Run]:
        """Iterate over all runs in the order of their last change."""
        return self._records(Run, "run ORDER BY last")

    def run_numbers(self) -> Iterator[tuple[int, str]]:
        """Iterate over the numbers and ids of all runs. The number of a run is that of the event that first reserved it."""
        return map(tuple, self._stream("SELECT number, id FROM run ORDER BY number"))

    def charges(self) -> Iterator[OperationRow]:
        """Iterate over all operations in the order of their charges, without digests."""
        return self._operations("NULL", "ORDER BY charged")

    def commits(self) -> Iterator[OperationRow]:
        """Iterate over all committed operations in commit order."""
        digest = f"CASE WHEN output IS NULL THEN NULL ELSE {self._store.output_digest} END"
        return self._operations(digest, "WHERE committed IS NOT NULL ORDER BY committed")

    def attempts(self) -> Iterator[OperationRow]:
        """Iterate over all operations, grouped by step, in the order of attempts. The digest only tells whether there is an output."""
        return self._operations("CASE WHEN output IS NULL THEN NULL ELSE '' END", "ORDER BY run, step, attempt")

    def kept_digest(self, sha256: str) -> str | None:
        """Return the actual hash of an output stored beside the database, or None if it is not there."""
        return self._store.kept_digest(sha256)

    def require_sound_database(self) -> None:
        """Raise if the database itself is damaged, even where every row is intact."""
        if problem := self._store.check():
            raise LedgerDamaged(f"the ledger at {self._store.place} is damaged: {problem}; restore it from a backup")

    def _operations(self, digest: str, order: str) -> Iterator[OperationRow]:
        names = ", ".join(OperationRow._fields[:-1])
        return map(OperationRow._make, self._stream(f"SELECT {names}, {digest} FROM operation {order}"))

    def _records(self, kind: Any, of: str) -> Iterator[Any]:
        return (kind(*row) for row in self._stream(select(kind, of=of)))

    def _stream(self, statement: str) -> Iterator[Any]:
        stream = self._store.stream(statement)
        self._streams.append(stream)
        return stream
