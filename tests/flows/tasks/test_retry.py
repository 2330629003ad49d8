"""Who waits, for what, how long, and what ends the waiting."""

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest
from prefect.exceptions import TerminationSignal
from prefect.utilities.engine import capture_sigterm

from dpcore.errors import DpflowError, LedgerDamaged, LedgerError, RunHeld, UsageError
from flows.tasks.retry import HELD_AT_MOST, RETRY_SECONDS, retry_infrastructure


@pytest.fixture
def _deployed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.tasks.retry.deployed_run", object)


def failing(*errors: DpflowError) -> Callable[[], str]:
    """Return an attempt that fails with each of these errors and then gives an answer."""
    left = list(errors)

    def attempt() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return attempt


@pytest.mark.usefixtures("_deployed")
@pytest.mark.parametrize(
    ("errors", "waits"),
    [
        ([], []),
        ([LedgerError("locked")], [5]),
        ([LedgerError("locked")] * 3, [5, 20, 60]),
        ([RunHeld("another")] * 6, [5, 10, 20, 30, 30, 30]),
        ([RunHeld("another"), LedgerError("locked"), RunHeld("another")], [5, 5, 10]),
    ],
)
def test_a_deployed_run_waits_and_goes_on(errors: list[DpflowError], waits: list[float]) -> None:
    slept: list[float] = []
    assert retry_infrastructure(failing(*errors), sleep=slept.append) == "done"
    assert slept == waits


@pytest.mark.usefixtures("_deployed")
@pytest.mark.parametrize("error", [LedgerError("locked"), RunHeld("another")])
def test_patience_ends(error: DpflowError) -> None:
    slept: list[float] = []
    with pytest.raises(type(error)):
        retry_infrastructure(failing(*[error] * 1000), sleep=slept.append)
    assert sum(slept) in {sum(RETRY_SECONDS), HELD_AT_MOST - 25}


@pytest.mark.usefixtures("_deployed")
@pytest.mark.parametrize("error", [LedgerDamaged("damaged"), UsageError("wrong")])
def test_what_waiting_does_not_mend_is_not_waited_for(error: DpflowError) -> None:
    slept: list[float] = []
    with pytest.raises(type(error)):
        retry_infrastructure(failing(error), sleep=slept.append)
    assert slept == []


@pytest.mark.parametrize("error", [LedgerError("locked"), RunHeld("another")])
def test_a_run_that_was_called_does_not_wait(error: DpflowError) -> None:
    slept: list[float] = []
    with pytest.raises(type(error)):
        retry_infrastructure(failing(error), sleep=slept.append)
    assert slept == []


@pytest.mark.usefixtures("_deployed")
def test_a_termination_ends_the_wait_at_once() -> None:
    def sleep(seconds: float) -> None:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
        time.sleep(10 * seconds)

    with capture_sigterm(), pytest.raises(TerminationSignal):
        retry_infrastructure(failing(LedgerError("locked")), sleep=sleep)
