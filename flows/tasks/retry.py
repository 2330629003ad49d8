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
"""How long a run waits before each retry when its ledger can't be used."""

HELD_SECONDS = (5, 10, 20, 30)
HELD_AT_MOST = 900
"""How often, the last one again and again, and for how long a run looks whether the worker that holds it has finished or is gone."""


def retry_infrastructure(attempt: Callable[[], R], *, sleep: Callable[[float], None] = time.sleep) -> R:
    """Return what an attempt returns. A deployed run retries after infrastructure failed; at a terminal the user decides.

    A retry draws and pays nothing twice: what was committed is replayed.
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
            progress.info("another worker has this run; looking again in %d s", wait)
        except LedgerError:
            if failures == len(RETRY_SECONDS):
                raise
            wait = RETRY_SECONDS[failures]
            failures += 1
            progress.info("the ledger can't be used; going on in %d s from what was measured so far", wait)
        sleep(wait)
