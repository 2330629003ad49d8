"""dpcore's progress lines, in the log of the run that the Prefect UI shows."""

import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.context import FlowRunContext, TaskRunContext

from flows.prefect_compat import APILogHandler

LOGGER = "dpcore.progress"
TASK_RUNS = "prefect.task_runs"
"""The logger with which Prefect says how each task run has ended."""


def drop_traceback(record: logging.LogRecord) -> bool:
    """Leave a line its message and nothing else: a traceback may be private. A filter, which lets every line pass."""
    record.exc_info = record.exc_text = record.stack_info = None
    return True


class RunLog(APILogHandler):
    """Prefect's handler: a line belongs to the task run, or else the flow run, in which it was logged. No traceback is sent."""

    def emit(self, record: logging.LogRecord) -> None:
        """Send the line, unless it was logged outside of a run, such as by a thread that a library started."""
        if TaskRunContext.get() or FlowRunContext.get():
            bare = copy.copy(record)  # other handlers may show the steward all of it
            drop_traceback(bare)
            super().emit(bare)


@contextmanager
def progress_in_run_log() -> Iterator[None]:
    """Send progress lines to the log of the current run for as long as the context lasts; a flow within a flow shares its parent's."""
    logger = logging.getLogger(LOGGER)
    if any(isinstance(handler, RunLog) for handler in logger.handlers):
        yield
        return
    level, propagate = logger.level, logger.propagate
    handler = RunLog(logging.INFO)
    logger.addHandler(handler)
    logger.setLevel(min(logging.INFO, level or logging.INFO))
    # Prefect gives the root logger a handler for the terminal, where these lines are the command line's to show.
    logger.propagate = False
    # The error is in the line already, and the traceback of an error that the guard has made tells nothing more.
    ends = logging.getLogger(TASK_RUNS)
    ends.addFilter(drop_traceback)
    try:
        yield
    finally:
        ends.removeFilter(drop_traceback)
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
