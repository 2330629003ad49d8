import uuid
from pathlib import Path

import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from dpcore.steward.inventory import ledger_keeping, spec_keepings
from dpcore.steward.registry import register
from tests.conftest import Workspace
from tests.postgres import PostgresServer

SECRET = "Zq7_secret"  # noqa: S105  to be looked for
NOBODY = "127.0.0.1:9"  # the discard port, where no database is


@pytest.fixture
def ledger_in_postgres(
    workspace: Workspace, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> PostgresServer:
    monkeypatch.setenv("DPFLOW_LEDGER_URL", postgres_server.new_database())
    workspace.open_account()
    return postgres_server


def reader_of(server: PostgresServer, url: str) -> str:
    """Make a role that may read a ledger, and return the URL with which it does."""
    name, database = f"reader_{uuid.uuid4().hex}", str(conninfo_to_dict(url)["dbname"])
    role = sql.Identifier(name)
    with server.admin(database) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, SECRET))
        connection.execute(sql.SQL("GRANT USAGE ON SCHEMA dpflow TO {}").format(role))
        connection.execute(sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA dpflow TO {}").format(role))
    return server.url(database, user=name, password=SECRET)


def test_who_made_the_tables_owns_them_and_who_reads_them_does_not(
    ledger_in_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ledger_keeping()
    assert (made.accounts, made.owns_tables, made.has_password, made.file) == (("visits",), True, False, None)
    monkeypatch.setenv("DPFLOW_LEDGER_URL", reader_of(ledger_in_postgres, made.address or ""))
    read = ledger_keeping()
    assert (read.accounts, read.owns_tables, read.has_password) == (("visits",), False, True)
    assert SECRET not in repr(read)


@pytest.mark.parametrize(
    ("url", "has_password", "address"),
    [
        (f"postgresql://maria:{SECRET}@{NOBODY}/l", True, f"postgresql://maria@{NOBODY}/l"),
        (f"postgresql://{NOBODY}/l?password={SECRET}&user=maria", True, f"postgresql://{NOBODY}/l?user=maria"),
        (f"postgresql://maria:x@{SECRET}@{NOBODY}/l", True, None),
        (f"postgresql://maria:x/{SECRET}@{NOBODY}/l", True, f"postgresql://maria@{NOBODY}/l"),
        (f"postgresql://maria@{NOBODY}/l", False, f"postgresql://maria@{NOBODY}/l"),
        (f"postgresql://maria:{SECRET}", False, None),
    ],
)
def test_a_password_in_the_address_is_noticed_and_never_repeated(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, url: str, has_password: bool, address: str | None
) -> None:
    monkeypatch.setenv("DPFLOW_LEDGER_URL", url)
    found = ledger_keeping()
    assert found.trouble
    assert not found.owns_tables
    assert (found.has_password, found.address) == (has_password, address)
    assert SECRET not in repr(found)


def test_a_ledger_that_is_not_there_is_not_made(workspace: Workspace) -> None:
    (workspace.folder / ".dpflow").rmdir()
    found = ledger_keeping()
    assert (found.file, found.accounts, found.has_password) == (workspace.folder / ".dpflow/ledger.sqlite", (), False)
    assert found.trouble
    assert not Path(".dpflow").exists()


def test_a_spec_is_held_against_what_was_registered(workspace: Workspace) -> None:
    register(workspace.spec)
    (kept,) = spec_keepings()
    assert (kept.name, kept.changed, kept.sources) == ("spec", False, (workspace.folder.resolve() / "visits.csv",))
    assert (kept.releases, kept.declared_source) == (
        workspace.folder.resolve() / "releases",
        workspace.folder.resolve() / "visits.csv",
    )
    workspace.write_spec(("rounds: 4", "rounds: 5"))
    assert [spec.changed for spec in spec_keepings()] == [True]
    workspace.spec.unlink()
    (gone,) = spec_keepings()
    assert (gone.changed, gone.sources, gone.releases, gone.declared_source) == (True, (), None, None)


def test_an_entry_of_the_registry_that_does_not_read_is_among_the_changed(workspace: Workspace) -> None:
    register(workspace.spec)
    Path(".dpflow/registry/spec.json").write_text("{", encoding="utf-8")
    assert [(spec.name, spec.entry, spec.changed) for spec in spec_keepings()] == [("spec", None, True)]


@pytest.mark.parametrize(
    "source", ["{path: 's3://bucket/visits/*.csv'}", "{sql: select * from visits, url_env: CLINIC_DB}"]
)
def test_of_a_table_elsewhere_no_file_is_looked_for(workspace: Workspace, source: str) -> None:
    workspace.write_spec(("{path: visits.csv}", source))
    register(workspace.spec)
    (kept,) = spec_keepings()
    assert (kept.changed, kept.sources, kept.declared_source) == (False, (), None)
