"""Retry a deployed run when its ledger can't be reached or another worker holds it; it continues from its transcript."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from dpcore.errors import LedgerError, RunHeld
from flows.tasks.refusals import deployed_run

R = TypeVar("R")

progress = logging.getLogger("dpcore.progress")

RETRY_SECONDS = (5, 20, 60)
"""Wait before each retry when the ledger can't be used."""

HELD_SECONDS = (5, 10, 20, 30)
HELD_AT_MOST = 900
"""Waits between checks whether the worker that holds the run is done or dead, the last one repeated, and the limit of their sum."""


def retry_infrastructure(attempt: Callable[[], R], *, sleep: Callable[[float], None] = time.sleep) -> R:
    """Return the result of `attempt`. A deployed run retries when infrastructure fails; at a terminal, the user decides.

    A retry charges and draws nothing twice: committed measurements are replayed.
    """
    if deployed_run() is None:
        return attempt()
    failures = looks = held = 0
    while True:
        try:
            return attempt()
        except RunHeld:
            wait = HELD_SECONDS[min(looks, len(HELD_SECONDS) - 1)]
            looks, held = looks + 1, held + wait
            if held > HELD_AT_MOST:
                raise
            progress.info("another worker holds this run; checking again in %d s", wait)
        except LedgerError:
            if failures == len(RETRY_SECONDS):
                raise
            wait = RETRY_SECONDS[failures]
            failures += 1
            progress.info("the ledger can't be used; resuming in %d s from the measurements so far", wait)
        sleep(wait)
