"""The service of a session on a small table, used in this process without a network."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from httpx import ASGITransport, AsyncClient, Response

from dpcore.ledger import open_ledger
from dpcore.service.app import make_app
from dpcore.service.desk import Desk
from dpcore.service.door import Door
from dpcore.service.gate import Gate
from dpcore.session.analysts import add_analyst
from tests.dpcore.session.conftest import GROUPED, _draws, copied, opened  # noqa: F401  fixtures

HOST = "127.0.0.1:8000"
ALL = "select count(*) as n from release"
RATE = 10_000.0


@dataclass(frozen=True)
class Client:
    """Sends requests to an application, from any thread."""

    app: Any

    def request(self, method: str, path: str, **more: Any) -> Response:
        async def sent() -> Response:
            transport = ASGITransport(self.app, raise_app_exceptions=False)
            async with AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
                return await client.request(method, path, **more)

        return asyncio.run(sent())


@dataclass
class Served:
    """A running service, and two analysts of it."""

    client: Client
    tokens: dict[str, str]
    desk: Desk
    door: Door

    def send(self, path: str, body: Any = None, *, analyst: str = "ada", **headers: str) -> Any:
        """Send a request with an analyst's token: GET without a body, otherwise POST."""
        named = {"Authorization": f"Bearer {self.tokens[analyst]}"} | headers
        if body is None:
            return self.client.request("GET", path, headers=named)
        return self.client.request("POST", path, json=body, headers=named)

    def narrower(self, query: str, share: float = 0.6) -> float:
        """Return a share of the half width that an answer has for nothing, so that it must be bought."""
        return share * self.send("/price", {"query": query, "within": 1e9}).json()["half_width"]


@contextmanager
def serving(spec: Path, *, rate: float = RATE, **shares: float) -> Iterator[Served]:
    """Serve the session of a spec to analysts with these shares."""
    tokens = {name: add_analyst(spec, name, share=share).token for name, share in shares.items()}
    desk = Desk(spec, None)
    desk.open()
    door = Door(spec, desk.session, rate=rate)
    door.open()
    try:
        gate = Gate(make_app(desk, door), hosts=[HOST])
        yield Served(Client(gate), tokens, desk, door)
    finally:
        door.close()
        desk.close()


@pytest.fixture
def served(copied: Callable[[], Path]) -> Iterator[Served]:  # noqa: F811  the fixture above
    """Serve a copy of the session to ada, who may spend half of it, and to bob, who may spend a thousandth."""
    with serving(copied() / "spec.yaml", ada=0.5, bob=0.001) as service:
        yield service


def spent() -> int:
    """Return what the session has spent."""
    with open_ledger() as ledger:
        return ledger.run("s").spent
