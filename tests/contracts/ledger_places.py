"""Where the machine's examples happen: workers on one ledger, each with a clock and a connection of its own, who can die."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from dpcore.ledger import Ledger, open_ledger
from dpcore.ledger.sqlite import SqliteStore
from tests.dpcore.ledger.fixtures import assert_sound

LIVES, REOPENS = "lives", "opens the ledger again first"
STUMBLES, BEFORE, AFTER = "stumbles at its commit", "dies before its commit", "dies after its commit"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ZONES = (UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-8)))


class Crash(BaseException):
    """A call broke off; not an Exception, so that nothing takes it for an error that it knows."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    @property
    def committed(self) -> bool:
        return self.what == "died after"


class Worker:
    """One process's view of a ledger: its own connection and its own clock."""

    def __init__(self, url: str, zone: timezone) -> None:
        self.url, self.zone = url, zone
        self.set_clock(NOON)
        self.ledger = self._opened()

    def set_clock(self, now: datetime) -> None:
        self.now = now.astimezone(self.zone)

    def _opened(self) -> Ledger:
        return open_ledger(self.url, clock=lambda: self.now)

    def reopen(self) -> None:
        self.ledger.close()
        self.ledger = self._opened()

    def make(self, call: Callable[[Ledger], Any], fate: str | int) -> Any:
        """Make a call that may break off: before the statement of the number `fate`, or at its COMMIT.

        Raises:
            Crash: If the call came as far as that. A worker that died is back, with a new connection.
        """
        if fate == REOPENS:
            self.reopen()
        if fate in {LIVES, REOPENS}:
            return call(self.ledger)
        store, seen = self.ledger._store, 0
        wrote = committed = False
        execute = store.execute

        def mortal(statement: str, parameters: Any = None) -> Any:
            nonlocal seen, wrote, committed
            seen += 1
            if seen != fate and not (statement == "COMMIT" and fate in {BEFORE, AFTER, STUMBLES}):
                result = execute(statement, parameters)
                wrote = wrote or "IMMEDIATE" in statement or "LOCK TABLE writer" in statement
                committed = committed or (wrote and statement == "COMMIT")  # what follows only looks at it
                return result
            store.execute = execute
            if fate == STUMBLES:
                raise Crash("stumbled")
            if fate == AFTER:
                execute(statement)
            _break_connection(store)
            raise Crash("died after" if committed or fate == AFTER else "died before")

        store.execute = mortal
        try:
            return call(self.ledger)
        except Crash as crash:
            if crash.what != "stumbled":
                self.reopen()
            raise
        finally:
            store.execute = execute


def _break_connection(store: Any) -> None:
    """Do what the end of a process does to its connection: no statement follows, not even a ROLLBACK."""
    store._roll_back = lambda: None
    if isinstance(store, SqliteStore):
        store._connection.close()
    else:
        store._open.invalidate()


class Place:
    """Ledgers for any number of examples, one after the other.

    Making a ledger takes longer than an example, so many examples share one, each with names of its own; then its books are
    checked as a whole, and the next examples get a new one.
    """

    EXAMPLES_EACH = 50

    def __init__(self, new_url: Callable[[], str]) -> None:
        self._new_url = new_url
        self._examples = 0
        self._workers: list[Worker] = []

    def begin(self) -> tuple[str, list[Worker]]:
        """Return what the names of a new example begin with, and three workers whose clocks show noon."""
        if not self._workers:
            url = self._new_url()
            open_ledger(url, create=True).close()
            self._workers = [Worker(url, zone) for zone in ZONES]
        for worker in self._workers:
            worker.set_clock(NOON)
        self._examples += 1
        return f"{self._examples}/", self._workers

    def end(self, *, agreed: bool) -> None:
        """End an example; a ledger that did not agree is of no more use."""
        if not agreed:
            self._leave()
        elif self._examples % self.EXAMPLES_EACH == 0:
            self.close()

    def close(self) -> None:
        """Check the books of the ledger in use, if there is one, and let go of it."""
        if self._workers:
            assert_sound(self._workers[0].ledger)
        self._leave()

    def _leave(self) -> None:
        for worker in self._workers:
            worker.ledger.close()
        self._workers = []
