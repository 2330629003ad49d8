"""Every row of a ledger, as it is stored, one after the other: what a check of the whole reads.

Nothing is converted, so that a row which makes no sense is compared like any other, and found by its name. Whatever the number
of rows, only a few are in memory.
"""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple

from dpcore.errors import LedgerDamaged
from dpcore.ledger.rows import Account, Allowance, Block, Event, Run
from dpcore.ledger.store import Store
from dpcore.ledger.transaction import LedgerTransaction


class ChargedRow(NamedTuple):
    """What an operation's row says of its charge; `mechanism` is the text that is there."""

    charged: int
    run: str
    step: str
    attempt: int
    amount: int
    mechanism: str
    fence: int


class CommittedRow(NamedTuple):
    """What an operation's row says of its output; `digest` is the hash of what the row holds now, if it holds it."""

    committed: int
    run: str
    step: str
    attempt: int
    sha256: str | None
    fence: int
    digest: str | None


class AttemptRow(NamedTuple):
    """What an operation's row says of its place among the attempts of its step."""

    run: str
    step: str
    attempt: int
    state: str
    charged: int
    committed: int | None
    sha256: str | None
    empty: bool


class LedgerScan(LedgerTransaction):
    """Reads of whole tables, in a transaction that sees one state of all of them."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._streams: list[Any] = []

    def close(self) -> None:
        """Let go of the reads that were not followed to their end; whoever holds an error that came up may hold them too."""
        for stream in self._streams:
            stream.close()

    def all_accounts(self) -> Iterator[Account]:
        """Go through all accounts."""
        return self._every(Account, "account")

    def all_blocks(self) -> Iterator[Block]:
        """Go through the blocks of all accounts."""
        return self._every(Block, "block")

    def all_allowances(self) -> Iterator[Allowance]:
        """Go through the allowances of all accounts."""
        return self._every(Allowance, "allowance")

    def all_events(self) -> Iterator[Event]:
        """Go through the whole chain, oldest event first."""
        return self._every(Event, "event ORDER BY seq")

    def publications(self) -> Iterator[Event]:
        """Go through the events that record releases: of runs that ended, and of releases that were made again, oldest first."""
        return self._every(Event, "event WHERE kind IN ('settled', 'republished') ORDER BY seq")

    def runs_by_last_event(self) -> Iterator[Run]:
        """Go through all runs in the order in which they were last changed."""
        return self._every(Run, "run ORDER BY last")

    def run_ids(self) -> Iterator[str]:
        """Go through the names of all runs in the order in which they were first reserved."""
        return (run_id for (run_id,) in self._stream("SELECT id FROM run ORDER BY number"))

    def charges(self) -> Iterator[ChargedRow]:
        """Go through all operations in the order of the events that charged them."""
        columns = ", ".join(ChargedRow._fields)
        return map(ChargedRow._make, self._stream(f"SELECT {columns} FROM operation ORDER BY charged"))

    def commits(self) -> Iterator[CommittedRow]:
        """Go through all committed operations in the order of the events that committed them."""
        digest = f"CASE WHEN output IS NULL THEN NULL ELSE {self._store.output_digest} END"
        columns = f"committed, run, step, attempt, sha256, fence, {digest}"
        query = f"SELECT {columns} FROM operation WHERE committed IS NOT NULL ORDER BY committed"
        return map(CommittedRow._make, self._stream(query))

    def attempts(self) -> Iterator[AttemptRow]:
        """Go through all operations, each step's attempts together and in order."""
        columns = "run, step, attempt, state, charged, committed, sha256, output IS NULL"
        query = f"SELECT {columns} FROM operation ORDER BY run, step, attempt"
        return map(AttemptRow._make, self._stream(query))

    def kept_digest(self, sha256: str) -> str | None:
        """Return the hash of an output that lies beside the database under this name, or None if nothing does."""
        return self._store.kept_digest(sha256)

    def require_sound_database(self) -> None:
        """Refuse a database that is damaged as such, even where all rows are as they were."""
        if problem := self._store.check():
            raise LedgerDamaged(f"the ledger at {self._store.place} is damaged: {problem}; restore it from a backup")

    def _every(self, kind: Any, of: str) -> Iterator[Any]:
        columns = ", ".join(field.name for field in fields(kind))
        return (kind(*row) for row in self._stream(f"SELECT {columns} FROM {of}"))

    def _stream(self, statement: str) -> Iterator[Any]:
        stream = self._store.stream(statement)
        self._streams.append(stream)
        return stream
