"""Two connections of each process to the ledger: of its main thread, and of one thread that works for all others.

Hundreds of tasks at once would need hundreds otherwise, and opening one takes longer than a charge. Nothing is lost by taking turns, because
the ledger lets one writer in at a time anyway. The main thread has its own because handing work to another thread costs as much as a charge
while Prefect's threads are busy.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from dpcore.errors import BudgetRefused, DpflowError, LedgerError, UsageError
from dpcore.ledger import Ledger, open_ledger
from dpcore.places import Places, current_places, using

Result = TypeVar("Result")


class InUse(LedgerError):  # noqa: N818  names what was found
    """This thread is in the middle of other work on the ledger."""


class _Desk:
    """A connection, and a thread that uses it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "dpflow-budget")  # starts with its first work
        self._opened: tuple[Places, Ledger] | None = None
        self.ident = 0
        self._busy = False

    def submit(self, work: Callable[[Ledger], Result], places: Places) -> Future[Result]:
        """Let the thread do something with a ledger."""
        return self._thread.submit(self._do, places, work)

    def here(self, work: Callable[[Ledger], Result], places: Places) -> Future[Result]:
        """Do it at once, in the caller's thread."""
        done: Future[Result] = Future()
        try:
            done.set_result(self._do(places, work))
        except BaseException as error:  # noqa: BLE001  whoever asks for the result gets it
            done.set_exception(error)
        return done

    def _do(self, places: Places, work: Callable[[Ledger], Result]) -> Result:
        if self._busy:  # the garbage collector has ended an abandoned block in the middle of other work
            raise InUse("the ledger is in use by this thread; begin the step again to end it")
        self.ident, self._busy = threading.get_ident(), True
        try:
            return self._done(places, work)
        finally:
            self._busy = False

    def _done(self, places: Places, work: Callable[[Ledger], Result]) -> Result:
        if self._opened is None or self._opened[0] != places:
            self._close()
            self._opened = places, open_ledger(places=places)
        try:
            with using(places):
                return work(self._opened[1])
        except (BudgetRefused, UsageError):
            raise
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            with suppress(DpflowError):
                opened[1].close()


_desks: dict[tuple[int, bool], _Desk] = {}
"""By process, and whether it is that of the main thread: a fork must not touch the connection of its parent, nor let the garbage collector close it."""


def with_ledger(
    work: Callable[[Ledger], Result], *, places: Places | None = None, waits: bool = True
) -> Future[Result]:
    """Do something with the ledger of these places, by default the current ones.

    The connection is opened again in other places, and after any error but a refusal.

    Args:
        work: What is done.
        places: The places.
        waits: Whether the caller will wait for it, so that the main thread may do it itself. An event loop does not.
    """
    own = waits and threading.current_thread() is threading.main_thread()
    key = os.getpid(), own
    desk = _desks.get(key) or _desks.setdefault(key, _Desk())
    return (desk.here if own else desk.submit)(work, current_places() if places is None else places)


def wait(work: Future[None]) -> None:
    """Wait for such work, unless this is the thread that does it: the garbage collector may end an abandoned block anywhere."""
    desk = _desks.get((os.getpid(), False))
    if desk is None or desk.ident != threading.get_ident():
        work.result()
