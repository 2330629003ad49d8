"""A preload module for workers on this machine: redirect their output to the steward's log.

Workers inherit the standard streams of the process that starts them, and Dask logs a failed task with its arguments.
"""

from contextlib import ExitStack

from dpcore.private_log import output_taken

_TAKEN = ExitStack()  # never closed: lasts as long as the worker


def dask_setup(worker: object) -> None:  # noqa: ARG001  Dask passes it
    """Redirect the output of this process to the steward's folder."""
    _TAKEN.enter_context(output_taken())
