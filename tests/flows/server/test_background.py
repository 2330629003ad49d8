import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from flows.server import background
from flows.server.running import Program, Running, note_down, running, running_url, ui_folder
from tests.flows.stack import wait_for
from tests.ports import free_port

SLEEPER = ["-c", "import time; time.sleep(600)"]
CHILD = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)"
PARENT = ["-c", f"import subprocess, sys, time; {CHILD}; time.sleep(600)"]
STUBBORN = [
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    place = ui_folder()
    place.mkdir(parents=True)
    yield place
    background.end(background.all_of(place), patience=0)


def start(folder: Path, arguments: list[str]) -> int:
    return background.start(arguments, folder=folder, log="log", environment=dict(os.environ))


def wait_until_marked(folder: Path, count: int) -> list[psutil.Process]:
    return wait_for(lambda: len(found := background.all_of(folder)) >= count and found, "the programs")


def test_a_program_is_known_again_by_what_it_was_started_with(folder: Path) -> None:
    pid = start(folder, SLEEPER)
    wait_until_marked(folder, 1)
    assert background.runs(pid, SLEEPER, folder=folder)
    assert not background.runs(pid, STUBBORN, folder=folder)
    assert not background.runs(pid, SLEEPER, folder=folder / "another")


def test_a_process_that_was_given_the_same_number_is_not_ours(folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-P", *SLEEPER]) as other:
        try:
            note_down(Running(1, Program(other.pid, SLEEPER), Program(other.pid, SLEEPER)))
            found = running()
            assert found is not None
            assert found.server.pid == other.pid
            assert not found.server.alive
            assert running_url() is None
            background.end(background.all_of(folder), patience=60)
            assert other.poll() is None
        finally:
            other.kill()


def test_children_are_ended_too_even_when_their_parent_was_killed(folder: Path) -> None:
    pid = start(folder, PARENT)
    found = wait_until_marked(folder, 2)
    os.kill(pid, signal.SIGKILL)
    background.end(background.all_of(folder), patience=60)
    assert background.all_of(folder) == []
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in found)


def test_one_that_does_not_end_is_killed_after_some_patience(folder: Path) -> None:
    start(folder, STUBBORN)
    wait_for(lambda: (folder / "log").read_bytes() == b"1\n", "the program")
    background.end(background.all_of(folder), patience=0.3)
    assert background.all_of(folder) == []


@pytest.mark.parametrize("note", ["", "{", "[]", '{"port": 1}', '{"port": 1, "server": {}, "worker": {"pid": 1}}'])
def test_a_damaged_note_counts_as_none(folder: Path, note: str) -> None:
    (folder / "running.json").write_text(note, encoding="utf-8")
    assert running() is None
    assert running_url() is None


PORT = "import socket, time; s = socket.socket(fileno={}); print(s.getsockname()[1], flush=True); time.sleep(600)"


def test_a_port_that_a_program_inherits_is_its_own_until_it_ends(folder: Path) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as listening:
        number = listening.fileno()
        arguments = ["-c", PORT.format(number)]
        background.start(arguments, folder=folder, log="log", environment=dict(os.environ), keep=[number])
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("127.0.0.1", port))
    found = wait_until_marked(folder, 1)
    background.end(found, patience=20)
    socket.create_server(("127.0.0.1", port)).close()
    assert (folder / "log").read_text(encoding="utf-8") in {"", f"{port}\n"}  # it may be ended before it says so


BOUND = f"""
import subprocess, sys, time
from flows.server.background import end_with
{CHILD}
end_with(int(sys.argv[1]), words="the other has ended")
print("ready", flush=True)
time.sleep(600)
"""
FREE = BOUND.replace("end_with(int", "(lambda *_, **__: None)(int")
"""Planted: a program that does not look after the other."""


def started(folder: Path, program: str, other: int) -> psutil.Process:
    """Start a program and its child, and wait until it looks after the other one."""
    pid = start(folder, ["-c", program, str(other)])
    wait_for(lambda: "ready" in (folder / "log").read_text(encoding="utf-8"), "the programs")
    return psutil.Process(pid)


def alive(folder: Path) -> set[int]:
    return {it.pid for it in background.all_of(folder) if it.status() != psutil.STATUS_ZOMBIE}


def test_a_program_that_is_bound_to_another_ends_with_it_and_so_do_its_children(folder: Path) -> None:
    other = start(folder, SLEEPER)
    started(folder, BOUND, other)
    assert len(alive(folder)) == 3
    os.kill(other, signal.SIGKILL)
    wait_for(lambda: not alive(folder), "the programs")
    assert (folder / "log").read_text(encoding="utf-8") == "ready\nthe other has ended\n"


def test_a_program_that_is_bound_to_one_that_is_gone_ends_at_once(folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    start(folder, ["-c", BOUND, str(gone.pid)])
    wait_for(lambda: (folder / "log").read_text(encoding="utf-8") == "the other has ended\n", "the programs")
    wait_for(lambda: not alive(folder), "the programs")


def test_a_program_that_is_not_bound_outlives_the_other(folder: Path) -> None:
    other = start(folder, SLEEPER)
    program = started(folder, FREE, other)
    os.kill(other, signal.SIGKILL)
    wait_for(lambda: other not in alive(folder), "the programs")
    with pytest.raises(psutil.TimeoutExpired):
        program.wait(5 * background.POLL_SECONDS)
