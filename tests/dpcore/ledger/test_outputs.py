"""The files beside an SQLite ledger, which hold what is too large for a row."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from dpcore.errors import LedgerDamaged, LedgerError
from dpcore.ledger import Lease, Ledger, open_ledger
from dpcore.ledger.sqlite.outputs import LARGEST_IN_ROW
from tests.dpcore.ledger.fixtures import MECHANISM, assert_sound, opened

LARGE = b"noisy" * LARGEST_IN_ROW
DIGEST = sha256(LARGE).hexdigest()
LEASE = Lease("run", 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite.outputs"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with open_ledger(f"sqlite:///{path}", create=True) as ledger:
        opened(ledger)
        ledger.reserve("run", account="clinic", amount=10, claim="claim")
        assert ledger.lease("run") == LEASE
        yield ledger


def commit(ledger: Ledger, output: bytes) -> None:
    ledger.commit(ledger.charge(LEASE, step="measure", amount=1, mechanism=MECHANISM), output)


def in_row(path: Path) -> list[tuple[object]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT length(output) FROM operation").fetchall()


def test_a_larger_one_is_a_file_named_by_its_hash_for_its_owner_only(ledger: Ledger, path: Path, folder: Path) -> None:
    commit(ledger, LARGE)
    assert in_row(path) == [(None,)]
    (file,) = folder.iterdir()
    assert (file.name, file.read_bytes()) == (DIGEST, LARGE)
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)


def test_a_file_that_is_lost_or_changed_is_damage(ledger: Ledger, folder: Path) -> None:
    commit(ledger, LARGE)
    for change in (lambda file: file.write_bytes(LARGE[:-1]), Path.unlink):
        change(folder / DIGEST)
        with pytest.raises(LedgerDamaged, match="step 'measure' of run 'run' is not what was committed"):
            ledger.operation("run", "measure")
        with pytest.raises(LedgerDamaged, match="not what was committed"):
            ledger.transcript("run")
        with pytest.raises(LedgerDamaged):
            assert_sound(ledger)


def test_a_disk_that_fails_leaves_no_part_of_a_file(ledger: Ledger, folder: Path) -> None:
    resource = pytest.importorskip("resource", reason="file size limits exist on POSIX only")
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    operation = ledger.charge(LEASE, step="measure", amount=1, mechanism=MECHANISM)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_IN_ROW, unlimited[1]))
    try:
        with pytest.raises(LedgerError, match="check the path, its permissions and its disk"):
            ledger.commit(operation, LARGE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert list(folder.iterdir()) == []
    ledger.commit(operation, LARGE)
    assert ledger.transcript("run")[0].output == LARGE
    assert_sound(ledger)
