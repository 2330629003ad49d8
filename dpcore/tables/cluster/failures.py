"""What may be said of a failure on a cluster."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from dpcore import private_log as stewardlog
from dpcore.errors import DpflowError, StepFailed

T = TypeVar("T")

ENDED = (KeyboardInterrupt, SystemExit, GeneratorExit)
LOST = "KilledWorker"  # Dask's, which is an extra and therefore known by its name
CANCELLED = "CancelledError"


def publicly(step: Callable[[], T], *, doing: str, where: str) -> T:
    """Return what a step gives; if it fails, keep the error for the steward and raise one of public words.

    Dask pickles the errors of workers with their causes, and scheduler, workers and clients log them: so this is done where they arise.
    """
    try:
        return step()
    except ENDED:
        raise
    except DpflowError as error:
        public = type(error)(*error.args)
    except BaseException as error:  # noqa: BLE001  totality: also the panic of a compiled library may quote a row
        public = StepFailed(_sentence(error, doing=doing, where=where))
    # Only here, where no error is being dealt with, does the new one get no context to carry along.
    raise public


def _sentence(error: BaseException, *, doing: str, where: str) -> str:
    log = stewardlog.record(error, where=f"{doing} {where}")
    details = (
        f"the details are in the steward's log {log.name} there" if log else "the steward's log there cannot be written"
    )
    kind = type(error).__name__
    if kind == LOST:
        return f"{doing} failed {where}: workers were lost again and again, as they are when they lack memory; give them more"
    if isinstance(error, asyncio.CancelledError) or kind.endswith(CANCELLED):
        return (
            f"{doing} failed {where}: the scheduler is gone, or has given it up; see that it runs, then resume the run"
        )
    return f"{doing} failed {where}: {kind}; {details}"
