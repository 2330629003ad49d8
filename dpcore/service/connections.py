"""Connections of an HTTP server: clients that make it wait can't keep it from others.

Uvicorn closes a connection that is idle after an answer. It waits forever for the first request, for the rest of one that has begun, and
for a client that does not read its answer. Enough such connections would use up all that a server may have.
"""

import asyncio
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dpcore.service.gate import WAIT_SECONDS

MOST_WAITING = 256
"""For how many clients a server waits at once."""


class ServerConfig(uvicorn.Config):
    """Uvicorn's settings, with those of waiting, and the connections for which the server waits, in the order in which it began to."""

    def __init__(
        self, app: Any, *, wait_seconds: float = WAIT_SECONDS, most_waiting: int = MOST_WAITING, **settings: Any
    ) -> None:
        super().__init__(app, http=Connection, **settings)
        self.wait_seconds = wait_seconds
        self.most_waiting = most_waiting
        self.waiting: dict[Connection, asyncio.TimerHandle] = {}


class Connection(H11Protocol):
    """A connection that ends when the server has waited for its client too long, or longest while it waits for too many."""

    config: ServerConfig

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        super().connection_lost(exc)
        self._watch()

    def handle_events(self) -> None:
        """Wait for the rest of a request, or no longer."""
        super().handle_events()
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the end of the connection."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Wait until the client reads."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Wait no longer: the client has read."""
        super().resume_writing()
        self._watch()

    def _watch(self) -> None:
        """Start a clock when the turn goes to the client, and stop it when the turn goes to the server or the connection ends."""
        waiting, cycle = self.config.waiting, self.cycle
        serves = cycle and not (cycle.more_body or cycle.response_complete or self.flow.write_paused)
        if serves or self not in self.connections:  # it is lost, or a WebSocket by now
            if self in waiting:
                waiting.pop(self).cancel()
        elif self not in waiting:
            waiting[self] = self.loop.call_later(self.config.wait_seconds, self.transport.abort)
            if len(waiting) > self.config.most_waiting:
                longest = next(iter(waiting))
                waiting.pop(longest).cancel()
                longest.transport.abort()
