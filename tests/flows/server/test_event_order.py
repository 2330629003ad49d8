"""An event that follows one of an earlier server is not held back. Otherwise a run that died with the server would stay dead for 15 minutes."""

import asyncio
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from prefect.server.database import provide_database_interface
from prefect.server.events.ordering import EventArrivedEarly, memory
from prefect.server.events.schemas.events import ReceivedEvent, Resource
from prefect.server.events.storage.database import write_events
from prefect.settings import PREFECT_SERVER_DATABASE_CONNECTION_URL, temporary_settings
from prefect.types._datetime import now

from flows.server import event_order
from tests.flows.prefect_home import copy_home, used_home

RUN = Resource({"prefect.resource.id": f"prefect.flow-run.{uuid4()}"})
BEFORE = timedelta(seconds=-60)
AFTER = timedelta(seconds=60)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database that a server has made."""
    place = tmp_path_factory.mktemp("order") / "home"
    copy_home(used_home(tmp_path_factory), place)
    return place


def goes_on(home: Path, order: type[memory.CausalOrdering], *, stored: timedelta | None) -> bool:
    """Return whether an event is looked at, whose leader was stored at some time from the start of the server on, or never."""

    async def go() -> bool:
        running = ReceivedEvent(occurred=now("UTC"), event="prefect.flow-run.Running", resource=RUN, id=uuid4())
        dead = ReceivedEvent(
            occurred=now("UTC"), event="prefect.flow-run.Dead", resource=RUN, id=uuid4(), follows=running.id
        )
        db = provide_database_interface()
        if stored is not None:
            async with db.session_context(begin_transaction=True) as session:
                received = running.model_copy(update={"received": event_order.STARTED + stored})
                await write_events(session=session, events=[received])
        order.clear_all_scopes()
        try:
            async with order(scope="test").preceding_event_confirmed(unexpected, dead):
                return True
        except EventArrivedEarly:
            return False
        finally:
            order.clear_all_scopes()
            await (await db.engine()).dispose()

    url = f"sqlite+aiosqlite:///{home / 'prefect.db'}"
    with temporary_settings({PREFECT_SERVER_DATABASE_CONNECTION_URL: url}):
        return asyncio.run(go())


async def unexpected(_event: ReceivedEvent, _depth: int = 0) -> None:
    """Nothing waits for these events."""
    raise AssertionError


def test_an_event_waits_only_for_one_that_may_still_arrive(home: Path) -> None:
    ours = event_order.CausalOrdering
    assert goes_on(home, ours, stored=BEFORE)
    assert not goes_on(home, ours, stored=AFTER)  # it is being looked at, so the order still counts
    assert not goes_on(home, ours, stored=None)


def test_as_prefect_has_it_an_event_waits_also_for_one_of_an_earlier_server(home: Path) -> None:
    assert not goes_on(home, memory.CausalOrdering, stored=BEFORE)
