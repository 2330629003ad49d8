"""The slots of a worker: so many runs at a time, and a run that comes again while its last process is still there is one more.

And whose run gets a free slot: the accounts take turns.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest
from prefect.workers.base import BaseWorker

from flows.worker.worker import PrivateWorker, Slots, Turns


def test_a_run_may_come_again_before_its_last_process_has_ended() -> None:
    slots, run = Slots(2), uuid4()
    slots.acquire_on_behalf_of_nowait(run)
    slots.acquire_on_behalf_of_nowait(run)
    assert slots.borrowed_tokens == 2
    with pytest.raises(anyio.WouldBlock):
        slots.acquire_on_behalf_of_nowait(uuid4())
    slots.release_on_behalf_of(run)
    slots.acquire_on_behalf_of_nowait(uuid4())


def test_what_was_not_taken_is_not_given_back() -> None:
    slots, run = Slots(1), uuid4()
    slots.acquire_on_behalf_of_nowait(run)
    with pytest.raises(RuntimeError):
        slots.release_on_behalf_of(uuid4())
    slots.release_on_behalf_of(run)
    with pytest.raises(RuntimeError):
        slots.release_on_behalf_of(run)
    assert slots.borrowed_tokens == 0


async def _with_prefects_own() -> None:
    slots, run = anyio.CapacityLimiter(2), uuid4()
    slots.acquire_on_behalf_of_nowait(run)
    slots.acquire_on_behalf_of_nowait(run)


def test_with_prefects_own_a_run_may_not() -> None:
    with pytest.raises(RuntimeError, match="already holding"):
        anyio.run(_with_prefects_own)


ACCOUNTS = tuple(UUID(int=number) for number in (1, 2, 3))
"""The queues of three accounts, in the order of the priorities that Prefect gives them."""


def offered(waiting: Iterable[UUID]) -> list[Any]:
    """What the server offers: of each queue its runs that may be taken, in the order of priorities."""
    return [SimpleNamespace(flow_run=SimpleNamespace(id=uuid4(), work_queue_id=queue)) for queue in sorted(waiting)]


def taken(order: Callable[[Turns, list[Any]], list[Any]], *, rounds: int, slots: int) -> list[UUID]:
    """Let a worker take runs, as many as it has slots each time, while all accounts have more of them than it can do."""
    turns, queues = Turns(), []
    for _ in range(rounds):
        for offer in order(turns, offered(ACCOUNTS))[:slots]:
            turns.take(offer.flow_run.work_queue_id)
            queues.append(offer.flow_run.work_queue_id)
    return queues


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_accounts_take_turns(slots: int) -> None:
    assert Counter(taken(Turns.sort, rounds=30, slots=slots)) == dict.fromkeys(ACCOUNTS, 10 * slots)


def test_in_the_order_of_priorities_the_last_account_would_have_nothing() -> None:
    first, second, third = ACCOUNTS
    found = Counter(taken(lambda _, offers: offers, rounds=30, slots=2))
    assert (found[first], found[second], found[third]) == (30, 30, 0)


def test_of_many_runs_of_one_queue_the_second_waits_for_the_first_of_others() -> None:
    first, second, third = ACCOUNTS
    turns = Turns()
    turns.take(third)
    sorted_ = [it.flow_run.work_queue_id for it in turns.sort(offered([first, first, first, second, third]))]
    assert sorted_ == [first, second, third, first, first]


def test_the_worker_takes_what_the_server_offers_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, _ = ACCOUNTS

    async def asked(self: BaseWorker[Any, Any, Any]) -> list[Any]:
        return offered([first, second])

    async def accepted(*_: Any) -> Any:
        return []

    monkeypatch.setattr(BaseWorker, "_get_scheduled_flow_runs", asked)
    monkeypatch.setattr(BaseWorker, "_propose_pending_state", accepted)
    monkeypatch.setattr(PrivateWorker, "_disallowed", accepted)
    worker = PrivateWorker(work_pool_name="any", name="any")

    async def two_rounds() -> list[UUID]:
        (one, _) = await worker._get_scheduled_flow_runs()
        await worker._propose_pending_state(one.flow_run)
        (other, _) = await worker._get_scheduled_flow_runs()
        return [one.flow_run.work_queue_id, other.flow_run.work_queue_id]

    assert asyncio.run(two_rounds()) == [first, second]


async def _gone(self: Any, run: Any) -> None:
    """What Prefect does about a run whose deployment is gone: nobody is asked, and the slot is kept."""


async def _broken(self: Any, run: Any) -> None:
    raise RuntimeError("the server answers 500")


async def _taken(self: Any, run: Any) -> None:
    await self._propose_pending_state(run)


@pytest.mark.parametrize(("prefect", "held"), [(_gone, 0), (_broken, 0), (_taken, 1)])
def test_a_run_that_is_not_executed_keeps_no_slot_and_ends_no_worker(
    monkeypatch: pytest.MonkeyPatch, prefect: Any, held: int
) -> None:
    async def accepted(*_: Any) -> Any:
        return []

    monkeypatch.setattr(BaseWorker, "_submit_run", prefect)
    monkeypatch.setattr(BaseWorker, "_propose_pending_state", accepted)
    monkeypatch.setattr(PrivateWorker, "_disallowed", accepted)
    worker, run = PrivateWorker(work_pool_name="any", name="any"), SimpleNamespace(id=uuid4(), work_queue_id=None)
    slots = Slots(1)
    worker._limiter = slots  # type: ignore[assignment]
    slots.acquire_on_behalf_of_nowait(run.id)
    asyncio.run(worker._submit_run(run))  # type: ignore[arg-type]
    assert slots.borrowed_tokens == held
