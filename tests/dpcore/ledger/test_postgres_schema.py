"""How a ledger comes into a PostgreSQL database, and how one of an earlier version is brought up to date."""

import psycopg
import pytest

from dpcore.errors import LedgerDamaged, LedgerError, UsageError
from dpcore.ledger import open_ledger
from dpcore.ledger.postgres import schema as postgres_schema
from tests.dpcore.ledger.fixtures import assert_sound, opened
from tests.dpcore.ledger.postgres import in_children, name_of, run_as_owner
from tests.postgres import PostgresServer


def test_nothing_is_made_where_there_is_no_ledger(postgres_server: PostgresServer) -> None:
    url = postgres_server.new_database()
    with pytest.raises(UsageError, match=r"no ledger at postgresql://.*; open an account first: dpflow ledger open"):
        open_ledger(url)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regnamespace('dpflow')").fetchone() == (None,)


def test_making_a_ledger_never_replaces_one(postgres_url: str) -> None:
    with open_ledger(postgres_url, create=True) as ledger:
        assert ledger.balance("clinic").spent == 10


def test_a_ledger_made_by_many_at_once_is_one(postgres_server: PostgresServer) -> None:
    url = postgres_server.new_database()
    # With this default a process would not see what another has made while it waited.
    run_as_owner(url, f"ALTER DATABASE {name_of(url)} SET default_transaction_isolation = 'repeatable read'")

    def make(which: int) -> None:
        with open_ledger(url, create=True) as ledger:
            opened(ledger, f"account-{which}")

    assert in_children(make, number=4) == [0] * 4
    with open_ledger(url) as ledger:
        assert len(ledger.accounts()) == 4
        assert_sound(ledger)


def test_a_database_that_is_read_only_gets_no_ledger(postgres_server: PostgresServer) -> None:
    url = postgres_server.new_database()
    run_as_owner(url, f"ALTER DATABASE {name_of(url)} SET default_transaction_read_only = on")
    with pytest.raises(LedgerError, match="read-only"):
        open_ledger(url, create=True)


def test_a_newer_version_is_refused_by_name(postgres_url: str) -> None:
    run_as_owner(postgres_url, "UPDATE dpflow.version SET number = 99")
    for create in (False, True):
        with pytest.raises(LedgerError, match=r"written by a newer dpflow \(version 99, this one reads 1\): upgrade"):
            open_ledger(postgres_url, create=create)


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_never_was_is_damage(postgres_url: str, version: int) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE dpflow.version SET number = %s", [version])
    with pytest.raises(LedgerDamaged, match="an unknown version; restore it from a backup"):
        open_ledger(postgres_url)


def test_a_database_without_its_version_is_damaged(postgres_url: str) -> None:
    run_as_owner(postgres_url, "DELETE FROM dpflow.version")
    with pytest.raises(LedgerDamaged, match="lost its version number; restore it from a backup"):
        open_ledger(postgres_url)


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that adds a table, which the catalogue of that version would list."""
    monkeypatch.setattr("dpcore.ledger.postgres.store.rules_changed", lambda _: None)
    monkeypatch.setattr(postgres_schema, "VERSION", 2)
    monkeypatch.setitem(postgres_schema.MIGRATIONS, 1, "CREATE TABLE note (words text); INSERT INTO note VALUES ('%');")


def test_an_older_ledger_is_brought_up_to_date_once(postgres_url: str, next_version: None) -> None:
    assert in_children(lambda _: open_ledger(postgres_url).close(), number=3) == [0] * 3
    with open_ledger(postgres_url) as ledger, psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT number FROM dpflow.version").fetchone() == (2,)
        assert connection.execute("SELECT words FROM dpflow.note").fetchall() == [("%",)]
        assert ledger.balance("clinic").spent == 10
        assert_sound(ledger)


def test_a_new_ledger_is_made_in_the_first_version_and_brought_up_to_date(
    postgres_server: PostgresServer, next_version: None
) -> None:
    url = postgres_server.new_database()
    with open_ledger(url, create=True) as ledger:
        opened(ledger)
        assert_sound(ledger)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT words FROM dpflow.note").fetchall() == [("%",)]


def test_a_migration_that_fails_changes_nothing(
    postgres_url: str, next_version: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(postgres_schema.MIGRATIONS, 1, "CREATE TABLE note (words text); SELECT 1 FROM missing;")
    with pytest.raises(LedgerDamaged, match="is not a readable ledger"):
        open_ledger(postgres_url)
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT number FROM dpflow.version").fetchone() == (1,)
        assert connection.execute("SELECT to_regclass('dpflow.note')").fetchone() == (None,)


def test_a_missing_migration_is_not_passed_over(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_schema, "VERSION", 2)
    with pytest.raises(LedgerDamaged, match="an unknown version"):
        open_ledger(postgres_url)
