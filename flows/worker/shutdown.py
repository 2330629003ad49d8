"""Stop a worker gracefully: signal its runs first so that they can be resumed.

When Prefect's worker is interrupted, it kills its runs at once. The server would consider them running until it misses their heartbeats.
"""

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any

import psutil


async def until_signalled(work: Coroutine[Any, Any, None]) -> frozenset[str]:
    """Run until the work ends, or until SIGTERM or Ctrl-C. Then let the child processes end first; a second signal kills them.

    Returns:
        The ids of the flow runs that were interrupted.
    """
    working = asyncio.ensure_future(work)
    interrupted: set[str] = set()
    ending: list[asyncio.Task[None]] = []

    def end(number: signal.Signals) -> None:
        if ending:
            working.cancel()
        else:
            children = psutil.Process().children(recursive=True)
            interrupted.update(_run_ids(children))
            ending.append(asyncio.ensure_future(_end(working, children, number)))

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)
    try:
        with suppress(asyncio.CancelledError):
            await working
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        for task in ending:
            task.cancel()
    return frozenset(interrupted)


def _run_ids(processes: list[psutil.Process]) -> Iterator[str]:
    """Yield the ids of the flow runs that processes execute, which Prefect sets in their environment."""
    for process in processes:
        with suppress(psutil.Error):
            if run_id := process.environ().get("PREFECT__FLOW_RUN_ID"):
                yield run_id


async def _end(working: asyncio.Future[None], children: list[psutil.Process], number: signal.Signals) -> None:
    if number == signal.SIGINT:  # a terminal has interrupted the runs, too
        await _gone(children, within=5.0)
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.terminate()
    await _gone(children, within=15.0)  # to report that they were interrupted
    working.cancel()


async def _gone(processes: list[psutil.Process], *, within: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while any(process.is_running() for process in processes) and loop.time() < deadline:
        await asyncio.sleep(0.1)
