"""From the moment `dpflow ui` begins to start a server, no other program can take its port and be sent the password."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpcore.errors import UsageError
from flows.cli import ui
from flows.server.running import ui_folder
from tests.ports import free_port


class StoppedError(Exception):
    """Ends the start where the server would be started."""


def squatted(monkeypatch: pytest.MonkeyPatch, listening: Callable[[Any], socket.socket]) -> bool:
    """Begin to start a server; return whether another program could take its port at that moment."""
    port, found = free_port(), []

    def start(*_: Any, keep: list[int], **__: Any) -> int:
        try:
            socket.create_server(("127.0.0.1", port)).close()
            found.append(True)
        except OSError:
            with socket.socket(fileno=socket.dup(keep[0])) as kept:
                assert kept.getsockname() == ("127.0.0.1", port)
            found.append(False)
        raise StoppedError

    monkeypatch.setattr(ui.background, "start", start)
    monkeypatch.setattr(ui, "_listening", listening)
    with pytest.raises(StoppedError):
        ui._both(port)
    socket.create_server(("127.0.0.1", port)).close()  # a failed start gives it back
    return found[0]


def checked_only(port: int) -> socket.socket:
    """Planted: look whether the port is free, and leave it to the server to take it later."""
    socket.create_server(("127.0.0.1", port)).close()
    return socket.socket()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ui_folder().mkdir(parents=True)


def test_the_port_is_taken_before_the_server_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not squatted(monkeypatch, ui._listening)


def test_a_port_that_is_only_looked_at_can_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert squatted(monkeypatch, checked_only)


def chosen(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    """Have chance choose these ports, and then the last of them."""
    left = list(ports)
    monkeypatch.setattr(ui, "random_port", lambda: left.pop(0) if len(left) > 1 else left[0])


def test_a_port_that_is_taken_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken, free = other.getsockname()[1], free_port()
        chosen(monkeypatch, taken, taken, free)
        with ui._listening(None) as listening:
            assert listening.getsockname() == ("127.0.0.1", free)


def test_whoever_takes_nearly_all_ports_does_not_choose_for_us(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        chosen(monkeypatch, *[taken] * ui.PORT_TRIES, free_port())
        with pytest.raises(UsageError, match="random ports are in use"):
            ui._listening(None)


def test_a_port_that_is_named_is_the_one(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setattr(ui, "random_port", lambda: pytest.fail("no other was to be chosen"))
    with ui._listening(port) as listening:
        assert listening.getsockname() == ("127.0.0.1", port)
        with pytest.raises(UsageError, match="omit --port"):
            ui._listening(port)
