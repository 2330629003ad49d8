"""A ledger that a user may read and not write can be shown and verified, and refuses to be changed in one line."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dpcore.errors import LedgerDamaged, LedgerError
from dpcore.ledger import Ledger, open_ledger
from dpcore.ledger.verification import verify
from tests.conftest import small_disk
from tests.dpcore.cli.ledgers import dpflow
from tests.dpcore.ledger.fixtures import opened
from tests.postgres import postgres_folder

NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody can reach, with a ledger in it that nobody has open."""
    made = postgres_folder()
    made.chmod(0o755)
    with open_ledger(f"sqlite:///{made}/ledger.sqlite", create=True) as ledger:
        opened(ledger)
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
    yield made
    made.chmod(0o755)
    shutil.rmtree(made)


def at(folder: Path) -> Ledger:
    return open_ledger(f"sqlite:///{folder}/ledger.sqlite")


def reads_and_refuses(folder: Path) -> None:
    with at(folder) as ledger:
        assert ledger.balance("clinic").used == 300
        assert verify(ledger, price=lambda mechanism, currency: 1, heads={}).runs == 1
        with pytest.raises(LedgerError, match=r"ledger\.sqlite is read-only for this user; allow writing to the file"):
            ledger.close_account("clinic", reason="over")


def as_nobody(act: Callable[[], None]) -> int:
    """Do something in a child without any rights, and return how it ended."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            act()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as somebody else")


@as_root
@pytest.mark.parametrize(("file", "above"), [(0o444, 0o555), (0o666, 0o555), (0o444, 0o777), (0o444, 0o755)])
def test_another_user_reads_it_and_leaves_nothing_behind(folder: Path, file: int, above: int) -> None:
    (folder / "ledger.sqlite").chmod(file)
    folder.chmod(above)
    assert as_nobody(lambda: reads_and_refuses(folder)) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["ledger.sqlite", "private"]  # as its owner has left it


@as_root
def test_while_its_owner_works_another_user_sees_what_is_there(folder: Path) -> None:
    with at(folder) as ledger:
        ledger.reserve("more", account="clinic", amount=100, claim="claim")
        for path in folder.iterdir():
            path.chmod(0o444)
        folder.chmod(0o555)

        def look() -> None:
            with at(folder) as mine:
                assert mine.balance("clinic").used == 400

        assert as_nobody(look) == 0
        ledger.refund("more", lease=None)


@as_root
def test_a_journal_that_has_to_be_merged_first_is_named(folder: Path) -> None:
    with at(folder) as ledger:
        ledger.reserve("more", account="clinic", amount=100, claim="claim")
        copied = folder / "copy"
        copied.mkdir()
        for name in ("ledger.sqlite", "ledger.sqlite-wal"):
            shutil.copy(folder / name, copied)
    copied.chmod(0o555)

    def look() -> None:
        with pytest.raises(LedgerError, match="its journal has to be merged before it can be read"):
            at(copied)

    assert as_nobody(look) == 0
    with at(copied) as ledger:  # whoever may write loses nothing
        assert ledger.balance("clinic").used == 400


def test_a_read_only_disk_is_read(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if os.geteuid():
        pytest.skip("only root may mount a disk")
    disk = tmp_path / "disk"
    with small_disk(disk, "size=1m"):
        shutil.copy(folder / "ledger.sqlite", disk)
        remount = ["/bin/mount", "-o", "remount,ro", str(disk)]
        subprocess.run(remount, check=True)
        reads_and_refuses(disk)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DPFLOW_LEDGER_URL", f"sqlite:///{disk}/ledger.sqlite")
            patch.chdir(tmp_path)
            assert dpflow("ledger", "show") == dpflow("ledger", "verify") == dpflow("ledger", "history") == 0
            capsys.readouterr()
            for verb in (["close", "clinic", "--reason", "over"], ["settle", "run"]):
                assert dpflow("ledger", *verb) == 1
                said = capsys.readouterr().err
                assert "is read-only for this user" in said
                assert len(said.splitlines()) == 1


@pytest.mark.parametrize("code", [sqlite3.SQLITE_READONLY_DIRECTORY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM])
def test_a_refusal_of_the_system_leads_to_reading(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    connect = sqlite3.connect

    def refusing(address: str, **options: Any) -> sqlite3.Connection:
        if "mode=rw" in address:
            error = sqlite3.OperationalError("attempt to write")
            error.sqlite_errorcode = code
            raise error
        return connect(address, **options)

    monkeypatch.setattr(sqlite3, "connect", refusing)
    reads_and_refuses(folder)


def test_any_other_error_does_not(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "ledger.sqlite").write_bytes(b"no ledger" * 500)
    with pytest.raises(LedgerDamaged, match="is not a readable ledger"):
        at(folder)


def test_what_was_read_without_a_lock_is_refused_if_somebody_wrote_meanwhile(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpcore.ledger.sqlite.store.may_write", lambda path: False)
    reader = at(folder)
    monkeypatch.undo()
    assert reader.balance("clinic").used == 300
    with at(folder) as writer:
        writer.refund("run", lease=None)
        with pytest.raises(LedgerError, match="was written to while it was read without a lock; try again"):
            reader.balance("clinic")
    reader.close()
