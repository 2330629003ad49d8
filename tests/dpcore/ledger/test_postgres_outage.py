"""A PostgreSQL server that goes away under a ledger, and comes back: nothing that was stored is lost, nothing is paid for free."""

from collections.abc import Iterator

import pytest

from dpcore.errors import LedgerError
from dpcore.ledger import Balance, Ledger, open_ledger
from tests.dpcore.ledger.fixtures import CAP, MECHANISM, assert_sound, opened
from tests.dpcore.ledger.postgres import LEASE, interrupted, measure
from tests.postgres import PostgresServer, postgres_folder

UNREACHABLE = "cannot be reached; check DPFLOW_LEDGER_URL and that the database runs, then run again"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Run a server of its own, so that it can be stopped."""
    with PostgresServer(postgres_folder(), durable=True) as server:
        yield server


@pytest.fixture(scope="module")
def empty(server: PostgresServer) -> str:
    url = server.new_database()
    open_ledger(url, create=True).close()
    return url


@pytest.fixture
def url(server: PostgresServer, empty: str) -> str:
    return server.new_database(template=empty)


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with open_ledger(url) as ledger:
        opened(ledger)
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        assert ledger.lease("run") == LEASE
        yield ledger


def test_a_server_that_is_down_is_named_and_opens_when_it_is_up(server: PostgresServer, url: str) -> None:
    server.stop(immediate=False)
    try:
        for create in (False, True):
            with pytest.raises(LedgerError, match=UNREACHABLE) as refused:
                open_ledger(url, create=create)
            assert refused.value.exit_code == 1
    finally:
        server.start()
    open_ledger(url).close()


@pytest.mark.parametrize("immediate", [False, True])
def test_a_restart_between_two_calls_goes_unnoticed(server: PostgresServer, ledger: Ledger, immediate: bool) -> None:
    operation = ledger.charge(LEASE, step="measure", amount=20, mechanism=MECHANISM)
    server.stop(immediate=immediate)
    server.start()
    ledger.commit(operation, b"noisy")
    assert ledger.transcript("run")[0].output == b"noisy"
    assert_sound(ledger)


def test_while_the_server_is_down_every_call_says_so_and_then_the_same_ledger_works_again(
    server: PostgresServer, ledger: Ledger
) -> None:
    operation = ledger.charge(LEASE, step="measure", amount=20, mechanism=MECHANISM)
    server.stop(immediate=False)
    try:
        for _ in range(2):
            with pytest.raises(LedgerError, match=UNREACHABLE):
                ledger.commit(operation, b"noisy")
            with pytest.raises(LedgerError, match=UNREACHABLE):
                ledger.balance("clinic")
    finally:
        server.start()
    ledger.commit(operation, b"noisy")
    assert ledger.balance("clinic") == Balance(cap=CAP, spent=20, reserved=280)


@pytest.mark.parametrize("statement", ["SELECT clock", "WITH", "COMMIT"])
def test_a_server_that_crashes_in_the_middle_of_a_transaction_undoes_all_of_it(
    server: PostgresServer, ledger: Ledger, statement: str
) -> None:
    head = ledger.head()
    interrupted(ledger, statement, lambda: server.stop(immediate=True))
    try:
        with pytest.raises(LedgerError, match="lost its connection; run again: what was stored is found") as refused:
            ledger.charge(LEASE, step="measure", amount=20, mechanism=MECHANISM)
        assert refused.value.exit_code == 1
    finally:
        server.start()
    assert ledger.head() == head
    measure(ledger)
    assert ledger.balance("clinic") == Balance(cap=CAP, spent=20, reserved=280)
    assert_sound(ledger)


def test_what_a_crash_leaves_open_whether_it_was_committed_is_found_by_asking_again(
    server: PostgresServer, ledger: Ledger
) -> None:
    operation = ledger.charge(LEASE, step="measure", amount=20, mechanism=MECHANISM)
    execute = ledger._store.execute

    def commit_and_crash() -> None:
        execute("COMMIT")
        server.stop(immediate=True)

    interrupted(ledger, "COMMIT", commit_and_crash)
    try:
        with pytest.raises(LedgerError, match="run again: what was stored is found"):
            ledger.commit(operation, b"noisy")
    finally:
        server.start()
    found = ledger.operation("run", "measure")
    assert found is not None
    assert found.output == b"noisy"
    assert_sound(ledger)
