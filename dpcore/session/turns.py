"""Take turns at buying: one process at a time, and in it one thread."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dpcore.errors import RunHeld, UsageError
from dpcore.ledger import Lease, Ledger

LEASE_SECONDS = 15
"""How long others wait for a process that is buying. Charge, draw and commit take milliseconds."""

PATIENCE = 90.0
"""How many seconds a purchase waits for its turn: longer than for a process that was killed on another machine, up to a minute and its lease."""

POLL_SECONDS = 0.05

_buying: dict[str, threading.Lock] = {}
"""A lock for each session: the ledger cannot tell threads of one process apart, and one would take the lease of another."""


@contextmanager
def alone(session: str, *, seconds: float = PATIENCE) -> Iterator[None]:
    """Let one thread of this process at a time change a session.

    Raises:
        RunHeld: If others are still at it after so many seconds.
    """
    own = _buying.setdefault(session, threading.Lock())
    if not own.acquire(timeout=max(0.0, seconds)):
        raise RunHeld(f"session {session} is busy buying other answers; ask again later")
    try:
        yield
    finally:
        own.release()


class Turns:
    """The turns of one question, which waits for at most `PATIENCE` seconds."""

    def __init__(self, ledger: Ledger, session: str) -> None:
        self._ledger = ledger
        self._session = session
        self._until = time.monotonic() + PATIENCE

    @contextmanager
    def next(self) -> Iterator[Lease | None]:
        """Ask for the right to buy, and give it back. Yield None, after a moment, if another process has it.

        If this process is so slow that another takes over, what it was doing ends here, and the caller looks again.

        Raises:
            RunHeld: If others kept it for too long.
        """
        with alone(self._session, seconds=self._until - time.monotonic()):
            lease = self._leased()
            try:
                yield lease
            except RunHeld:
                if time.monotonic() > self._until:
                    raise
            finally:
                if lease is not None:
                    with suppress(RunHeld, UsageError):
                        self._ledger.lease(self._session, seconds=0)

    def _leased(self) -> Lease | None:
        try:
            return self._ledger.lease(self._session, seconds=LEASE_SECONDS)
        except RunHeld:
            if time.monotonic() > self._until:
                raise
            time.sleep(POLL_SECONDS)
            return None
