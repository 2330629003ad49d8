import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dpcore import private_log as stewardlog


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPFLOW_PRIVATE", str(tmp_path / "new" / "private"))
    return tmp_path / "new" / "private"


def look_up() -> None:
    {}["inner value 4711"]


def chained_error() -> ValueError:
    try:
        try:
            look_up()
        except KeyError as inner:
            raise ValueError("outer value 4712") from inner
    except ValueError as outer:
        return outer


def test_the_whole_traceback_with_its_causes_is_recorded(folder: Path) -> None:
    path = stewardlog.record(chained_error(), where="round-001/measure")
    assert path == folder / "failures.log"
    text = path.read_text()
    assert "round-001/measure" in text
    assert "inner value 4711" in text
    assert "ValueError: outer value 4712" in text
    assert "test_private_log.py" in text


def test_folder_and_file_are_closed_to_others(folder: Path) -> None:
    path = stewardlog.record(ValueError("x"))
    assert path is not None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_was_left_open_to_others_is_closed(folder: Path) -> None:
    path = stewardlog.note("first", where="x")
    assert path is not None
    path.chmod(0o644)
    stewardlog.note("second", where="x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_that_the_steward_made_keeps_its_mode(folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o750)
    stewardlog.note("x", where="x")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750


def test_entries_are_appended(folder: Path) -> None:
    stewardlog.note("first", where="a")
    path = stewardlog.note("second", where="b")
    assert path is not None
    assert path.read_text().index("first") < path.read_text().index("second")


def test_a_log_that_cannot_be_written_does_not_fail_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DPFLOW_PRIVATE", str(tmp_path / "file" / "private"))
    assert stewardlog.record(ValueError("x")) is None


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "failures.log").symlink_to(tmp_path / "elsewhere")
    assert stewardlog.note("x", where="x") is None
    assert not (tmp_path / "elsewhere").exists()


def test_an_error_whose_text_fails_is_recorded_by_its_type(folder: Path) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    path = stewardlog.record(MuteError())
    assert path is not None
    assert "MuteError" in path.read_text()


def test_without_a_setting_the_folder_lies_beside_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPFLOW_PRIVATE", raising=False)
    monkeypatch.chdir(tmp_path)
    assert stewardlog.private_folder() == tmp_path / ".dpflow" / "private"


PRINTING = """
import os, subprocess, sys
from dpcore import private_log as stewardlog

print("before")
with stewardlog.output_taken():
    print("printed 4713")
    print("complained 4714", file=sys.stderr)
    os.write(2, b"written below Python 4715")
    subprocess.run([sys.executable, "-c", "print('by a child 4716')"], check=True)
print("after")
"""


def printed() -> tuple[str, str]:
    run = subprocess.run([sys.executable, "-c", PRINTING], check=True, capture_output=True, text=True)
    return run.stdout, run.stderr


def test_what_a_process_and_its_libraries_print_goes_to_the_steward_alone(folder: Path) -> None:
    assert printed() == ("before\nafter\n", "")
    taken = (folder / "output.log").read_text()
    assert all(number in taken for number in ("4713", "4714", "4715", "4716"))
    assert stat.S_IMODE((folder / "output.log").stat().st_mode) == 0o600


def test_output_goes_nowhere_where_the_steward_has_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DPFLOW_PRIVATE", str(tmp_path / "file" / "private"))
    assert printed() == ("before\nafter\n", "")


def kept_bytes(folder: Path, notes: int) -> int:
    for number in range(notes):
        stewardlog.note(f"failure {number} " + "x" * 1000, where="x")
    return sum(path.stat().st_size for path in folder.iterdir())


def test_failures_that_are_caused_again_and_again_do_not_fill_the_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stewardlog, "LARGEST", 10_000)
    assert kept_bytes(folder, 100) < 2 * (10_000 + 1100)
    assert {path.name for path in folder.iterdir()} == {"failures.log", "failures.log.1"}
    assert "failure 99 " in (folder / "failures.log").read_text()
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())


def test_a_log_without_a_limit_is_caught_by_that_test(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stewardlog, "LARGEST", 10**9)
    assert kept_bytes(folder, 100) > 2 * (10_000 + 1100)
