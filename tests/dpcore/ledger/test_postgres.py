"""The ledger in PostgreSQL: the contract, and what can happen to a database that others look after."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle
from urllib.parse import quote

import psycopg
import pytest

from dpcore.errors import LedgerDamaged, LedgerError
from dpcore.ledger import Balance, Ledger, open_ledger
from tests.contracts.ledger import LedgerContract
from tests.dpcore.ledger.fixtures import CAP, MECHANISM, assert_sound
from tests.dpcore.ledger.postgres import LEASE, in_children, interrupted, measure, name_of, past_the_rules, run_as_owner
from tests.postgres import PostgresServer

TABLES = ("account", "block", "allowance", "event", "run", "share", "operation")
EMPTY = [f"DELETE FROM {table}" for table in TABLES]  # noqa: S608  our own names
EACH = (f"SELECT '{table}', CAST({table} AS text) FROM {table}" for table in TABLES)  # noqa: S608  likewise
DUMP = f"{' UNION ALL '.join(EACH)} ORDER BY 1, 2"


@pytest.fixture(scope="module")
def databases(postgres_server: PostgresServer, postgres_template: str) -> Iterator[dict[str, psycopg.Connection]]:
    """A few databases for one test after the other, each with a connection that no rule binds."""
    urls = [postgres_server.new_database(template=postgres_template) for _ in range(3)]
    options = "-c session_replication_role=replica -c search_path=dpflow"
    with ExitStack() as stack:
        yield {url: stack.enter_context(psycopg.connect(url, autocommit=True, options=options)) for url in urls}


class TestPostgresLedger(LedgerContract):
    databases: dict[str, psycopg.Connection]

    @pytest.fixture
    def new_url(self, databases: dict[str, psycopg.Connection]) -> Callable[[], str]:
        """Empty a database that was used before: copying a new one takes several times as long."""
        self.databases = databases
        urls = cycle(databases)

        def new() -> str:
            url = next(urls)
            databases[url].execute("; ".join(EMPTY))
            return url

        return new

    def dump(self, url: str) -> list[str]:
        return [str(row) for row in self.databases[url].execute(DUMP)]


def setting(ledger: Ledger, name: str) -> str:
    ((value,),) = ledger._store.execute(f"SHOW {name}")
    return str(value)


def backend_of(ledger: Ledger) -> int:
    ((number,),) = ledger._store.execute("SELECT pg_backend_pid()")
    return int(number)


def test_a_transaction_is_durable_whatever_the_database_has_for_a_default(postgres_url: str) -> None:
    run_as_owner(postgres_url, f"ALTER DATABASE {name_of(postgres_url)} SET synchronous_commit = off")
    asking = f"{postgres_url}&options={quote('-c synchronous_commit=off -c search_path=public -c lock_timeout=300ms')}"
    for address in (postgres_url, asking):
        with open_ledger(address) as ledger:
            assert setting(ledger, "synchronous_commit") == "on"
            assert setting(ledger, "search_path") == "dpflow"


def test_nobody_waits_forever_unless_the_address_says_so(postgres_url: str) -> None:
    with open_ledger(postgres_url) as ledger:
        assert setting(ledger, "lock_timeout") == "30s"
        assert setting(ledger, "idle_in_transaction_session_timeout") == "1min", "for whoever freezes with the lock"
        assert setting(ledger, "application_name") == "dpflow"
    chosen = quote("-c lock_timeout=300ms -c idle_in_transaction_session_timeout=5s")
    with open_ledger(f"{postgres_url}&options={chosen}") as ledger:
        assert setting(ledger, "lock_timeout") == "300ms"
        assert setting(ledger, "idle_in_transaction_session_timeout") == "5s"


def test_a_locked_ledger_says_what_to_do(postgres_url: str) -> None:
    impatient = f"{postgres_url}&options={quote('-c lock_timeout=100ms')}"
    with open_ledger(impatient) as ledger, psycopg.connect(postgres_url) as other:
        other.execute("LOCK TABLE dpflow.writer IN EXCLUSIVE MODE")
        with pytest.raises(LedgerError, match="stayed locked by another process; wait until it ends, then try again"):
            measure(ledger)
        assert ledger.balance("clinic").spent == 10
        other.rollback()
        measure(ledger)
        assert ledger.balance("clinic").spent == 30


def test_a_database_that_is_read_only_says_so(postgres_url: str) -> None:
    run_as_owner(postgres_url, f"ALTER DATABASE {name_of(postgres_url)} SET default_transaction_read_only = on")
    with open_ledger(postgres_url) as ledger:
        assert ledger.balance("clinic") == Balance(cap=CAP, spent=10, reserved=290)
        head = ledger.head()
        with pytest.raises(LedgerError, match="read-only, as on a standby; name the primary database") as refused:
            measure(ledger)
        assert refused.value.exit_code == 1
        assert ledger.head() == head


def test_a_connection_that_was_cut_while_idle_is_replaced(postgres_server: PostgresServer, postgres_url: str) -> None:
    with open_ledger(postgres_url) as ledger, postgres_server.admin() as admin:
        operation = ledger.charge(LEASE, step="measure", amount=20, mechanism=MECHANISM)
        admin.execute("SELECT pg_terminate_backend(%s, 5000)", [backend_of(ledger)])
        ledger.commit(operation, b"noisy")
        assert [done.output for done in ledger.transcript("run")] == [b"noisy", b"noisy"]


@pytest.mark.parametrize("statement", ["SELECT clock", "WITH", "COMMIT"])
def test_a_connection_that_is_cut_in_the_middle_undoes_all_of_it(
    postgres_server: PostgresServer, postgres_url: str, statement: str
) -> None:
    with open_ledger(postgres_url) as ledger, postgres_server.admin() as admin:
        head, backend = ledger.head(), backend_of(ledger)
        interrupted(ledger, statement, lambda: admin.execute("SELECT pg_terminate_backend(%s, 5000)", [backend]))
        with pytest.raises(LedgerError, match="lost its connection; run again: what was stored is found") as refused:
            measure(ledger)
        assert refused.value.exit_code == 1
        assert ledger.head() == head
        measure(ledger)
        assert ledger.balance("clinic").spent == 30
        assert_sound(ledger)


def test_whoever_froze_with_the_lock_is_let_go_of(postgres_url: str) -> None:
    impatient = f"{postgres_url}&options={quote('-c idle_in_transaction_session_timeout=2s')}"
    with open_ledger(impatient) as frozen, open_ledger(postgres_url) as other:
        # The other one waits for the lock, and so gets it no sooner than the server has let go of the frozen one.
        interrupted(frozen, "COMMIT", lambda: measure(other))
        with pytest.raises(LedgerError, match="lost its connection"):
            frozen.charge(LEASE, step="frozen", amount=100, mechanism=MECHANISM)
        assert other.balance("clinic").spent == 30
        assert_sound(other)


def test_a_forked_process_is_told_to_open_its_own(postgres_url: str) -> None:
    with open_ledger(postgres_url) as ledger:

        def look(_: int) -> None:
            ledger.close()
            with pytest.raises(LedgerError, match="opened by the parent of this process"):
                ledger.head()

        assert in_children(look, number=1) == [0]
        assert ledger.balance("clinic").spent == 10


def use_all_of(ledger: Ledger) -> None:
    ledger.transcript("run")
    ledger.settle("run", release=None, lease=LEASE)
    assert_sound(ledger)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET kind = 'forgotten' WHERE seq = 2",
        "UPDATE event SET body = '{' WHERE kind = 'reserved'",
        "UPDATE event SET at = 'yesterday' WHERE seq = (SELECT max(seq) FROM event)",
        "DELETE FROM event WHERE kind = 'reserved'",
        "UPDATE operation SET mechanism = '{'",
        "UPDATE operation SET output = 'other'",
        "DELETE FROM block",
        "DROP TABLE operation CASCADE",
        "DROP SCHEMA dpflow CASCADE",
        "ALTER TABLE run DROP COLUMN fence",
    ],
)
def test_damage_is_named_and_never_passed_on(postgres_url: str, statement: str) -> None:
    with open_ledger(postgres_url) as ledger:
        past_the_rules(postgres_url, statement)
        with pytest.raises(LedgerDamaged, match=r"restore (it|the ledger) from a backup") as refused:
            use_all_of(ledger)
        assert refused.value.exit_code == 4


def test_balances_that_contradict_each_other_stop_the_ledger(postgres_url: str) -> None:
    past_the_rules(postgres_url, "UPDATE block SET used = 0")
    with open_ledger(postgres_url) as ledger:
        head = ledger.head()
        with pytest.raises(LedgerDamaged, match="contradicts itself; nothing was changed: restore it from a backup"):
            ledger.settle("run", release=None, lease=LEASE)
        assert ledger.head() == head


def test_an_output_that_is_too_large_is_refused_before_anything_is_sent(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpcore.ledger.postgres.store.LARGEST_OUTPUT", 100)
    with open_ledger(postgres_url) as ledger:
        operation = ledger.charge(LEASE, step="measure", amount=20, mechanism=MECHANISM)
        with pytest.raises(LedgerError, match="cannot hold an output this large; measure fewer cells at once"):
            ledger.commit(operation, bytes(101))
        ledger.commit(operation, bytes(100))
