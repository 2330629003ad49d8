"""dpcore's progress lines, in the log of the run that the Prefect UI shows."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from prefect.context import FlowRunContext
from prefect.settings import get_current_settings

from flows.tasks.sender import To, sending
from flows.tasks.task_runs import current_task_run

LOGGER = "dpcore.progress"


class RunLog(logging.Handler):
    """Sends a line to the Prefect server as part of the current run, and nowhere else: it is not echoed on a terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        """Send the line, unless it was logged outside of a run, such as by a thread that a library started.

        The message alone is sent: a traceback that was logged with it may be private.
        """
        flow = FlowRunContext.get()
        if flow is None or flow.flow_run is None or not get_current_settings().logging.to_api.enabled:
            return
        step = current_task_run()
        with sending() as sender:
            sender.send(
                To.LOG,
                {
                    "name": record.name,
                    "level": record.levelno,
                    "message": record.getMessage(),
                    "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
                    "flow_run_id": str(flow.flow_run.id),
                    "task_run_id": str(step) if step else None,
                },
            )


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
