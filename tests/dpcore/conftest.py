"""Ledgers in the session's PostgreSQL server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dpcore.ledger import open_ledger
from tests.dpcore.ledger.fixtures import MECHANISM, opened
from tests.dpcore.ledger.postgres import LEASE
from tests.postgres import PostgresServer


@pytest.fixture(scope="module", autouse=True)
def _private_folder_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let what a module's own fixtures see of ledgers be remembered in a folder that is not this project's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPFLOW_PRIVATE", str(tmp_path_factory.mktemp("private")))
        yield


@pytest.fixture(autouse=True)
def _private_folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it be beside the file of a ledger, as it is by default; for a ledger in a database it is the test's own."""
    if {"postgres_server", "server", "guarded", "books"}.intersection(request.fixturenames):
        own: Path = request.getfixturevalue("tmp_path")
        monkeypatch.setenv("DPFLOW_PRIVATE", str(own / "private"))
    else:
        monkeypatch.delenv("DPFLOW_PRIVATE")


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
        ledger.commit(ledger.charge(LEASE, step="select", amount=10, mechanism=MECHANISM), b"noisy")
    return url
