"""A file of the first version becomes one of today's: all or nothing, once, and without touching what was recorded."""

import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from dpcore.errors import BudgetRefused, LedgerDamaged, LedgerError, UsageError
from dpcore.ledger import Balance, Ledger, open_ledger
from dpcore.ledger.sqlite.schema import VERSION
from tests.dpcore.ledger.fixtures import MECHANISM, assert_sound
from tests.dpcore.ledger.v1 import write_first_version


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written") / "ledger.sqlite"
    write_first_version(path)
    return path


@pytest.fixture
def path(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(written, tmp_path))


def at(path: Path) -> Ledger:
    return open_ledger(f"sqlite:///{path}")


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def test_what_was_recorded_stays_event_for_event(path: Path) -> None:
    events = rows(path, "SELECT * FROM event ORDER BY seq")
    with at(path) as ledger:
        assert ledger.head() == events[-1][-1]
        assert_sound(ledger)
    assert rows(path, "SELECT * FROM event ORDER BY seq") == events
    assert rows(path, "PRAGMA user_version") == [(VERSION,)]
    assert rows(path, "PRAGMA foreign_key_check") == []
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


def test_a_migrated_file_has_the_tables_and_rules_of_a_new_one(path: Path, tmp_path: Path) -> None:
    at(path).close()
    open_ledger(f"sqlite:///{tmp_path}/new.sqlite", create=True).close()
    # A table that took another's name is in quotes: that is all that tells where it comes from.
    schema = "SELECT type, name, tbl_name, replace(sql, '\"', '') FROM sqlite_master ORDER BY name"
    assert rows(path, schema) == rows(tmp_path / "new.sqlite", schema)


def test_everything_reads_back(path: Path) -> None:
    with at(path) as ledger:
        clinic, births = ledger.account("clinic"), ledger.account("births")
        assert (clinic.cap, clinic.epsilon, clinic.currency, clinic.state) == (1_000, 1.0, "pure", "open")
        assert (births.cap, births.delta, births.currency) == (500, 1e-9, "zcdp")
        assert (clinic.description, clinic.blocks_by, clinic.weight) == ("", None, 1)
        assert ledger.balance("clinic") == Balance(cap=1_000, spent=190, reserved=110)
        assert ledger.balance("births") == Balance(cap=500, spent=0, reserved=100)
        assert [(run.id, run.state, run.spent) for run in ledger.runs("clinic")] == [
            ("settled", "settled", 100),
            ("resumed", "open", 90),
        ]
        assert [(run.id, run.state) for run in ledger.runs("births")] == [("unused", "released"), ("waiting", "open")]
        settled = ledger.run("settled")
        assert (settled.data_version, settled.release) == ("v1", "clinic/release-1")
        assert (settled.fence, settled.holder, settled.analyst, settled.purpose) == (0, None, None, None)
        assert [(done.step, done.attempt, done.output) for done in ledger.transcript("settled")] == [
            ("measure", 2, b"noisy")
        ]
        assert [done.output for done in ledger.transcript("resumed")] == [bytes(2 << 20)]
        assert ledger.blocks_of("settled") == ("all",)


def test_a_run_that_was_left_open_goes_on(path: Path) -> None:
    with at(path) as ledger:
        assert ledger.reserve("resumed", account="clinic", amount=200, claim="claim") == ledger.run("resumed")
        lease = ledger.lease("resumed")
        ledger.record_data_version(lease, "v2")
        with pytest.raises(UsageError, match="the source data changed"):
            ledger.record_data_version(lease, "v3")
        operation = ledger.start(lease, step="measure", amount=60, mechanism=MECHANISM)
        assert operation.attempt == 2
        ledger.commit(operation, b"noisy")
        with pytest.raises(BudgetRefused, match="what is left of run"):
            ledger.start(lease, step="more", amount=51, mechanism=MECHANISM)
        ledger.settle("resumed", release="clinic/release-2", lease=lease)
        assert ledger.balance("clinic") == Balance(cap=1_000, spent=250, reserved=0)
        assert [done.step for done in ledger.transcript("resumed")] == ["select", "measure"]
        assert_sound(ledger)


def test_a_run_that_nobody_takes_up_is_the_stewards_to_end(path: Path) -> None:
    with at(path) as ledger:
        assert ledger.settle("resumed", release=None, lease=None).spent == 90
        assert ledger.release_run("waiting", lease=None).state == "released"
        assert ledger.balance("births") == Balance(cap=500, spent=0, reserved=0)
        assert_sound(ledger)


def test_a_run_id_of_the_first_version_never_stands_for_something_else(path: Path) -> None:
    with at(path) as ledger:
        with pytest.raises(UsageError, match="something else"):
            ledger.reserve("waiting", account="births", amount=101, claim="claim")
        with pytest.raises(UsageError, match="something else"):
            ledger.reserve("waiting", account="births", amount=100, claim="claim", analyst="ann")


def test_a_released_run_of_the_first_version_begins_anew(path: Path) -> None:
    with at(path) as ledger:
        ledger.settle("waiting", release=None, lease=None)
        assert ledger.reserve("unused", account="births", amount=500, claim="claim").state == "open"
        assert_sound(ledger)


def test_what_came_later_works_on_an_old_account(path: Path) -> None:
    with at(path) as ledger:
        ledger.raise_cap("births", cap=600, epsilon=0.6, reason="approved")
        ledger.allow("births", kind="analyst", name="ann", cap=100, epsilon=0.1, reason="approved")
        ledger.reserve("anns", account="births", amount=100, claim="claim", analyst="ann")
        ledger.close_account("clinic", reason="the study has ended")
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


def test_whoever_dies_while_migrating_leaves_the_first_version_as_it_was(path: Path) -> None:
    everything = (
        "SELECT name || sql FROM sqlite_master WHERE sql IS NOT NULL UNION ALL SELECT hash FROM event"
        " UNION ALL SELECT name || spent || ' ' || reserved FROM account"
        " UNION ALL SELECT id || spent || state FROM run UNION ALL SELECT run || step || attempt || state FROM operation"
    )
    before = rows(path, everything)
    deaths = 0
    while rows(path, "PRAGMA user_version") == [(1,)]:
        assert rows(path, everything) == before
        assert ended(in_a_child(partial(open_until, path, statement=deaths))) == -signal.SIGKILL
        deaths += 1
    assert deaths > 40, "a migration takes many statements"
    with at(path) as ledger:
        assert ledger.balance("clinic") == Balance(cap=1_000, spent=190, reserved=110)
        assert_sound(ledger)


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
        assert [event.kind for event in ledger.history("births")][-2:] == ["reserved", "account-closed"]
        assert_sound(ledger)


def test_a_disk_that_fails_leaves_the_first_version_as_it_was(path: Path) -> None:
    resource = pytest.importorskip("resource", reason="file size limits exist on POSIX only")
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, unlimited[1]))
    try:
        with pytest.raises(LedgerError, match=r"check its disk \(space, quota, health\)|its disk is full"):
            at(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert rows(path, "PRAGMA user_version") == [(1,)]
    with at(path) as ledger:
        assert_sound(ledger)


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_never_was_is_damage(path: Path, version: int) -> None:
    rows(path, f"PRAGMA user_version = {version}")
    with pytest.raises(LedgerDamaged, match="no version that ever was; restore it from a backup"):
        at(path)
    assert rows(path, "PRAGMA user_version") == [(version,)]


def test_a_newer_version_is_refused_by_name(path: Path) -> None:
    rows(path, "PRAGMA user_version = 99")
    with pytest.raises(LedgerError, match=rf"newer dpflow \(version 99, this one reads {VERSION}\): upgrade"):
        at(path)


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TRIGGER event_kept",
        "DROP TABLE operation",
        "DELETE FROM run WHERE id = 'waiting'",
        "INSERT INTO run VALUES (NULL, 'invented', 'clinic', 1, 0, 'open', 'claim', NULL, 'now', NULL)",
    ],
)
def test_a_damaged_file_of_the_first_version_is_not_covered_up(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)
    with pytest.raises(LedgerDamaged), at(path) as ledger:
        assert_sound(ledger)
