"""A SQLite database that is written in turns. That the whole server then turns nobody away is in `test_serve`."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from prefect.server.database.configurations import AioSqliteConfiguration
from sqlalchemy.exc import OperationalError

from flows.server_app import InTurns

MANY = 30
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
