"""What records connections is itself tested: it must not be silent about a program that calls another machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.connections import Connection, recorded, recording

# 192.0.2.0/24 belongs to nobody, and nothing here waits for an answer.
CALLS = {
    "connect": "it = socket.socket(); it.setblocking(False); it.connect_ex(('192.0.2.1', 9))",
    "sendto": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'', ('192.0.2.1', 9))",
    "getaddrinfo": "socket.getaddrinfo('192.0.2.1', 9)",
    "asyncio": "import asyncio\ntry: asyncio.run(asyncio.wait_for(asyncio.open_connection('192.0.2.1', 9), 0.01))\nexcept OSError: pass",
    "a child": "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import socket; socket.getaddrinfo(\"192.0.2.1\", 9)'], check=True)",
}


def _run(program: str, file: Path) -> list[Connection]:
    text = f"import socket\n{program}"
    subprocess.run([sys.executable, "-c", text], env=os.environ | recording(file), check=False, timeout=60)
    return recorded(file)


@pytest.mark.parametrize("call", CALLS)
def test_a_program_that_calls_another_machine_is_recorded(call: str, tmp_path: Path) -> None:
    assert "192.0.2.1" in {it.host for it in _run(CALLS[call], tmp_path / "connections") if it.outside}


def test_a_program_that_stays_on_this_machine_is_recorded_and_not_held_against_it(tmp_path: Path) -> None:
    program = "with socket.create_server(('127.0.0.1', 0)) as it: socket.create_connection(it.getsockname()).close()"
    found = _run(program, tmp_path / "connections")
    assert {it.event for it in found} >= {"start", "socket.connect"}
    assert not [it for it in found if it.outside]


@pytest.mark.parametrize("host", ["example.org", "192.0.2.1", "2001:db8::1", "0.0.0.0", "127.0.0.1.example.org"])  # noqa: S104  only looked at
def test_a_name_and_an_address_of_elsewhere_are_outside(host: str) -> None:
    assert Connection("", "socket.connect", host).outside


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost", "", None])
def test_this_machine_is_not_outside(host: str | None) -> None:
    assert not Connection("", "socket.connect", host).outside
