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
def alone(session: str, *, seconds: float) -> Iterator[None]:
    """Let one thread of this process at a time change a session.

    Raises:
        RunHeld: If others are still at it after so many seconds.
    """
    lock = _buying.setdefault(session, threading.Lock())
    if not lock.acquire(timeout=max(0.0, seconds)):
        raise RunHeld(f"session {session} is busy buying other answers; ask again later")
    try:
        yield
    finally:
        lock.release()


@contextmanager
def turn(ledger: Ledger, session: str, *, until: float) -> Iterator[Lease | None]:
    """Ask for the right to buy, and give it back. Yield None, after a moment, if another process has it.

    If this process is so slow that another takes over, what it was doing ends here, and the caller looks again.

    Raises:
        RunHeld: If others kept it until this time of the monotonic clock.
    """
    lease = None
    with alone(session, seconds=until - time.monotonic()):
        try:
            lease = ledger.lease(session, seconds=LEASE_SECONDS)
            yield lease
        except RunHeld:
            if time.monotonic() > until:
                raise
            if lease is None:
                time.sleep(POLL_SECONDS)
                yield None
        finally:
            if lease is not None:
                with suppress(RunHeld, UsageError):
                    ledger.lease(session, seconds=0)
