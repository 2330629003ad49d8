"""The slots of a worker: so many runs at a time, and a run that comes again while its last process is still there is one more."""

from uuid import uuid4

import anyio
import pytest

from flows.worker.worker import Slots


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
