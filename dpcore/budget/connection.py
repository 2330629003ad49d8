"""Each thread's own connection to the ledger: opening one takes longer than a charge."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dpcore.errors import BudgetRefused, UsageError
from dpcore.ledger import Ledger, open_ledger
from dpcore.places import Places, current_places


class _Connection:
    """A ledger that a thread uses in one process and place. It is closed with its thread."""

    def __init__(self, places: Places) -> None:
        self.places, self.process = places, os.getpid()
        self.ledger = open_ledger(places=places)

    def __del__(self) -> None:
        with suppress(Exception):  # the thread or the interpreter may be ending, and all that was charged is durable
            if self.process == os.getpid():
                self.ledger.close()


class _Mine(threading.local):
    connection: _Connection | None = None


_mine = _Mine()
_inherited: list[_Connection | None] = []
"""Connections of a parent process, which must not be touched in its fork, nor closed by the garbage collector."""


@contextmanager
def opened() -> Iterator[Ledger]:
    """Use this thread's connection. It is opened again in another place, in a forked process, and after any error but a refusal."""
    connection, places = _mine.connection, current_places()
    if connection is None or connection.process != os.getpid() or connection.places != places:
        if connection is not None and connection.process != os.getpid():
            _inherited.append(connection)
        connection = _mine.connection = _Connection(places)
    try:
        yield connection.ledger
    except (BudgetRefused, UsageError):
        raise
    except BaseException:
        _mine.connection = None
        raise
