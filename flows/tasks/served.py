"""Marks this process as executing runs submitted by a server, which are untrusted."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from flows.tasks.refusals import deployed_run

_serving: ContextVar[bool] = ContextVar("serving", default=False)


@contextmanager
def serving() -> Iterator[None]:
    """Execute within for a worker: of what is asked there, a server has the say, and behind it everybody with its password."""
    token = _serving.set(True)
    try:
        yield
    finally:
        _serving.reset(token)


def served() -> bool:
    """Tell whether the current run is executed for a worker, or comes from a deployment."""
    return _serving.get() or deployed_run() is not None  # prefect.runtime would ask the server, each time anew
