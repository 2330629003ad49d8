"""Ledgers in the session's PostgreSQL server."""

import pytest

from dpcore.ledger import open_ledger
from tests.dpcore.ledger_fixtures import MECHANISM, opened
from tests.dpcore.ledger_postgres import LEASE
from tests.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """A database with a ledger in it that nobody has used, to be copied."""
    url = postgres_server.new_database()
    open_ledger(url, create=True).close()
    return url


@pytest.fixture
def postgres_url(postgres_server: PostgresServer, postgres_template: str) -> str:
    """A database of its own with a run that has done something."""
    url = postgres_server.new_database(template=postgres_template)
    with open_ledger(url) as ledger:
        opened(ledger)
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        assert ledger.lease("run") == LEASE
        ledger.commit(ledger.start(LEASE, step="select", amount=10, mechanism=MECHANISM), b"noisy")
    return url
