"""The Prefect server as dpflow runs it on this machine: behind a gate, and with serialized writes to its SQLite database.

`dpflow ui` runs it as `python -m flows.server.app DESCRIPTOR`. It inherits the listening socket under that file descriptor, so that no
other program can take the port while it loads. Its settings are in its environment.
"""

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
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


def server_config(port: int, **settings: Any) -> ServerConfig:
    """Return the settings of a server that serves Prefect's application behind the gate on a port of 127.0.0.1."""
    secret = get_current_settings().server.database.connection_url
    url = secret.get_secret_value() if secret else ""
    if url and get_dialect(url).name == "sqlite":
        MODELS_DEPENDENCIES["database_config"] = InTurns(connection_url=url)
    # Both ends are on this machine, where compression costs more than it saves.
    gate = Gate(create_app(final=True), port=port)
    return ServerConfig(gate, ws=WebSocket, ws_per_message_deflate=False, **settings)


def main() -> None:
    """Serve until a signal stops the server."""
    listening = socket.socket(fileno=int(sys.argv[1]))
    server = get_current_settings().server
    config = server_config(
        listening.getsockname()[1],
        timeout_keep_alive=server.api.keepalive_timeout,
        log_level=server.logging_level.lower(),
        ws_ping_interval=server.api.websocket_ping_interval,
        ws_ping_timeout=server.api.websocket_ping_timeout,
    )
    serving = uvicorn.Server(config)
    serving.run(sockets=[listening])
    sys.exit(0 if serving.started else 1)


if __name__ == "__main__":
    main()
