"""How a ledger comes into a PostgreSQL database."""

import psycopg
import pytest

from dpcore.errors import LedgerDamaged, LedgerError, UsageError
from dpcore.ledger import open_ledger
from dpcore.ledger.postgres import schema
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


@pytest.mark.parametrize("version", [99, 0])
def test_another_version_is_refused_by_name(postgres_url: str, version: int) -> None:
    run_as_owner(postgres_url, f"UPDATE dpflow.version SET number = {version}")  # noqa: S608  a number of ours
    for create in (False, True):
        with pytest.raises(
            LedgerError, match=rf"has version {version}, and this dpflow reads 1: use the dpflow that wrote"
        ):
            open_ledger(postgres_url, create=create)


def test_a_database_without_its_version_is_damaged(postgres_url: str) -> None:
    run_as_owner(postgres_url, "DELETE FROM dpflow.version")
    with pytest.raises(LedgerDamaged, match="lost its version number; restore it from a backup"):
        open_ledger(postgres_url)


def test_a_creation_that_fails_leaves_nothing_behind(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_server.new_database()
    monkeypatch.setattr(schema, "GRANTS", "SELECT 1 FROM missing")
    with pytest.raises(LedgerDamaged, match="is not a readable ledger"):
        open_ledger(url, create=True)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regnamespace('dpflow')").fetchone() == (None,)
