"""An account pays for a function before it runs; what the function returns is kept, and returned to whoever asks again."""

import asyncio
import os
import subprocess
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcore import Budget
from dpcore.budget import DpSgd, Gaussian, Laplace, steps
from dpcore.budget.connection import with_ledger
from dpcore.errors import BudgetRefused, RunHeld, UsageError
from dpcore.ledger import RunState, open_ledger
from dpcore.ledger.holder import worker
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours
from dpcore.steward.approvals import require_approval
from tests.dpcore.budget.accounts import UNIT, opened, remaining, runs, spent

TENTH = Fraction(1, 10)
clinic = Budget("clinic")


def counting(**terms: Any) -> tuple[list[int], Any]:
    """Return a function that an account pays for, and the arguments that its body has seen."""
    seen: list[int] = []

    @clinic.spends(**{"unit": UNIT, "epsilon": 0.1} | terms)
    def count(number: int) -> int:
        seen.append(number)
        return number * number

    return seen, count


def test_ten_tenths_run_and_the_eleventh_is_refused_before_its_body(place: Path) -> None:
    opened()
    seen, count = counting()
    assert [count(number) for number in range(10)] == [number * number for number in range(10)]
    with pytest.raises(BudgetRefused, match=r"account 'clinic' cannot pay 0\.1 epsilon: 0 epsilon remains"):
        count(10)
    assert seen == list(range(10))
    assert spent() == 1


def test_the_charge_is_durable_before_the_body_runs(place: Path) -> None:
    opened()

    @clinic.spends(unit=UNIT, epsilon=0.1)
    def look() -> str:
        return str(spent())

    assert look() == "1/10"


def test_a_name_is_paid_once_and_its_value_returned_to_all(place: Path) -> None:
    opened()
    seen, count = counting(name="square of {number}")
    assert [count(3), count(number=3), count(4)] == [9, 9, 16]
    assert seen == [3, 4]
    assert spent() == 2 * TENTH
    _, other = counting(name="square of 3")
    with pytest.raises(UsageError, match="belongs to another step or to other arguments"):
        other(4)
    assert {run.id for run in runs()} == {"square of 3/1", "square of 4/1"}


def test_without_a_flow_run_and_a_name_each_call_pays(folder: Path) -> None:
    opened()
    seen, count = counting()
    count(1)
    count(1)
    assert (seen, spent()) == ([1, 1], 2 * TENTH)


def test_a_body_that_raises_stays_paid_and_its_error_is_the_users_own(place: Path) -> None:
    opened()
    fails = [True]

    @clinic.spends(unit=UNIT, epsilon=0.1, name="flaky")
    def flaky() -> int:
        if fails.pop():
            raise KeyError("mine")
        return 7

    with pytest.raises(KeyError, match="mine"):
        flaky()
    assert [run.state for run in runs()] == [RunState.SETTLED]
    fails.append(False)
    assert [flaky(), flaky()] == [7, 7]
    assert spent() == 2 * TENTH


def test_a_value_that_cannot_be_kept_is_refused_and_stays_paid(folder: Path) -> None:
    opened()

    @clinic.spends(unit=UNIT, epsilon=0.1, name="model")
    def model() -> object:
        return object()

    with pytest.raises(UsageError, match="can be kept"):
        model()
    assert spent() == TENTH


def test_a_step_that_another_worker_holds_is_refused_until_that_one_is_gone(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened()
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as other:
        name = worker(other.pid)
        with monkeypatch.context() as patch:
            patch.setattr("dpcore.ledger.ledger.this_worker", lambda: name)
            theirs = clinic.spend("held", unit=UNIT, epsilon=0.1, name="held")
            theirs.__enter__()
        steps._active.clear()  # they are in another process
        with pytest.raises(RunHeld, match=f"held by process {other.pid}"):
            clinic.spend("held", unit=UNIT, epsilon=0.1, name="held").__enter__()
        assert spent() == TENTH
        other.kill()
    with clinic.spend("held", unit=UNIT, epsilon=0.1, name="held") as paid:
        paid.keep(1)
    assert spent() == 2 * TENTH
    theirs.__exit__(None, None, None)


def test_a_step_that_another_task_of_this_process_runs_is_refused(place: Path) -> None:
    opened()
    with clinic.spend("mean", unit=UNIT, epsilon=0.1, name="mean") as paid:
        with pytest.raises(RunHeld, match="another task of this process"):
            clinic.spend("mean", unit=UNIT, epsilon=0.1, name="mean").__enter__()
        paid.keep(1)
    assert spent() == TENTH


def test_a_stale_worker_cannot_keep(place: Path) -> None:
    opened()
    stale = clinic.spend("slow", unit=UNIT, epsilon=0.1, name="slow")
    paid = stale.__enter__()
    steps._active.clear()  # another worker finds the run of one that seems dead: this process has its name
    with clinic.spend("slow", unit=UNIT, epsilon=0.1, name="slow") as newer:
        with pytest.raises(RunHeld, match="taken over"):
            paid.keep("stale")
        newer.keep("newer")
    stale.__exit__(None, None, None)
    with clinic.spend("slow", unit=UNIT, epsilon=0.1, name="slow") as again:
        assert again.value == "newer"
    assert spent() == 2 * TENTH


def test_with_a_block_of_code(place: Path) -> None:
    opened()
    for _ in range(2):
        with clinic.spend("mean", unit=UNIT, epsilon=0.1, name="mean") as paid:
            if not paid.kept:
                assert paid.keep({"mean": np.float64(4.5), "parts": (1, 2)}) == {"mean": 4.5, "parts": [1, 2]}
        assert paid.value == {"mean": 4.5, "parts": [1, 2]}
    with pytest.raises(UsageError, match="has a value already"):
        paid.keep(2)
    assert spent() == TENTH


def test_asynchronous_functions(place: Path) -> None:
    opened(epsilon=0.5)
    seen: list[int] = []

    @clinic.spends(unit=UNIT, epsilon=0.1, name="async {number}")
    async def count(number: int) -> int:
        await asyncio.sleep(0)
        seen.append(number)
        return -number

    async def main() -> list[Any]:
        first = await asyncio.gather(*map(count, range(8)), return_exceptions=True)
        return [*first, await count(int(seen[0]))]

    *first, again = asyncio.run(main())
    assert sorted(map(type, first), key=str) == [BudgetRefused] * 3 + [int] * 5
    assert again == -seen[0]
    assert (len(seen), spent()) == (5, Fraction(1, 2))


def test_threads_of_one_process_run_a_step_once(folder: Path) -> None:
    opened()
    begun, go = threading.Event(), threading.Event()
    seen: list[int] = []

    @clinic.spends(unit=UNIT, epsilon=0.1, name="once")
    def once() -> int:
        seen.append(1)
        begun.set()
        go.wait()
        return 1

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(once)
        begun.wait()
        second = pool.submit(once)
        with pytest.raises(RunHeld):
            second.result()
        go.set()
        assert first.result() == 1
    assert (seen, spent()) == ([1], TENTH)


def test_a_reserve_is_refused_at_its_start(place: Path) -> None:
    opened(epsilon=0.5)
    with pytest.raises(BudgetRefused), clinic.reserve(epsilon=0.6):
        pytest.fail("the block must not begin")
    assert remaining() == 5 * TENTH


def test_steps_draw_from_the_reserve_and_the_rest_goes_back(place: Path) -> None:
    opened(epsilon=0.5)
    _, count = counting()
    with clinic.reserve(epsilon=0.4):
        assert remaining() == TENTH
        count(1)
        count(2)
        assert remaining() == TENTH
        assert spent() == 2 * TENTH
    assert remaining() == 3 * TENTH
    assert spent() == 2 * TENTH


def test_a_reserve_is_the_most_that_its_steps_take(place: Path) -> None:
    opened()
    seen, count = counting()
    with clinic.reserve(epsilon=0.2):
        count(1)
        count(2)
        with pytest.raises(BudgetRefused, match="the reserve of this flow run"):
            count(3)
    assert seen == [1, 2]
    count(3)  # after it, the account pays
    assert spent() == 3 * TENTH


def test_two_reserves_of_one_flow_run_are_the_same(folder: Path) -> None:
    opened()
    _, count = counting()
    with clinic.reserve(epsilon=0.2), clinic.reserve(epsilon=0.2):
        assert remaining() == Fraction(8, 10)
        with pytest.raises(UsageError, match="reserved something else"), clinic.reserve(epsilon=0.3):
            pass
        count(1)
    assert (remaining(), spent()) == (Fraction(9, 10), TENTH)


def test_a_reserve_of_epsilon_and_delta_is_the_amount_that_promises_them(folder: Path) -> None:
    opened(currency=Currency.ZCDP)
    with clinic.reserve(epsilon=1, delta=1e-9):
        assert remaining() == 0
        with clinic.spend("mean", unit=UNIT, rho=0.001) as paid:
            paid.keep(1)
    assert spent() == Fraction(1, 1000)


def test_units_and_neighbours_must_be_those_of_the_account(folder: Path) -> None:
    opened(currency=Currency.GDP, neighbours=Neighbours.REPLACE_ONE)
    with pytest.raises(UsageError, match="protects unit row, but account 'clinic' protects patient_id"):
        counting(unit="row")[1](1)
    training = DpSgd(noise_multiplier=100, steps=2, sampling_rate=0.1, neighbours=Neighbours.ADD_REMOVE)
    with pytest.raises(UsageError, match="protects neighbours add-remove"):
        counting(epsilon=None, mechanism=training)[1](1)
    assert runs() == ()


@pytest.mark.parametrize(
    ("currency", "terms", "price"),
    [
        (Currency.PURE, {"mechanism": Laplace(scale=20, sensitivity=2)}, TENTH),
        (Currency.ZCDP, {"rho": "1/1000"}, Fraction(1, 1000)),
        (Currency.ZCDP, {"mu": "0.01"}, Fraction(1, 20_000)),
        (Currency.GDP, {"mu": "0.01"}, Fraction(1, 10_000)),
        (Currency.GDP, {"mechanism": Gaussian(scale=100, sensitivity=1, continuous=True)}, Fraction(1, 10_000)),
    ],
)
def test_what_is_stated_decides_the_price(
    folder: Path, currency: Currency, terms: dict[str, Any], price: Fraction
) -> None:
    opened(currency=currency)
    counting(epsilon=None, **terms)[1](1)
    assert spent() == price


def test_what_the_currency_cannot_state_is_refused(folder: Path) -> None:
    opened(currency=Currency.GDP)
    for terms in ({"epsilon": 0.1, "delta": 1e-9}, {"epsilon": None, "rho": 0.1}):
        with pytest.raises(UsageError, match="implies no mu"):
            counting(**terms)[1](1)
    assert runs() == ()


@pytest.mark.parametrize("terms", [{"epsilon": None}, {"rho": 1}, {"epsilon": None, "delta": 1e-9, "rho": 1}])
def test_exactly_one_guarantee_is_stated(terms: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="state exactly one"):
        counting(**terms)


def test_only_a_function_that_returns_its_result_is_decorated() -> None:
    def numbers() -> Any:
        yield 1

    for not_a_function in (numbers, int, clinic):
        with pytest.raises(UsageError, match="directly above a function"):
            clinic.spends(unit=UNIT, epsilon=0.1)(not_a_function)  # type: ignore[arg-type]


def test_blocks_allowances_and_approvals_apply(place: Path) -> None:
    opened("monthly", blocks_by="month of visit_date")
    with open_ledger() as ledger:
        ledger.open_blocks("monthly", ["2026-01", "2026-02"])
        ledger.seal_blocks("monthly", ["2026-01"])
    monthly = Budget("monthly")
    with pytest.raises(UsageError, match="name every block"):
        monthly.spend("mean", unit=UNIT, epsilon=0.1).__enter__()
    with pytest.raises(UsageError, match="may still grow"):
        monthly.spend("mean", unit=UNIT, epsilon=0.1, blocks=["2026-02"]).__enter__()
    with monthly.reserve(epsilon=0.5, blocks=["2026-01"]):
        with pytest.raises(UsageError, match="not in the flow run's reserve"):
            monthly.spend("mean", unit=UNIT, epsilon=0.1, blocks=["2026-02"]).__enter__()
        with monthly.spend("mean", unit=UNIT, epsilon=0.1) as paid:
            paid.keep(1)
    assert spent("monthly") == TENTH

    opened()
    require_approval("clinic", above=0.15, delta=0.0, within_seconds=60)
    with pytest.raises(UsageError, match=r"approval above epsilon 0\.15, and this asks for epsilon 0\.2"):
        counting(epsilon=0.2)[1](1)
    counting(epsilon=0.2, approved=True)[1](1)
    with clinic.reserve(epsilon=0.3, approved=True):
        counting(epsilon=0.2)[1](1)
    assert spent() == 4 * TENTH


def test_an_array_of_a_megabyte_is_kept_and_returned(place: Path) -> None:
    opened()
    with clinic.spend("large", unit=UNIT, epsilon=0.1, name="large") as paid:
        paid.keep(np.arange(200_000))
    with clinic.spend("large", unit=UNIT, epsilon=0.1, name="large") as again:
        assert again.kept
    assert np.array_equal(again.value, np.arange(200_000))
    assert AMOUNT_OF_ONE * spent() == AMOUNT_OF_ONE // 10


def test_a_caller_who_stops_waiting_for_a_charge_leaves_nothing_at_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened()
    seen, count = counting(name="interrupted")
    result = Future.result

    def interrupted(future: Future[Any], timeout: float | None = None) -> Any:
        monkeypatch.setattr(Future, "result", result)
        future.exception()  # it was charged before the signal came
        raise KeyboardInterrupt

    monkeypatch.setattr(Future, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        count(1)
    assert count(1) == 1
    assert seen == [1]
    assert [run.state for run in runs()] == [RunState.SETTLED] * 2
    assert spent() == 2 * TENTH


def test_a_cancelled_asynchronous_call_stays_paid_and_can_be_made_again(place: Path) -> None:
    opened()
    blocked = [True]

    @clinic.spends(unit=UNIT, epsilon=0.1, name="cancelled")
    async def wait() -> int:
        begun.set()
        if blocked.pop():
            await asyncio.Event().wait()
        return 7

    async def main() -> int:
        call = asyncio.create_task(wait())
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        blocked.append(False)
        return await wait()

    begun = asyncio.Event()
    assert asyncio.run(main()) == 7
    assert spent() == 2 * TENTH


def test_a_forked_process_has_a_connection_of_its_own(folder: Path) -> None:
    opened()
    _, count = counting(name="of {number}")
    count(1)
    child = os.fork()
    if not child:
        os._exit(0 if count(1) == 1 and count(2) == 4 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert count(2) == 4
    assert spent() == 2 * TENTH


def test_an_abandoned_block_that_the_thread_of_the_ledger_collects_is_ended(folder: Path) -> None:
    opened()
    abandoned = [clinic.spend("left", unit=UNIT, epsilon=0.1, name="left")]
    abandoned[0].__enter__()
    with_ledger(lambda _ledger: abandoned.clear()).result(timeout=60)
    with clinic.spend("left", unit=UNIT, epsilon=0.1, name="left") as paid:
        paid.keep(1)
    assert spent() == 2 * TENTH
