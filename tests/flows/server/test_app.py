"""A server whose connections end when they should, and a SQLite database that is written in turns. That the whole server then turns nobody away is in `test_serve`."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from prefect.server.database.configurations import AioSqliteConfiguration
from sqlalchemy.exc import OperationalError

from flows.server.app import InTurns, _turns
from flows.server.password import authorization
from tests.flows.stack import RUN_SECONDS
from tests.hostile_clients import is_last_answer, refused, status_behind_half_open

MANY = 30
POOL = 15
"""How many connections SQLAlchemy's pool has."""

COUNT, WRITE = sa.text("SELECT count(*) FROM t"), sa.text("INSERT INTO t VALUES (1)")


async def opened(make: Callable[..., AioSqliteConfiguration], folder: Path) -> AioSqliteConfiguration:
    """Return a database with an empty table."""
    database = make(connection_url=f"sqlite+aiosqlite:///{folder / 'any.db'}")
    async with (await database.engine()).begin() as connection:
        await connection.execute(sa.text("CREATE TABLE t (x INTEGER)"))
    return database


def test_of_many_transactions_at_once_none_is_refused(tmp_path: Path) -> None:
    async def one(database: InTurns) -> None:
        session = await database.session(await database.engine())
        async with session, database.begin_transaction(session):
            await session.execute(COUNT)
            await session.execute(WRITE)

    async def all_at_once() -> int:
        database = await opened(InTurns, tmp_path)
        await asyncio.gather(*(one(database) for _ in range(MANY)))
        engine = await database.engine()
        async with engine.connect() as connection:
            rows = int((await connection.execute(COUNT)).scalar_one())
        await engine.dispose()
        return rows

    assert asyncio.run(all_at_once()) == MANY


def test_as_prefect_has_it_one_that_is_overtaken_is_refused(tmp_path: Path) -> None:
    async def overtaken() -> None:
        database = await opened(AioSqliteConfiguration, tmp_path)
        engine = await database.engine()
        slow, quick = await database.session(engine), await database.session(engine)
        try:
            async with slow, database.begin_transaction(slow):
                await slow.execute(COUNT)
                async with quick, database.begin_transaction(quick):
                    await quick.execute(WRITE)
                await slow.execute(WRITE)
        finally:
            await engine.dispose()

    with pytest.raises(OperationalError, match="database is locked"):
        asyncio.run(overtaken())


@pytest.mark.parametrize("update", [False, True])
def test_a_transaction_begins_as_a_writer_however_it_is_asked_for(tmp_path: Path, update: bool) -> None:
    said: list[str] = []

    async def begin() -> None:
        database = InTurns(connection_url=f"sqlite+aiosqlite:///{tmp_path / 'any.db'}")
        engine = await database.engine()
        sa.event.listen(engine.sync_engine, "before_cursor_execute", lambda *it: said.append(it[2]))
        session = await database.session(engine)
        async with session, database.begin_transaction(session, with_for_update=update):
            await session.execute(sa.text("SELECT 1"))
        await engine.dispose()

    asyncio.run(begin())
    assert said == ["BEGIN IMMEDIATE", "SELECT 1"]


class HoldingConnections(InTurns):
    """Planted: each transaction waits for its turn with a connection in its hand."""

    @asynccontextmanager
    async def begin_transaction(self, session: Any, with_for_update: bool = False) -> AsyncGenerator[Any, None]:
        async with AioSqliteConfiguration.begin_transaction(self, session, with_for_update=True) as transaction:
            await session.connection()
            yield transaction


async def connections_of_those_that_wait(make: type[InTurns], folder: Path) -> int:
    """Let many transactions wait for a first one, be it for their turn or for a connection; return how many connections they take."""
    database = await opened(make, folder)
    engine = await database.engine()
    pool, free = engine.pool, asyncio.Event()
    assert isinstance(pool, sa.pool.QueuePool)

    async def one() -> None:
        session = await database.session(engine)
        async with session, database.begin_transaction(session):
            await session.execute(WRITE)
            await free.wait()

    waiting = [asyncio.create_task(one()) for _ in range(MANY)]
    turns = _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    async with asyncio.timeout(RUN_SECONDS):
        while len(turns._waiters or ()) < MANY - 1 and pool.checkedout() < POOL:
            await asyncio.sleep(0.01)
    taken = pool.checkedout()
    free.set()
    await asyncio.gather(*waiting, return_exceptions=True)
    await engine.dispose()
    return taken


def test_a_transaction_that_waits_for_its_turn_holds_no_connection(tmp_path: Path) -> None:
    assert asyncio.run(connections_of_those_that_wait(InTurns, tmp_path)) == 1


def test_if_it_did_nobody_else_would_get_one(tmp_path: Path) -> None:
    assert asyncio.run(connections_of_those_that_wait(HoldingConnections, tmp_path)) == POOL


class AllAsWriters(InTurns):
    """Planted: whatever is opened while a transaction lasts begins as a writer, too. It waits for a moment, not for Prefect's minute."""

    def setup_sqlite(self, conn: Any, record: Any) -> None:
        super().setup_sqlite(conn, record)
        with closing(conn.cursor()) as cursor:
            cursor.execute("PRAGMA busy_timeout = 100")

    @asynccontextmanager
    async def begin_transaction(self, session: Any, with_for_update: bool = False) -> AsyncGenerator[Any, None]:
        async with AioSqliteConfiguration.begin_transaction(self, session, with_for_update=True) as transaction:
            yield transaction


async def read_within(make: type[InTurns], folder: Path) -> tuple[int, int]:
    """Read in a second session while a first one writes; return the rows that it sees, and those that are there at the end."""
    database = await opened(make, folder)
    engine = await database.engine()
    outer, inner = await database.session(engine), await database.session(engine)
    try:
        async with outer, database.begin_transaction(outer):
            await outer.execute(WRITE)
            async with inner:
                seen = int((await inner.execute(COUNT)).scalar_one())
        async with engine.connect() as connection:
            return seen, int((await connection.execute(COUNT)).scalar_one())
    finally:
        await engine.dispose()


def test_a_session_that_reads_within_a_transaction_does_not_wait_for_it(tmp_path: Path) -> None:
    assert asyncio.run(read_within(InTurns, tmp_path)) == (0, 1)


def test_one_that_begins_as_a_writer_within_a_transaction_waits_in_vain(tmp_path: Path) -> None:
    with pytest.raises(OperationalError, match="database is locked"):
        asyncio.run(read_within(AllAsWriters, tmp_path))


def test_the_server_ends_connections_with_requests_that_it_does_not_read(prefect_server: str) -> None:
    answers = refused(httpx.URL(prefect_server).port, "/api/health")
    assert [name for name, answer in answers.items() if not is_last_answer(answer)] == []


def test_half_open_connections_do_not_pile_up_in_the_server(prefect_server: str) -> None:
    assert status_behind_half_open(httpx.URL(prefect_server).port, "/api/health") == (200, False)


@pytest.mark.prefect
def test_a_work_queue_is_paused_and_resumed_at_once_by_every_route(prefect_server: str) -> None:
    secret = authorization(os.environ["PREFECT_API_AUTH_STRING"])
    with httpx.Client(base_url=prefect_server, trust_env=False, headers=secret, timeout=RUN_SECONDS) as client:
        client.post("/work_pools/", json={"name": "turns", "type": "process"}).raise_for_status()
        made = client.post("/work_pools/turns/queues", json={"name": "calm"}).raise_for_status().json()
        routes = ("/work_pools/turns/queues/calm", f"/work_queues/{made['id']}")
        for route in routes:
            for paused in (True, False):
                client.patch(route, json={"is_paused": paused}).raise_for_status()
                assert client.get(routes[0]).json()["is_paused"] is paused
        client.delete("/work_pools/turns").raise_for_status()
