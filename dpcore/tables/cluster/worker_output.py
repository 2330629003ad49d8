"""Loaded by the workers of a cluster on this machine as they start: what they or their libraries print is the steward's.

Workers inherit the streams of the process that starts them, and Dask logs failures with what a task was called with.
"""

from contextlib import ExitStack

from dpcore.private_log import output_taken

_TAKEN = ExitStack()  # for as long as the worker lives


def dask_setup(worker: object) -> None:  # noqa: ARG001  Dask calls it so
    """Let the process write to the steward's folder from now on."""
    _TAKEN.enter_context(output_taken())
