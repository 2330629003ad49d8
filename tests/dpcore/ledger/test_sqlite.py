"""The ledger in an SQLite file: the contract, and what can happen to a file."""

import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from dpcore.errors import LedgerDamaged, LedgerError, UsageError
from dpcore.ledger import EventKind, Lease, Ledger, open_ledger
from dpcore.ledger.rows import Share
from dpcore.ledger.transaction import LedgerTransaction
from tests.contracts.ledger import LedgerContract
from tests.dpcore.ledger.fixtures import CAP, MECHANISM, assert_sound, opened

LEASE = Lease("run", 1)
"""The lease that the worker who wrote the file below had taken."""


class TestSqliteLedger(LedgerContract):
    @pytest.fixture
    def new_url(self, tmp_path: Path) -> Callable[[], str]:
        numbers = count()
        return lambda: f"sqlite:///{tmp_path}/ledger-{next(numbers)}.sqlite"

    def dump(self, url: str) -> list[str]:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            return list(connection.iterdump())


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger file with a run that has done something, closed."""
    path = tmp_path_factory.mktemp("written") / "ledger.sqlite"
    with made(path) as ledger:
        opened(ledger)
        ledger.allow("clinic", kind="analyst", name="ann", cap=500, epsilon=0.5, reason="approved")
        ledger.reserve("run", account="clinic", amount=300, claim="claim", analyst="ann")
        lease = ledger.lease("run")
        assert lease == LEASE
        ledger.share("run", analyst="ann", cap=5, token="ab" * 32)
        ledger.charge(lease, step="question", amount=3, mechanism=MECHANISM, analyst="ann")
        for number in range(20):
            operation = ledger.charge(lease, step=f"step-{number}", amount=1, mechanism=MECHANISM)
            ledger.commit(operation, bytes(3000))
    return path


@pytest.fixture
def path(written: Path, tmp_path: Path) -> Path:
    """A copy of that file to do with as one likes."""
    return Path(shutil.copy(written, tmp_path))


def at(path: Path) -> Ledger:
    return open_ledger(f"sqlite:///{path}")


def made(path: Path) -> Ledger:
    return open_ledger(f"sqlite:///{path}", create=True)


def altered(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            connection.execute(statement)


def read_all(path: Path) -> list[object]:
    with at(path) as ledger:
        assert_sound(ledger)
        runs = [run for account in ledger.accounts() for run in ledger.runs(account.name)]
        return [ledger.accounts(), runs, list(ledger.history(None)), *(ledger.transcript(run.id) for run in runs)]


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that another user could enter, which a test's own temporary folder is not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o700)
    shutil.rmtree(folder)


@pytest.fixture
def as_nobody() -> Iterator[Callable[[], None]]:
    """A function that drops the rights of a superuser, for whom no file is read-only; they come back after the test."""
    superuser = os.geteuid() == 0
    yield lambda: os.seteuid(65534) if superuser else None
    if superuser:
        os.seteuid(0)


def test_the_folder_and_the_file_are_for_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / ".dpflow" / "ledger.sqlite"
    with made(path) as ledger:
        opened(ledger)
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir() if file.is_file()}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert modes == dict.fromkeys(["ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"], 0o600)
    assert [file for file in path.parent.iterdir() if file.is_file()] == [path]
    heads = path.parent / "private" / "heads"
    assert {folder.stat().st_mode & 0o777 for folder in (heads.parent, heads)} == {0o700}
    assert {file.stat().st_mode & 0o777 for file in heads.iterdir()} == {0o600}


def test_nothing_is_made_where_there_is_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no ledger at .*; open an account first: dpflow ledger open"):
        at(tmp_path / ".dpflow" / "ledger.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_making_a_ledger_never_replaces_one(path: Path) -> None:
    with made(path) as ledger:
        assert ledger.balance("clinic").spent == 23


def test_a_ledger_made_by_many_at_once_is_one(tmp_path: Path) -> None:
    path = tmp_path / ".dpflow" / "ledger.sqlite"
    together = threading.Barrier(6)

    def make(number: int) -> None:
        together.wait()
        with made(path) as ledger:
            opened(ledger, f"account-{number}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(make, range(6)))
    with at(path) as ledger:
        assert len(ledger.accounts()) == 6
        assert_sound(ledger)
    assert [file for file in path.parent.iterdir() if file.is_file()] == [path]


def test_every_transaction_is_synced_and_rules_are_on(path: Path) -> None:
    with at(path) as ledger:
        settings = {
            name: ledger._store._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET body = '{}' WHERE seq = 1",
        "DELETE FROM event WHERE seq = (SELECT max(seq) FROM event)",
        "INSERT OR REPLACE INTO event SELECT * FROM event WHERE seq = 1",
        "INSERT INTO event SELECT seq + 100, at, kind, account, run, body, previous, hash FROM event WHERE seq = 1",
        "UPDATE operation SET output = x'00' WHERE step = 'step-1'",
        "DELETE FROM operation WHERE step = 'step-1'",
        "INSERT OR REPLACE INTO operation SELECT * FROM operation WHERE step = 'step-1'",
        "UPDATE block SET used = cap + 1",
        "UPDATE block SET used = -1",
        "UPDATE block SET used = 'many'",
        "UPDATE block SET cap = cap + 1",
        "UPDATE block SET state = 'open'",
        "DELETE FROM block",
        "INSERT OR REPLACE INTO block SELECT account, name, state, cap, 0 FROM block",
        "INSERT INTO block VALUES ('clinic', 'more', 'sealed', 2000, 0)",
        "UPDATE account SET cap = cap - 1",
        "UPDATE account SET currency = 'shells'",
        "DELETE FROM account",
        "UPDATE allowance SET used = cap + 1",
        "DELETE FROM allowance",
        "UPDATE share SET spent = cap + 1",
        "UPDATE share SET spent = spent - 1",
        "UPDATE share SET cap = spent - 1",
        "DELETE FROM share",
        "INSERT OR REPLACE INTO share SELECT run, analyst, cap, token, 0, last FROM share",
        "DELETE FROM run",
        "UPDATE run SET spent = spent - 1",
        "UPDATE run SET fence = fence - 1",
        "UPDATE run SET spent = reserved + 1",
        "UPDATE run SET state = 'refunded'",
        "UPDATE run SET state = 'lost'",
        "INSERT INTO run SELECT NULL, 'x', 'nobody', 1, 0, 'open', 'c', NULL, NULL, NULL, 'x', NULL, 0, NULL, 0, 1, 1",
    ],
)
def test_the_database_itself_refuses_to_break_the_rules(path: Path, statement: str) -> None:
    with at(path) as ledger, pytest.raises(sqlite3.IntegrityError):
        ledger._store._connection.execute(statement)
    read_all(path)


def scanned_by_a_charge(path: Path, *, analyst: str | None) -> set[str]:
    """Return the tables that a charge reads from end to end, by the plan of each of its statements."""
    with at(path) as ledger:
        connection, sent = ledger._store._connection, []
        connection.set_trace_callback(sent.append)
        ledger.charge(LEASE, step="new", amount=1, mechanism=MECHANISM, analyst=analyst)
        connection.set_trace_callback(None)
        reads = [each for each in sent if each.startswith(("SELECT", "UPDATE", "INSERT"))]
        plans = [row[3] for each in reads for row in connection.execute(f"EXPLAIN QUERY PLAN {each}")]
    assert any("share" in plan for plan in plans) == (analyst is not None)
    return {plan for plan in plans if plan.startswith("SCAN") and "CONSTANT" not in plan}


@pytest.mark.parametrize("analyst", [None, "ann"])
def test_a_charge_reads_no_table_from_end_to_end(path: Path, analyst: str | None) -> None:
    assert scanned_by_a_charge(path, analyst=analyst) == set()


def test_a_share_that_is_added_up_from_the_chain_would_show_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = LedgerTransaction.share

    def added_up(rows: LedgerTransaction, run_id: str, analyst: str) -> Share | None:
        rows.events_of_kind(EventKind.SHARED)  # as it was before shares had a table
        return found(rows, run_id, analyst)

    monkeypatch.setattr(LedgerTransaction, "share", added_up)
    assert scanned_by_a_charge(path, analyst="ann") == {"SCAN event"}


@pytest.mark.parametrize("version", [9, 0, -1])
def test_another_version_is_refused_by_name(path: Path, version: int) -> None:
    altered(path, f"PRAGMA user_version = {version}")
    with pytest.raises(
        LedgerError, match=rf"has version {version}, and this dpflow reads 1: use the dpflow that wrote it"
    ):
        at(path)


@pytest.mark.parametrize("content", [b"", b"SQLite format 3", b"name,age\nAnn,7\n", bytes(8192)], ids=repr)
def test_another_file_is_not_taken_for_a_ledger(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(content)
    for create in (False, True):
        with pytest.raises(LedgerDamaged, match=r"ledger\.sqlite"):
            open_ledger(f"sqlite:///{path}", create=create)
    assert path.read_bytes() == content


def test_another_database_is_not_taken_for_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    altered(path, "CREATE TABLE account (name TEXT)")
    with pytest.raises(LedgerDamaged, match="not a dpflow ledger"):
        made(path)


@pytest.mark.parametrize("statement", ["DROP TABLE operation", "DROP TRIGGER event_kept", "DROP INDEX run_open"])
def test_a_missing_part_is_noticed_on_opening(path: Path, statement: str) -> None:
    altered(path, statement)
    with pytest.raises(LedgerDamaged, match="lacks some of its tables or rules"):
        at(path)


@pytest.mark.parametrize("pages", [1, 2, 5, 10, 20])
def test_a_truncated_file_is_damaged(path: Path, pages: int) -> None:
    with path.open("r+b") as file:
        file.truncate(pages * 4096)
    with pytest.raises(LedgerDamaged):
        read_all(path)


def test_a_garbled_page_is_never_read_as_something_else(path: Path) -> None:
    whole = path.read_bytes()
    content = read_all(path)
    pages = len(whole) // 4096
    damaged = 0
    for page in range(pages):
        path.write_bytes(whole[: page * 4096] + b"\xa5" * 4096 + whole[(page + 1) * 4096 :])
        try:
            # Nobody may have looked at this page, as one of an index; then all is as it was.
            assert read_all(path) == content
        except LedgerDamaged:
            damaged += 1
    assert damaged > pages / 2


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE account SET currency = 'shells'",
        "UPDATE account SET name = CAST(x'ff' AS TEXT)",
        "UPDATE operation SET mechanism = '{' WHERE step = 'step-1'",
        "UPDATE operation SET output = x'00' WHERE step = 'step-1'",
        "UPDATE event SET kind = 'forgotten' WHERE seq = 2",
        "UPDATE event SET body = '{' WHERE kind = 'reserved'",
        "UPDATE event SET at = 'yesterday' WHERE kind = 'committed'",
    ],
)
def test_a_row_that_does_not_read_is_damage(path: Path, statement: str) -> None:
    rules = "DROP TRIGGER event_kept_as_written", "DROP TRIGGER operation_kept_as_committed"
    with closing(sqlite3.connect(path)) as connection:
        saved = [
            connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (rule.split()[-1],)).fetchone()[0]
            for rule in rules
        ]
    altered(path, *rules, statement, *saved)
    with pytest.raises(LedgerDamaged):
        read_all(path)


def test_an_output_that_changed_is_never_returned(path: Path) -> None:
    altered(path, "DROP TRIGGER operation_kept_as_committed", "UPDATE operation SET output = x'00'")
    altered(path, "CREATE TRIGGER operation_kept_as_committed BEFORE UPDATE ON operation BEGIN SELECT 1; END")
    with at(path) as ledger:
        with pytest.raises(LedgerDamaged, match="step 'step-7' of run 'run' is not what was committed"):
            ledger.operation("run", "step-7")
        with pytest.raises(LedgerDamaged, match="not what was committed"):
            ledger.transcript("run")


def test_balances_that_contradict_each_other_stop_the_ledger(path: Path) -> None:
    altered(path, "UPDATE block SET used = 0")
    with at(path) as ledger, pytest.raises(LedgerDamaged, match="contradicts itself; nothing was changed"):
        ledger.settle("run", release=None, lease=LEASE)


def test_a_journal_without_its_ledger_is_not_covered_up(path: Path) -> None:
    path.rename(path.with_name("ledger.sqlite-wal"))
    with pytest.raises(LedgerDamaged, match="journal is still there"):
        made(path)
    assert not path.exists()


def test_a_ledger_without_its_journal_mode_is_damaged(path: Path) -> None:
    altered(path, "PRAGMA journal_mode = DELETE")
    with pytest.raises(LedgerDamaged, match="journal mode"):
        at(path)


def test_a_folder_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    for create in (False, True):
        with pytest.raises(LedgerError, match="is a folder; name a file in it"):
            open_ledger(f"sqlite:///{tmp_path}", create=create)


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / ".dpflow").write_text("")
    with pytest.raises(LedgerError, match="cannot be used"):
        made(tmp_path / ".dpflow" / "ledger.sqlite")


def test_a_locked_ledger_says_what_to_do(path: Path) -> None:
    with at(path) as ledger, at(path) as other:
        ledger._store._connection.execute("PRAGMA busy_timeout = 20")
        other._store._connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="stayed locked by another process; wait until it ends, then try again"):
            ledger.settle("run", release=None, lease=LEASE)
        assert ledger.run("run").state == "open"
        other._store._connection.execute("ROLLBACK")
        assert ledger.settle("run", release=None, lease=LEASE).state == "settled"


def test_a_full_disk_changes_nothing_and_is_survived(path: Path) -> None:
    with at(path) as ledger:
        operation = ledger.charge(LEASE, step="large", amount=1, mechanism=MECHANISM)
        head = ledger.head()
        (pages,) = ledger._store._connection.execute("PRAGMA page_count").fetchone()
        ledger._store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(LedgerError, match="its disk is full; make room"):
            ledger.commit(operation, bytes(10**6))
        assert ledger.head() == head
        assert_sound(ledger)
        ledger._store._connection.execute(f"PRAGMA max_page_count = {pages + 1000}")
        ledger.commit(operation, bytes(10**6))
        assert_sound(ledger)


def test_a_disk_that_fails_changes_nothing_and_is_survived(path: Path) -> None:
    resource = pytest.importorskip("resource", reason="file size limits exist on POSIX only")
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    with at(path) as ledger:
        operation = ledger.charge(LEASE, step="large", amount=1, mechanism=MECHANISM)
        head = ledger.head()
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, unlimited[1]))
        try:
            with pytest.raises(LedgerError, match=r"check its disk \(space, quota, health\)"):
                ledger.commit(operation, bytes(10**6))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        assert ledger.head() == head
        ledger.commit(operation, bytes(10**6))
        assert_sound(ledger)


@pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o444, 0o777), (0o444, 0o555), (0o666, 0o555), (0o000, 0o755)])
def test_a_ledger_that_may_not_be_written_says_so(
    path: Path, shared_folder: Path, as_nobody: Callable[[], None], file_mode: int, folder_mode: int
) -> None:
    copy = Path(shutil.copy(path, shared_folder / "ledger.sqlite"))
    copy.chmod(file_mode)
    shared_folder.chmod(folder_mode)
    as_nobody()
    with pytest.raises(LedgerError, match=r"allow writing|allow this user to write"), at(copy) as ledger:
        ledger.settle("run", release=None, lease=LEASE)


def test_a_folder_that_may_not_be_written_gets_no_ledger(shared_folder: Path, as_nobody: Callable[[], None]) -> None:
    shared_folder.chmod(0o555)
    as_nobody()
    with pytest.raises(LedgerError, match="Permission denied"):
        made(shared_folder / "new" / "ledger.sqlite")


def test_a_forked_process_is_told_to_open_its_own(path: Path) -> None:
    with at(path) as ledger:
        child = os.fork()
        if child == 0:
            try:
                ledger.close()
                ledger.head()
            except LedgerError as error:
                os._exit(7 if "opened by the parent of this process" in str(error) else 1)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert ledger.balance("clinic").remaining == CAP - 300


def test_the_default_ledger_lies_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPFLOW_LEDGER_URL", raising=False)
    with open_ledger(create=True):
        assert (tmp_path / ".dpflow" / "ledger.sqlite").exists()


def test_the_environment_names_the_ledger(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPFLOW_LEDGER_URL", f"sqlite:///{path}")
    with open_ledger() as ledger:
        assert ledger.balance("clinic").spent == 23


def test_a_path_may_hold_any_sign(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a folder?mode=ro#1%20&/ledger é.sqlite"
    with open_ledger(url, create=True) as ledger:
        opened(ledger)
    with open_ledger(url) as ledger:
        assert ledger.account("clinic").cap == CAP


@pytest.mark.parametrize("url", ["mysql://me:secret@host/db", "sqlite://secret", "secret.sqlite", "/tmp/secret"])  # noqa: S108  never opened
def test_another_kind_of_address_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(UsageError, match="a ledger is at sqlite:///PATH or postgresql://USER@HOST/DATABASE") as refused:
        open_ledger(url, create=True)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["sqlite:///", "sqlite:///:memory:", "sqlite:///a\0b"])
def test_a_ledger_is_always_a_file(url: str) -> None:
    with pytest.raises(UsageError, match="needs a file"):
        open_ledger(url, create=True)
