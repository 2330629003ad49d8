"""The Prefect server as dpflow runs it on this machine: behind a gate, and with serialized writes to its SQLite database.

It runs as `python -m flows.server.app DESCRIPTOR`. It inherits the listening socket under that file descriptor, so that no other program
can take the port while it loads, and early requests wait for it. Its settings are in its environment.
"""

import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from threading import Thread
from weakref import WeakKeyDictionary

import uvicorn
from prefect.settings import get_current_settings
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from dpcore.service.connections import ServerConfig
from flows.prefect_compat import (
    MODELS_DEPENDENCIES,
    SQLITE_BEGIN_MODE,
    AioSqliteConfiguration,
    create_app,
    get_dialect,
)
from flows.server.gate import Gate
from flows.server.temporary import WHILE_INPUT_IS_OPEN

_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


class InTurns(AioSqliteConfiguration):
    """A SQLite database in which each transaction that may write waits for the one before it.

    Prefect lets most of them begin as readers. SQLite refuses such a transaction, without waiting, if another has written between its
    first read and its first write, and the server then answers 503.

    A transaction waits for its turn before it takes a connection. Otherwise those that wait would hold all 15 connections of the pool,
    and every other request would be answered with 500 after 30 seconds.
    """

    @asynccontextmanager
    async def begin_transaction(
        self,
        session: AsyncSession,
        with_for_update: bool = False,  # noqa: ARG002, FBT001, FBT002  as Prefect calls it
    ) -> AsyncGenerator[AsyncSessionTransaction, None]:
        """Begin as a writer, when those that came before have ended; for another process, SQLite waits up to a minute.

        Only this transaction begins as a writer. Meanwhile Prefect opens further sessions to read. If they began as writers, they would
        wait for the transaction that waits for them.
        """
        async with AsyncExitStack() as stack:
            if (
                SQLITE_BEGIN_MODE.get() is None
            ):  # else it is within another transaction, and would wait for that one's end
                await stack.enter_async_context(_turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()))
            transaction = await stack.enter_async_context(super().begin_transaction(session, with_for_update=True))
            await session.connection()  # begins
            token = SQLITE_BEGIN_MODE.set("DEFERRED")
            try:
                yield transaction
            finally:
                SQLITE_BEGIN_MODE.reset(token)


class WebSocket(WebSocketsSansIOProtocol):
    """A WebSocket whose connection ends if it can't be opened, as after a request with a body. Uvicorn would keep it without a limit."""

    def data_received(self, data: bytes) -> None:
        """Read a request or messages."""
        super().data_received(data)
        if self.conn.handshake_exc is not None:
            self.transport.close()


def main() -> None:
    """Serve until a signal stops the server or, if it was asked to look at it, until standard input closes."""
    listening = socket.socket(fileno=int(sys.argv[1]))
    settings = get_current_settings().server
    secret = settings.database.connection_url
    url = secret.get_secret_value() if secret else ""
    if url and get_dialect(url).name == "sqlite":
        MODELS_DEPENDENCIES["database_config"] = InTurns(connection_url=url)
    config = ServerConfig(
        Gate(create_app(final=True), port=listening.getsockname()[1]),
        ws=WebSocket,
        ws_per_message_deflate=False,  # both ends are on this machine, where compression costs more than it saves
        ws_ping_interval=settings.api.websocket_ping_interval,
        ws_ping_timeout=settings.api.websocket_ping_timeout,
        timeout_keep_alive=settings.api.keepalive_timeout,
        log_level=settings.logging_level.lower(),
        lifespan="on",
    )
    serving = uvicorn.Server(config)
    if WHILE_INPUT_IS_OPEN in sys.argv:
        Thread(target=_stop_at_end_of_input, args=(serving,), daemon=True).start()
    serving.run(sockets=[listening])
    # The database is closed by now. Prefect's remaining exit handlers take seconds and do nothing useful here.
    os._exit(0 if serving.started else 1)


def _stop_at_end_of_input(serving: uvicorn.Server) -> None:
    # Not sys.stdin: this thread would hold its lock, and exiting after a failed start would crash.
    while os.read(0, 1):
        pass
    if serving.started:
        serving.should_exit = True
        time.sleep(10)
    # A server that is still creating its database can be cut off, because that is one transaction.
    os._exit(0)


if __name__ == "__main__":
    main()
