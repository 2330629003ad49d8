"""The thread that serves all analysts in turn."""

from concurrent.futures import CancelledError
from threading import Event

import pytest

from dpcore.service.queue import FairThread

WAIT_SECONDS = 60


def test_nobody_waits_for_all_questions_of_somebody_else() -> None:
    thread, begun, go, order = FairThread("test"), Event(), Event(), []

    def first() -> None:
        begun.set()
        assert go.wait(WAIT_SECONDS)

    blocked = thread.submit("ada", first)
    assert begun.wait(WAIT_SECONDS)
    futures = [thread.submit("ada", lambda number=number: order.append(f"ada {number}")) for number in range(5)]
    futures += [thread.submit("bob", lambda number=number: order.append(f"bob {number}")) for number in range(2)]
    assert (thread.waiting("ada"), thread.waiting("bob"), thread.waiting("eve")) == (5, 2, 0)
    go.set()
    for future in (blocked, *futures):
        future.result(WAIT_SECONDS)
    thread.close()
    assert order == ["ada 0", "bob 0", "ada 1", "bob 1", "ada 2", "ada 3", "ada 4"]


def test_errors_are_those_of_the_caller_and_the_thread_goes_on() -> None:
    def fails() -> None:
        raise ValueError("a bug")

    thread, begun, go = FairThread("test"), Event(), Event()
    with pytest.raises(ValueError, match="a bug"):
        thread.submit("ada", fails).result(WAIT_SECONDS)

    def slow() -> str:
        begun.set()
        assert go.wait(WAIT_SECONDS)
        return "slow"

    running, cancelled = thread.submit("ada", slow), thread.submit("ada", fails)
    assert begun.wait(WAIT_SECONDS)
    assert cancelled.cancel()
    last = thread.submit("bob", lambda: "last")
    go.set()
    assert (running.result(WAIT_SECONDS), last.result(WAIT_SECONDS)) == ("slow", "last")
    with pytest.raises(CancelledError):
        cancelled.result(WAIT_SECONDS)
    thread.close()  # calls what waits, and ends


def test_what_waits_is_called_before_the_thread_ends() -> None:
    thread = FairThread("test")
    futures = [thread.submit("ada", lambda number=number: number) for number in range(50)]
    thread.close()
    assert [future.result(0) for future in futures] == list(range(50))
