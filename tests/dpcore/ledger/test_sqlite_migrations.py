"""A file of an earlier version becomes one of the next: all or nothing, once, and without touching what was recorded.

There is one version yet. A made-up second one adds a table, with a note on every event.
"""

import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from dpcore.errors import LedgerDamaged, LedgerError
from dpcore.ledger import Balance, Lease, Ledger, open_ledger
from dpcore.ledger.sqlite import file as sqlite_file
from dpcore.ledger.sqlite.schema import VERSION
from tests.dpcore.ledger.fixtures import MECHANISM, assert_sound, opened

NEXT = VERSION + 1
SCRIPT = """
CREATE TABLE note (
    seq INTEGER PRIMARY KEY,
    words TEXT NOT NULL,
    padding BLOB NOT NULL
) STRICT;
INSERT INTO note
SELECT seq, kind || '; of ' || account, zeroblob(100000) FROM event ORDER BY seq;
DROP TRIGGER event_kept;
CREATE TRIGGER event_kept BEFORE DELETE ON event
BEGIN SELECT raise(ABORT, 'events are never deleted'); END;
CREATE TRIGGER note_kept BEFORE DELETE ON note
BEGIN SELECT raise(ABORT, 'notes are never deleted'); END;
CREATE INDEX note_by_words ON note (words);
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of today's version, with a run that has ended and one that was left in the middle."""
    path = tmp_path / "ledger.sqlite"
    with open_ledger(f"sqlite:///{path}", create=True) as ledger:
        opened(ledger)
        opened(ledger, "births")
        for run in ("settled", "resumed"):
            ledger.reserve(run, account="clinic", amount=200, claim="claim")
            lease = ledger.lease(run)
            ledger.commit(ledger.charge(lease, step="measure", amount=90, mechanism=MECHANISM), b"noisy")
        ledger.settle("settled", release="clinic/release-1", lease=Lease("settled", 1))
    return path


@pytest.fixture
def next_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the made-up version is today's; the rules of a new file are those of the first."""
    monkeypatch.setattr("dpcore.ledger.sqlite.store.rules_changed", lambda _: None)
    monkeypatch.setattr(sqlite_file, "VERSION", NEXT)
    monkeypatch.setitem(sqlite_file.MIGRATIONS, VERSION, SCRIPT)


def at(path: Path) -> Ledger:
    return open_ledger(f"sqlite:///{path}")


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def assert_brought_up_to_date(path: Path) -> None:
    with at(path) as ledger:
        assert ledger.balance("clinic") == Balance(cap=1_000, spent=180, reserved=110)
        assert_sound(ledger)
    noted = "SELECT seq, kind || '; of ' || account FROM event WHERE seq <= (SELECT max(seq) FROM note) ORDER BY seq"
    assert rows(path, "SELECT seq, words FROM note ORDER BY seq") == rows(path, noted) != []
    assert rows(path, "PRAGMA user_version") == [(NEXT,)]


@pytest.mark.usefixtures("next_version")
def test_what_was_recorded_stays_event_for_event(path: Path) -> None:
    events = rows(path, "SELECT * FROM event ORDER BY seq")
    with at(path) as ledger:
        assert ledger.head() == events[-1][-1]
    assert rows(path, "SELECT * FROM event ORDER BY seq") == events
    assert_brought_up_to_date(path)
    assert rows(path, "PRAGMA foreign_key_check") == []
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.usefixtures("next_version")
def test_a_migrated_file_has_the_tables_and_rules_of_a_new_one(path: Path, tmp_path: Path) -> None:
    at(path).close()
    open_ledger(f"sqlite:///{tmp_path}/new.sqlite", create=True).close()
    schema = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
    assert rows(path, schema) == rows(tmp_path / "new.sqlite", schema)
    assert ("note_kept",) in rows(tmp_path / "new.sqlite", "SELECT name FROM sqlite_master")


@pytest.mark.usefixtures("next_version")
def test_a_run_that_was_left_open_goes_on(path: Path) -> None:
    with at(path) as ledger:
        lease = ledger.lease("resumed")
        ledger.commit(ledger.charge(lease, step="more", amount=60, mechanism=MECHANISM), b"noisy")
        ledger.settle("resumed", release="clinic/release-2", lease=lease)
        assert ledger.balance("clinic") == Balance(cap=1_000, spent=240, reserved=0)
        assert [done.step for done in ledger.transcript("resumed")] == ["measure", "more"]
        assert_sound(ledger)


def in_a_child(act: Callable[[], None]) -> int:
    """Do something in a forked process, and return its number."""
    child = os.fork()
    if child == 0:
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def open_until(path: Path, *, statement: int) -> None:
    """Open the ledger, and die just before SQLite's statement of this number."""
    connect = sqlite3.connect

    def mortal(*arguments: object, **options: object) -> sqlite3.Connection:
        left = statement

        def trace(_: str) -> None:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

        connection = connect(*arguments, **options)
        connection.set_trace_callback(trace)
        return connection

    sqlite3.connect = mortal
    at(path)


@pytest.mark.usefixtures("next_version")
def test_whoever_dies_while_migrating_leaves_the_first_version_as_it_was(path: Path) -> None:
    everything = (
        "SELECT name || sql FROM sqlite_master WHERE sql IS NOT NULL UNION ALL SELECT hash FROM event"
        " UNION ALL SELECT account || name || used FROM block"
        " UNION ALL SELECT id || spent || state FROM run UNION ALL SELECT run || step || attempt || state FROM operation"
    )
    before = rows(path, everything)
    deaths = 0
    while rows(path, "PRAGMA user_version") == [(VERSION,)]:
        assert rows(path, everything) == before
        assert ended(in_a_child(partial(open_until, path, statement=deaths))) == -signal.SIGKILL
        deaths += 1
    assert deaths > 10, "a migration takes many statements"
    assert_brought_up_to_date(path)


@pytest.mark.usefixtures("next_version")
def test_processes_that_migrate_at_once_do_it_once(path: Path) -> None:
    gate, opener = os.pipe()

    def migrate() -> None:
        os.close(opener)
        os.read(gate, 1)
        with at(path) as ledger:
            ledger.close_account("births", reason="the study has ended")

    children = [in_a_child(migrate) for _ in range(4)]
    os.close(opener)
    assert [ended(child) for child in children] == [0] * 4
    os.close(gate)
    with at(path) as ledger:
        assert [event.kind for event in ledger.history("births")] == ["account-opened", "account-closed"]
    assert_brought_up_to_date(path)


@pytest.mark.usefixtures("next_version")
def test_a_disk_that_fails_leaves_the_first_version_as_it_was(path: Path) -> None:
    resource = pytest.importorskip("resource", reason="file size limits exist on POSIX only")
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, unlimited[1]))
    try:
        with pytest.raises(LedgerError, match=r"check its disk \(space, quota, health\)|its disk is full"):
            at(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert rows(path, "PRAGMA user_version") == [(VERSION,)]
    assert_brought_up_to_date(path)


def test_a_missing_migration_is_not_passed_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "VERSION", NEXT)
    with pytest.raises(LedgerDamaged, match="an unknown version"):
        at(path)
    assert rows(path, "PRAGMA user_version") == [(VERSION,)]


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_never_was_is_damage(path: Path, version: int) -> None:
    rows(path, f"PRAGMA user_version = {version}")
    with pytest.raises(LedgerDamaged, match="an unknown version; restore it from a backup"):
        at(path)
    assert rows(path, "PRAGMA user_version") == [(version,)]


def test_a_newer_version_is_refused_by_name(path: Path) -> None:
    rows(path, "PRAGMA user_version = 99")
    with pytest.raises(LedgerError, match=rf"newer dpflow \(version 99, this one reads {VERSION}\): upgrade"):
        at(path)


@pytest.mark.usefixtures("next_version")
@pytest.mark.parametrize("statement", ["DROP TRIGGER event_kept", "DROP TABLE operation", "DROP TABLE event"])
def test_a_damaged_file_of_the_first_version_is_not_covered_up(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(statement)
    with pytest.raises(LedgerDamaged):
        at(path)
    if statement != "DROP TABLE operation":  # which the made-up version leaves alone
        assert rows(path, "PRAGMA user_version") == [(VERSION,)]
