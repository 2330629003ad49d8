"""Send dpcore's progress lines to the run's log in the Prefect UI."""

import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.context import FlowRunContext, TaskRunContext

from flows.prefect_compat import APILogHandler, APILogWorker, EventsWorker

LOGGER = "dpcore.progress"


def drop_traceback(record: logging.LogRecord) -> bool:
    """Strip a record to its message, since a traceback may be private. This is a logging filter that passes every record."""
    record.exc_info = record.exc_text = record.stack_info = None
    return True


class RunLog(APILogHandler):
    """Prefect's handler without tracebacks. A line belongs to the task run, or else the flow run, in which it was logged."""

    def emit(self, record: logging.LogRecord) -> None:
        """Send the line unless it was logged outside a run, for example by a thread that a library started."""
        if TaskRunContext.get() or FlowRunContext.get():
            bare = copy.copy(record)  # other handlers may show the steward all of it
            drop_traceback(bare)
            super().emit(bare)


def send_buffered(*, within: float) -> None:
    """Send the log lines and task states that Prefect still buffers, before a temporary server stops or this process ends."""
    APILogWorker.drain_all(timeout=within)
    EventsWorker.drain_all(timeout=within)


@contextmanager
def progress_in_run_log() -> Iterator[None]:
    """Send progress lines to the current run's log while the context is open. A nested flow uses its parent's handler."""
    logger = logging.getLogger(LOGGER)
    if any(isinstance(handler, RunLog) for handler in logger.handlers):
        yield
        return
    level, propagate = logger.level, logger.propagate
    handler = RunLog(logging.INFO)
    logger.addHandler(handler)
    logger.setLevel(min(logging.INFO, level or logging.INFO))
    # Prefect's root logger writes to the terminal, but there the command line shows these lines itself.
    logger.propagate = False
    # The line already contains the error, and the traceback of an error that the guard made adds nothing.
    ends = logging.getLogger("prefect.task_runs")  # with which Prefect reports how each task run ended
    ends.addFilter(drop_traceback)
    try:
        yield
    finally:
        ends.removeFilter(drop_traceback)
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
