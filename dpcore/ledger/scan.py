"""Stream every stored row of a ledger, for verification.

Values stay as stored and are not converted. So an invalid value raises no error here: its row is compared like any other, and the report
names its table and key. Memory use is constant, whatever
the number of rows.
"""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple

from dpcore.errors import LedgerDamaged
from dpcore.ledger.rows import Account, Allowance, Block, Event, Run, Share
from dpcore.ledger.store import Store
from dpcore.ledger.transaction import LedgerTransaction


class ChargedRow(NamedTuple):
    """The columns of an operation's row that describe its charge. `mechanism` is the stored text."""

    charged: int
    run: str
    step: str
    attempt: int
    amount: int
    mechanism: str
    fence: int
    analyst: str | None


class CommittedRow(NamedTuple):
    """The columns of an operation's row that describe its output. `digest` is the hash of the output now in the row, or None."""

    committed: int
    run: str
    step: str
    attempt: int
    sha256: str | None
    fence: int
    digest: str | None


class AttemptRow(NamedTuple):
    """The columns of an operation's row that order it among the attempts of its step."""

    run: str
    step: str
    attempt: int
    state: str
    charged: int
    committed: int | None
    sha256: str | None
    empty: bool


class LedgerScan(LedgerTransaction):
    """Streams whole tables in a transaction with a consistent snapshot."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._streams: list[Any] = []

    def close(self) -> None:
        """Close the streams that were not read to their end. The traceback of an error may otherwise keep them open."""
        for stream in self._streams:
            stream.close()

    def all_accounts(self) -> Iterator[Account]:
        """Iterate over all accounts."""
        return self._every(Account, "account")

    def all_blocks(self) -> Iterator[Block]:
        """Iterate over the blocks of all accounts."""
        return self._every(Block, "block")

    def all_allowances(self) -> Iterator[Allowance]:
        """Iterate over the allowances of all accounts."""
        return self._every(Allowance, "allowance")

    def all_shares(self) -> Iterator[Share]:
        """Iterate over the shares of all runs."""
        return self._every(Share, "share")

    def all_events(self) -> Iterator[Event]:
        """Iterate over the whole chain, oldest event first."""
        return self._every(Event, "event ORDER BY seq")

    def publications(self) -> Iterator[Event]:
        """Iterate over the events that record releases, oldest first: settled runs, and releases that were written again."""
        return self._every(Event, "event WHERE kind IN ('settled', 'republished') ORDER BY seq")

    def runs_by_last_event(self) -> Iterator[Run]:
        """Iterate over all runs in the order of their last change."""
        return self._every(Run, "run ORDER BY last")

    def run_numbers(self) -> Iterator[tuple[int, str]]:
        """Iterate over the numbers and ids of all runs. The number of a run is that of the event that first reserved it."""
        return map(tuple, self._stream("SELECT number, id FROM run ORDER BY number"))

    def charges(self) -> Iterator[ChargedRow]:
        """Iterate over all operations in the order of their charges."""
        columns = ", ".join(ChargedRow._fields)
        return map(ChargedRow._make, self._stream(f"SELECT {columns} FROM operation ORDER BY charged"))

    def commits(self) -> Iterator[CommittedRow]:
        """Iterate over all committed operations in commit order."""
        digest = f"CASE WHEN output IS NULL THEN NULL ELSE {self._store.output_digest} END"
        columns = f"committed, run, step, attempt, sha256, fence, {digest}"
        query = f"SELECT {columns} FROM operation WHERE committed IS NOT NULL ORDER BY committed"
        return map(CommittedRow._make, self._stream(query))

    def attempts(self) -> Iterator[AttemptRow]:
        """Iterate over all operations, grouped by step, in the order of attempts."""
        columns = "run, step, attempt, state, charged, committed, sha256, output IS NULL"
        query = f"SELECT {columns} FROM operation ORDER BY run, step, attempt"
        return map(AttemptRow._make, self._stream(query))

    def kept_digest(self, sha256: str) -> str | None:
        """Return the actual hash of an output stored beside the database, or None if it is not there."""
        return self._store.kept_digest(sha256)

    def require_sound_database(self) -> None:
        """Raise if the database itself is damaged, even where every row is intact."""
        if problem := self._store.check():
            raise LedgerDamaged(f"the ledger at {self._store.place} is damaged: {problem}; restore it from a backup")

    def _every(self, kind: Any, of: str) -> Iterator[Any]:
        columns = ", ".join(field.name for field in fields(kind))
        return (kind(*row) for row in self._stream(f"SELECT {columns} FROM {of}"))

    def _stream(self, statement: str) -> Iterator[Any]:
        stream = self._store.stream(statement)
        self._streams.append(stream)
        return stream
