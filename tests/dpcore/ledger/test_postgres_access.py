"""Who gets to a ledger in PostgreSQL, by which address; nobody is shown a password."""

import os
import traceback
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from psycopg import sql

from dpcore.errors import DpflowError, LedgerError, UsageError
from dpcore.ledger import open_ledger
from tests.dpcore.ledger.postgres import measure, name_of, run_as_owner
from tests.postgres import PostgresServer

PASSWORD = "a/b:c@d?geheim"  # noqa: S105  of a role that lives as long as the test


@pytest.fixture
def role(postgres_server: PostgresServer) -> Iterator[str]:
    """A role with a password, which may connect and nothing else."""
    name = f"clerk_{os.urandom(4).hex()}"
    with postgres_server.admin() as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(name), PASSWORD))
        yield name
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def told_nothing(error: DpflowError, *secrets: str) -> None:
    """Nothing that an error, or one behind it, says of itself holds a secret."""
    said = "".join(traceback.format_exception(error))
    behind: BaseException | None = error
    while behind is not None:
        said += f"{behind!r} {behind.args!r}"
        behind = behind.__cause__ or behind.__context__
    for secret in secrets:
        assert secret not in said


def test_a_wrong_password_is_named_and_not_repeated(
    postgres_server: PostgresServer, postgres_url: str, role: str
) -> None:
    for address in (
        postgres_server.url(name_of(postgres_url), user=role, password="hunter2"),  # noqa: S106  a wrong one
        postgres_server.url(name_of(postgres_url), user="nobody_known", password="hunter2"),  # noqa: S106  a wrong one
        postgres_server.url(name_of(postgres_url), user=role),
    ):
        with pytest.raises(LedgerError, match=r"refuses this user or password; check DPFLOW_LEDGER_URL") as refused:
            open_ledger(address)
        assert refused.value.exit_code == 1
        told_nothing(refused.value, "hunter2")


def test_a_password_is_shown_nowhere(postgres_server: PostgresServer, postgres_url: str, role: str) -> None:
    run_as_owner(
        postgres_url,
        f"GRANT USAGE ON SCHEMA dpflow TO {role}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA dpflow TO {role}",
    )
    with open_ledger(postgres_server.url(name_of(postgres_url), user=role, password=PASSWORD)) as ledger:
        assert ledger.balance("clinic").spent == 10
        store = ledger._store
        assert store.place == f"postgresql://localhost/{name_of(postgres_url)}"
        shown = f"{ledger!r} {store!r} {store.place} {store._engine!r} {store._engine.url}"
        assert "geheim" not in shown
        with pytest.raises(LedgerError, match="denies this to the current role") as refused:
            measure(ledger)
        assert refused.value.exit_code == 1
        told_nothing(refused.value, PASSWORD, "geheim", quote(PASSWORD, safe=""))
    run_as_owner(postgres_url, f"DROP OWNED BY {role}")


def test_a_role_without_rights_is_told_so(postgres_server: PostgresServer, postgres_url: str, role: str) -> None:
    address = postgres_server.url(name_of(postgres_url), user=role, password=PASSWORD)
    with pytest.raises(LedgerError, match="denies this to the current role"):
        open_ledger(address)
    elsewhere = postgres_server.new_database()
    with pytest.raises(LedgerError, match="denies this to the current role"):
        open_ledger(postgres_server.url(name_of(elsewhere), user=role, password=PASSWORD), create=True)


def test_a_role_that_may_not_connect_is_told_so(postgres_server: PostgresServer, postgres_url: str, role: str) -> None:
    address = postgres_server.url(name_of(postgres_url), user=role, password=PASSWORD)
    run_as_owner(postgres_url, f"ALTER ROLE {role} CONNECTION LIMIT 0")
    with pytest.raises(LedgerError, match="too many connections; close some, or raise"):
        open_ledger(address)
    run_as_owner(postgres_url, f"ALTER ROLE {role} NOLOGIN")
    with pytest.raises(LedgerError, match="refuses this user; check DPFLOW_LEDGER_URL"):
        open_ledger(address)
    run_as_owner(
        postgres_url,
        f"ALTER ROLE {role} LOGIN CONNECTION LIMIT -1",
        f"REVOKE CONNECT ON DATABASE {name_of(postgres_url)} FROM public",
    )
    with pytest.raises(LedgerError, match="denies this to the current role"):
        open_ledger(address)


def test_a_database_that_does_not_exist_is_named(postgres_server: PostgresServer) -> None:
    for create in (False, True):
        with pytest.raises(UsageError, match="/missing is in a database that does not exist; create it") as refused:
            open_ledger(postgres_server.url("missing"), create=create)
        assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:geheim@/x?host=/nowhere",
        "postgresql://me:geheim@localhost:1/x",
        "postgres://me:geheim@localhost:1/x",
        "postgresql://me:geheim@host.invalid/x",
        "postgresql://me:geheim@localhost:1/x?connect_timeout=geheim",
        "postgresql://me:geheim@localhost:1/x?geheim=1",
    ],
)
def test_a_server_that_is_not_there_is_named_without_the_password(address: str) -> None:
    with pytest.raises(
        LedgerError, match=r"cannot be reached; check DPFLOW_LEDGER_URL and that the database"
    ) as refused:
        open_ledger(address, create=True)
    assert "geheim" not in str(refused.value)
    assert refused.value.exit_code == 1


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:ge@heim@host/x",
        "postgresql://me:ge@he/heim@host/x",
        "postgresql://m/e:geheim@host/x",
        "postgresql://me:geheim@host:geheim/x",
        "postgresql:geheim",
    ],
)
def test_an_address_that_does_not_read_is_refused_without_repeating_it(address: str) -> None:
    with pytest.raises(UsageError, match=r"write postgresql://USER@HOST/DATABASE, .* %40 for @") as refused:
        open_ledger(address, create=True)
    told_nothing(refused.value, "heim")
