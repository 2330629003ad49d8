"""A worker that has ended is known to be gone, and no other is."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dpcore.ledger import holder
from dpcore.ledger.holder import surely_gone, this_worker, worker

HERE, NUMBER = socket.gethostname(), os.getpid()
ELSEWHERE = f"not-{HERE}"
NUMBERING = holder._pid_namespace()

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only /proc tells when a process began")


@contextmanager
def waiting(program: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run a program until its input ends, and give the name that it would have as a worker."""
    with subprocess.Popen([program], stdin=subprocess.PIPE) as running:
        yield running, worker(running.pid)


@pytest.fixture
def cat() -> Path:
    found = shutil.which("cat")
    assert found
    return Path(found)


def test_a_worker_is_named_by_its_machine_its_number_and_when_it_began() -> None:
    machine, number, began = this_worker().rsplit(" ", 2)
    assert (machine, int(number)) == (HERE, NUMBER)
    assert re.fullmatch(f"[0-9a-f]{{12}}@{NUMBERING}", began)


@needs_proc
def test_the_name_does_not_tell_when_the_worker_began() -> None:
    moment = holder._start_time(NUMBER)
    assert moment
    assert str(moment) not in this_worker()
    assert all(holder._digest(text) not in this_worker() for text in (f"{moment}", f"{NUMBERING} {moment}"))


def test_this_worker_is_not_gone() -> None:
    assert not surely_gone(this_worker())


@needs_proc
def test_a_process_is_gone_once_it_has_ended_and_not_before(cat: Path) -> None:
    with waiting(cat) as (_, name):
        assert not surely_gone(name)
    assert surely_gone(name)


@needs_proc
def test_a_process_that_ended_is_gone_before_its_parent_notices(cat: Path) -> None:
    with waiting(cat) as (running, name):
        assert running.stdin
        running.stdin.close()
        os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
        assert surely_gone(name)


@needs_proc
def test_a_program_may_have_brackets_and_spaces_in_its_name(cat: Path, tmp_path: Path) -> None:
    odd = tmp_path / ") Z 1 (a"
    odd.symlink_to(cat)
    with waiting(odd) as (running, name):
        assert Path(f"/proc/{running.pid}/comm").read_text(encoding="utf-8") == ") Z 1 (a\n"
        assert not surely_gone(name)


def test_a_number_that_went_to_a_later_process_does_not_keep_the_earlier_one_alive() -> None:
    assert surely_gone(f"{HERE} {NUMBER} 1@{NUMBERING}")


@pytest.mark.parametrize(
    "name",
    [
        f"{ELSEWHERE} {NUMBER} 1@{NUMBERING}",
        f"{HERE} {NUMBER} 1@elsewhere",
        f"{HERE} {NUMBER} 1",
        f"{HERE} {NUMBER} 0@{NUMBERING}",
        *("night-shift", "two words", f"{HERE} {NUMBER} soon", f"{HERE} nobody 1", f"{HERE} {NUMBER}", ""),
    ],
    ids=[
        "elsewhere",
        "another-container",
        "unknown-numbers",
        "unknown-beginning",
        "a-word",
        "two-words",
        "no-moment",
        "no-number",
        "too-short",
        "empty",
    ],
)
def test_of_other_names_nothing_is_known(name: str) -> None:
    assert not surely_gone(name)


def test_without_a_way_to_know_the_beginning_nobody_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "_start_time", lambda process: None)
    assert this_worker() == f"{HERE} {NUMBER} 0@{NUMBERING}"
    assert not surely_gone(this_worker())


def test_where_the_boot_has_no_name_nobody_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable() -> str:
        raise PermissionError

    monkeypatch.setattr(holder, "_boot", unreadable)
    monkeypatch.setattr(holder, "_pid_namespace", holder._pid_namespace.__wrapped__)
    assert this_worker() == f"{HERE} {NUMBER} 0@"
    assert not surely_gone(this_worker())
