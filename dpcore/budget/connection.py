"""One thread of each process talks to the ledger, on one connection: hundreds of tasks at once would need hundreds otherwise.

A charge takes less time than to open a connection. Nothing is lost by taking turns, because the ledger lets one writer in at a time anyway.
"""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import TypeVar

from dpcore.errors import BudgetRefused, DpflowError, UsageError
from dpcore.ledger import Ledger, open_ledger
from dpcore.places import Places, current_places

Result = TypeVar("Result")


class _Desk:
    """The thread of a process, and its connection."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "dpflow-budget")  # starts with its first work
        self._opened: tuple[Places, Ledger] | None = None

    def submit(self, work: Callable[[Ledger], Result]) -> Future[Result]:
        """Let the thread do something with the ledger of the caller's place."""
        return self._thread.submit(copy_context().run, self._do, current_places(), work)

    def _do(self, places: Places, work: Callable[[Ledger], Result]) -> Result:
        if self._opened is None or self._opened[0] != places:
            self._close()
            self._opened = places, open_ledger(places=places)
        try:
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


def with_ledger(work: Callable[[Ledger], Result]) -> Future[Result]:
    """Do something with the ledger. The connection is opened again in another place, and after any error but a refusal."""
    process = os.getpid()
    return (_desks.get(process) or _desks.setdefault(process, _Desk())).submit(work)
