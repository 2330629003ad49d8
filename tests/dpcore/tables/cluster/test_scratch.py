"""The folder of the workers: the steward's, closed to others, and gone with the run or after it."""

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from dpcore.errors import UsageError
from dpcore.tables.cluster.connecting import scratch_folder


@pytest.fixture(autouse=True)
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPFLOW_PRIVATE", str(tmp_path / "private"))
    return tmp_path / "private"


def test_the_folder_lies_with_the_steward_and_is_closed_to_others(private: Path) -> None:
    with scratch_folder() as folder:
        assert folder.parent == private
        assert (folder.stat().st_mode & 0o777, private.stat().st_mode & 0o777) == (0o700, 0o700)


def test_the_folder_goes_with_all_that_is_in_it(private: Path) -> None:
    def fail() -> None:
        with scratch_folder() as folder:
            (folder / "storage").mkdir()
            (folder / "storage" / "spilled").write_bytes(b"codes")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(private.iterdir()) == []


def test_two_runs_have_two_folders_and_leave_each_other_alone(private: Path) -> None:
    with scratch_folder() as first, scratch_folder() as second:
        assert first.exists()
        assert second.exists()
    assert list(private.iterdir()) == []


def test_what_a_killed_run_leaves_is_removed_by_the_next(private: Path) -> None:
    ours, theirs = multiprocessing.Pipe()
    run = multiprocessing.get_context("spawn").Process(target=_hold, args=(theirs,))
    run.start()
    left = Path(ours.recv())
    with scratch_folder():
        assert left.exists()  # it is alive, and keeps its folder
    os.kill(run.pid or 0, signal.SIGKILL)
    run.join()
    run.close()
    assert left.exists()
    with scratch_folder():
        assert not left.exists()


def test_a_private_folder_that_cannot_be_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DPFLOW_PRIVATE", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="DPFLOW_PRIVATE"), scratch_folder():
        pass


def _hold(pipe: Connection) -> None:
    with scratch_folder() as folder:
        pipe.send(str(folder))
        signal.pause()
