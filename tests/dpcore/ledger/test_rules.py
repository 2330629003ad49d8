"""The rules of the tables are part of what is verified: whoever takes one away, or weakens it, is found out."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dpcore.errors import LedgerDamaged
from dpcore.ledger import open_ledger
from dpcore.ledger.verification import verify
from tests.dpcore.ledger.fixtures import opened


def check(url: str) -> None:
    with open_ledger(url) as ledger:
        verify(ledger, price=lambda mechanism, currency: 1, heads={})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            "DROP TRIGGER block_kept; CREATE TRIGGER block_kept BEFORE DELETE ON block BEGIN SELECT 1; END",
            "trigger block_kept",
        ),
        ("CREATE TRIGGER refund AFTER UPDATE ON block BEGIN SELECT 1; END", "trigger refund"),
        ("CREATE TABLE another (one)", "table another"),
        ("CREATE VIEW another AS SELECT * FROM event", "view another"),
        ("CREATE INDEX more ON event (at)", "index more"),
        ("DROP INDEX run_open; CREATE INDEX run_open ON run (account) WHERE state = 'x'", "index run_open"),
        (
            "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, 'used <= cap', 'used <= 9e18') WHERE name = 'block'",
            "table block",
        ),
        (
            "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, 'across_used <=', '0 <=') WHERE name = 'account'",
            "table account",
        ),
        (
            "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, ' STRICT', '') WHERE name = 'event'",
            "table event",
        ),
        (
            (
                "CREATE TRIGGER refund AFTER UPDATE ON block BEGIN SELECT 1; END; "
                "PRAGMA writable_schema = ON; UPDATE sqlite_master SET name = 'sqlite_stat9', sql = replace(sql, 'refund', 'sqlite_stat9') "
                "WHERE name = 'refund'"
            ),
            "trigger sqlite_stat9",
        ),
    ],
)
def test_a_changed_rule_of_a_file_is_found(tmp_path: Path, change: str, named: str) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    with open_ledger(url, create=True) as ledger:
        opened(ledger)
    check(url)
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as connection:
        connection.executescript(change)
    with pytest.raises(LedgerDamaged, match=f"not those it was made with: {named};"):
        check(url)


def test_what_the_planner_notes_of_a_file_changes_no_rule(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    with open_ledger(url, create=True) as ledger:
        opened(ledger)
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as connection:
        connection.execute("ANALYZE")
        assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name LIKE 'sqlite_stat%'").fetchone() > (0,)
    check(url)


def test_a_temporary_trigger_of_the_own_session_is_found(tmp_path: Path) -> None:
    with open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite", create=True) as ledger:
        opened(ledger)
        ledger._store.execute("CREATE TEMP TRIGGER mine AFTER UPDATE ON main.block BEGIN SELECT 1; END")
        with pytest.raises(LedgerDamaged, match="made with: temporary trigger mine;"):
            verify(ledger, price=lambda mechanism, currency: 1, heads={})
