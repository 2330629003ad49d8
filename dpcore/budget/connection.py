"""One thread of each process talks to the ledger, on one connection: hundreds of tasks at once would need hundreds otherwise.

A charge takes less time than to open a connection. Nothing is lost by taking turns, because the ledger lets one writer in at a time anyway.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from dpcore.errors import BudgetRefused, DpflowError, UsageError
from dpcore.ledger import Ledger, open_ledger
from dpcore.places import Places, current_places, using

Result = TypeVar("Result")


class _Desk:
    """The thread of a process, and its connection."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "dpflow-budget")  # starts with its first work
        self._opened: tuple[Places, Ledger] | None = None
        self.ident = 0

    def submit(self, work: Callable[[Ledger], Result], places: Places) -> Future[Result]:
        """Let the thread do something with a ledger."""
        return self._thread.submit(self._do, places, work)

    def _do(self, places: Places, work: Callable[[Ledger], Result]) -> Result:
        self.ident = threading.get_ident()
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


_desks: dict[int, _Desk] = {}
"""By process: a fork must not touch the connection of its parent, nor let the garbage collector close it."""


def with_ledger(work: Callable[[Ledger], Result], *, places: Places | None = None) -> Future[Result]:
    """Do something with the ledger of these places, by default the current ones.

    The connection is opened again in other places, and after any error but a refusal.
    """
    process = os.getpid()
    desk = _desks.get(process) or _desks.setdefault(process, _Desk())
    return desk.submit(work, current_places() if places is None else places)


def wait(work: Future[None]) -> None:
    """Wait for such work, unless this is the thread that does it: the garbage collector may end an abandoned block anywhere."""
    desk = _desks.get(os.getpid())
    if desk is None or desk.ident != threading.get_ident():
        work.result()
