"""dpcore's progress lines, in the log of the run that the Prefect UI shows."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.context import FlowRunContext, TaskRunContext
from prefect.logging.handlers import APILogHandler

LOGGER = "dpcore.progress"


class RunLog(APILogHandler):
    """Sends a line to the Prefect server as part of the current run, and nowhere else: it is not echoed on a terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        """Send the line, unless it was logged outside of a run, such as by a thread that a library started."""
        if FlowRunContext.get() or TaskRunContext.get():
            super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        """Return the message alone: a traceback that was logged with it may be private."""
        return record.getMessage()


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
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
