"""One thread for the work of many: whoever has asked least recently is served next, so nobody waits for all questions of somebody else."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")

_Job = tuple[Future[Any], Callable[[], Any]]


class FairThread:
    """Calls functions in one thread. Of those who wait, each gets one function called in turn.

    >>> thread = FairThread("example")
    >>> thread.submit("ada", lambda: 2 + 3).result()
    5
    >>> thread.close()
    """

    def __init__(self, name: str) -> None:
        self._waiting: OrderedDict[str, deque[_Job]] = OrderedDict()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def submit(self, who: str, job: Callable[[], Result]) -> Future[Result]:
        """Let a function be called when it is the turn of whoever asks."""
        future: Future[Result] = Future()
        with self._changed:
            self._waiting.setdefault(who, deque()).append((future, job))
            self._changed.notify()
        return future

    def waiting(self, who: str) -> int:
        """Return how many functions of somebody wait for their turn."""
        with self._changed:
            return len(self._waiting.get(who, ()))

    def close(self) -> None:
        """Call what waits, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _serve(self) -> None:
        while (taken := self._next()) is not None:
            future, job = taken
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(job())
                except BaseException as error:  # noqa: BLE001  it is the caller's
                    future.set_exception(error)

    def _next(self) -> _Job | None:
        """Wait for a function, and move whoever has asked for it to the end. Return None if the thread ends."""
        with self._changed:
            while not self._waiting:
                if self._closing:
                    return None
                self._changed.wait()
            who, jobs = self._waiting.popitem(last=False)
            taken = jobs.popleft()
            if jobs:
                self._waiting[who] = jobs
            return taken
