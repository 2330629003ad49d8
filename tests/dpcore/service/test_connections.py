"""Connections of a real server: none carries a second request that was hidden in a first, and none keeps the server from others."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dpcore.service.connections import ServerConfig
from dpcore.service.gate import HEADERS, Gate
from dpcore.service.serve import _config
from tests.dpcore.service.conftest import serving as serving_session
from tests.hostile_clients import (
    LOOPBACK,
    MALFORMED,
    connected,
    heard,
    is_last_answer,
    refused,
    serving,
    status_behind_half_open,
)

PATH = "/console.css"
SHORT_SECONDS = 0.2
UVICORN = "h11"
"""Uvicorn's own protocol, which waits for clients forever."""

LARGE = 2**26
"""More bytes than the system keeps for a connection."""

Configured = Callable[[int], ServerConfig]


@pytest.fixture(scope="module")
def app(opened: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The service of a session, without a gate."""
    folder = tmp_path_factory.mktemp("connections") / "copy"
    shutil.copytree(opened, folder)
    with serving_session(folder / "spec.yaml") as service:
        yield service.client.app._app


def configured(app: Any, gate: type[Gate] = Gate, **settings: Any) -> Configured:
    """Return the settings of the service for a port, with some changed."""

    def config_of(port: int) -> ServerConfig:
        config = _config(gate(app, hosts=[f"{LOOPBACK}:{port}"]))
        for name, value in settings.items():
            setattr(config, name, value)
        return config

    return config_of


@pytest.fixture(scope="module")
def port(app: Any) -> Iterator[int]:
    with serving(configured(app)) as (port, _):
        yield port


def test_a_request_that_is_refused_before_its_end_ends_the_connection(port: int) -> None:
    assert [name for name, answers in refused(port, PATH).items() if not is_last_answer(answers)] == []


def test_a_request_that_was_read_leaves_the_connection_open(port: int) -> None:
    whole = f"GET {PATH} HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\n"
    both = f"{whole}Content-Length: 0\r\n\r\n{whole}Connection: close\r\n\r\n"
    assert heard(connected(port, both.encode())).count(b"HTTP/1.1 200") == 2


class KeepingOpen(Gate):
    """Planted: a connection goes on after a request that was not read to its end."""

    def _guarded(self, scope: Any, receive: Any, send: Any) -> tuple[Any, Any]:
        async def sent(message: Any) -> None:
            await send({**message, "headers": [*message.get("headers", []), *HEADERS]})

        return receive, sent


def test_a_gate_that_keeps_connections_open_is_found(app: Any) -> None:
    with serving(configured(app, KeepingOpen, timeout_keep_alive=SHORT_SECONDS)) as (port, _):
        by_request = refused(port, PATH)
    assert b"HTTP/1.1 200" in by_request["two lengths"]
    assert {name for name, answers in by_request.items() if is_last_answer(answers)} == MALFORMED


def test_half_open_connections_do_not_keep_others_out(port: int) -> None:
    assert status_behind_half_open(port, PATH) == (200, False)


def test_connections_that_wait_without_a_limit_keep_others_out(app: Any) -> None:
    """Planted: as many as the service may have at all, and uvicorn's protocol."""
    with serving(configured(app, http=UVICORN, limit_concurrency=20)) as (port, _):
        assert status_behind_half_open(port, PATH, clients=25) == (503, True)


async def talkative(_scope: Any, receive: Any, send: Any) -> None:
    """Read a request, and answer with much."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": bytes(LARGE), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


WAITS: dict[str, tuple[str, int]] = {
    "nothing": ("", 0),
    "half a head": ("GET / HTTP/1.1\r\n", 0),
    "half a body": ("POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n", 1),
    "an answer that is not read": ("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", 1),
}
"""What a client sends, and how much of an answer shows that the server waits for it."""


@pytest.mark.parametrize("protocol", ["ours", UVICORN])
@pytest.mark.parametrize("kind", WAITS)
def test_the_server_does_not_wait_for_a_client_for_long(kind: str, protocol: str) -> None:
    """A later connection is closed because it is idle. Under uvicorn's protocol, which is planted, it does not end last."""
    request, first_bytes = WAITS[kind]
    settings = {"timeout_keep_alive": SHORT_SECONDS, "wait_seconds": SHORT_SECONDS}
    planted = {} if protocol == "ours" else {"http": protocol}
    with (
        serving(configured(talkative, **settings, **planted)) as (port, server),
        connected(port, request.format(f"{LOOPBACK}:{port}").encode()) as slow,
    ):
        with suppress(ConnectionError):
            slow.recv(first_bytes)
        heard(connected(port, b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"))
        assert len(server.server_state.connections) == (0 if protocol == "ours" else 1)
