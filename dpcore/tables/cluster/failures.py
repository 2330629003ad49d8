"""Replace errors on a cluster with public messages."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from dpcore import private_log as stewardlog
from dpcore.errors import DpflowError, StepFailed

T = TypeVar("T")

ENDED = (KeyboardInterrupt, SystemExit, GeneratorExit)
LOST = "KilledWorker"  # compared by name, because Dask is an optional extra
CANCELLED = "CancelledError"


def publicly(step: Callable[[], T], *, doing: str, where: str) -> T:
    """Return a step's result. If it fails, write the error to the steward's log and raise an error with a public message.

    Dask pickles the errors of workers with their causes, and scheduler, workers and clients log them. Errors are therefore replaced where
    they arise.
    """
    try:
        return step()
    except ENDED:
        raise
    except DpflowError as error:
        public = type(error)(*error.args)
    except BaseException as error:  # noqa: BLE001  even a panic of a compiled library may quote a row
        public = StepFailed(_sentence(error, doing=doing, where=where))
    # Raised outside the except blocks, so that it does not carry the original error as its context.
    raise public


def _sentence(error: BaseException, *, doing: str, where: str) -> str:
    log = stewardlog.record(error, where=f"{doing} {where}")
    details = (
        f"the details are in the steward's log {log.name} there" if log else "the steward's log there cannot be written"
    )
    kind = type(error).__name__
    if kind == LOST:
        return f"{doing} failed {where}: workers were killed repeatedly, probably for lack of memory; give them more"
    if isinstance(error, asyncio.CancelledError) or kind.endswith(CANCELLED):
        return f"{doing} failed {where}: the scheduler is gone or has cancelled the task; check that it runs, then resume the run"
    return f"{doing} failed {where}: {kind}; {details}"
