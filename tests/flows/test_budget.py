"""The flows `budget` and `verify` on a real server: pages of accounts that follow the ledger, crossings told once, a ledger that must hold."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from prefect import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.client.schemas.sorting import ArtifactSort

from dpcore import synthesize
from dpcore.errors import LedgerDamaged, UsageError
from dpcore.ledger import AllowanceKind, open_ledger
from dpcore.privacy.accounting import budget_of
from dpcore.privacy.protection import Neighbours
from dpcore.reporting.overview import look
from dpcore.steward.registry import register
from flows import verify as verify_module
from flows.budget import budget
from flows.pages.account import MOST_LISTED, account_page
from flows.verify import release_folders, verify
from tests.conftest import Workspace
from tests.dpcore.cli.ledgers import made_at_noon, opened, spent
from tests.flows.conftest import DATABASE, Search
from tests.flows.pages.test_artifacts import Rendered

NAME = "Clinic: <9>"
"""An account that no other test has, and whose name is not a key."""
KEY = "account-clinic-9-"


def pages(prefix: str) -> list[Any]:
    """Return the artifacts of which the key begins so, oldest first."""
    with get_client(sync_client=True) as client:
        wanted = ArtifactFilter(key=ArtifactFilterKey(like_=prefix))
        return client.read_artifacts(artifact_filter=wanted, sort=ArtifactSort.UPDATED_DESC, limit=50)[::-1]


def told(event: str) -> int:
    with closing(sqlite3.connect(DATABASE, uri=True)) as database:
        question = "SELECT count(*) FROM events WHERE event = ? AND instr(resource, ?)"
        return int(database.execute(question, (event, f"dpflow.account.{NAME}")).fetchone()[0])


@pytest.fixture
def ledger(workspace: Workspace) -> Iterator[Any]:
    """An account of epsilon 1, with one run that has spent a fifth of what it reserved."""
    with made_at_noon() as ledger:
        opened(ledger, NAME, epsilon=1.0)
        spent(ledger, "first", account=NAME, amount=int(0.4e12))
        yield ledger


@pytest.mark.prefect
def test_the_page_follows_the_ledger_and_each_crossing_is_told_once(ledger: Any, stored: Search) -> None:
    budget(NAME)
    budget(f" {NAME} ")
    first = pages(KEY)
    assert len(first) == 1
    assert "8.0 % of its budget is used" in first[0].data
    stored("all is recorded by then")
    assert (told("dpflow.account.used"), told("dpflow.account.passed")) == (2, 0)

    spent(ledger, "second", account=NAME, amount=int(0.9e12), ended=False)
    budget(NAME)
    budget()
    assert len(pages(KEY)) == 2
    stored("all is recorded by then")
    assert (told("dpflow.account.used"), told("dpflow.account.passed")) == (4, 1)

    _, cap = budget_of(1.1, delta=0.0)
    ledger.raise_cap(NAME, cap=cap, epsilon=1.1, reason="more people")
    budget(NAME)
    budget(NAME)
    stored("all is recorded by then")
    assert told("dpflow.account.passed") == 2
    with closing(sqlite3.connect(DATABASE, uri=True)) as database:
        rows = database.execute("SELECT payload FROM events WHERE event = 'dpflow.account.passed' ORDER BY occurred")
        payloads = [payload for (payload,) in rows if NAME in payload]
    assert '"percent": 98.0' in payloads[0]
    assert '"percent": 89.1' in payloads[1]


@pytest.mark.prefect
def test_an_account_that_is_not_there_is_refused(ledger: Any) -> None:
    with pytest.raises(UsageError, match="nobody"):
        budget("nobody")


def test_the_account_page_tells_all_that_the_ledger_knows(ledger: Any) -> None:
    for number in range(MOST_LISTED):
        spent(ledger, f"run-{number:02}", account=NAME, amount=int(0.01e12), release=f"release-{number:02}")
    spent(ledger, "at work", account=NAME, amount=int(0.1e12), ended=False)
    ledger.reserve("not begun; rm -rf", account=NAME, amount=int(0.05e12), claim="test")
    (found,) = look(NAME).accounts
    text = account_page(found)
    page = Rendered(text)
    assert NAME in page.text
    assert "The account is open." in page.text
    assert page.alts == ["Now: spent 14.0 %, reserved 13.0 %, left 73.0 %."]
    assert ["spent", "0.140000", "14.0 %"] in page.cells
    assert ["left", "0.730000", "73.0 %"] in page.cells
    runs = [row for row in page.cells if row[-1].startswith("release-") or row[-1] == "none"]
    assert len(runs) == MOST_LISTED
    assert runs[0][0] == "not begun; rm -rf"
    assert "The last 20 of 23 runs" in page.text
    assert "dpflow run NAME --resume 'at work'\ndpflow ledger settle 'at work'" in page.text
    assert "dpflow ledger refund 'not begun; rm -rf'" in page.text
    assert text == account_page(look(NAME).accounts[0])


def test_the_account_page_shows_blocks_and_allowances(workspace: Workspace) -> None:
    with made_at_noon() as ledger:
        opened(ledger, "monthly", months=MOST_LISTED + 5, neighbours=Neighbours.REPLACE_ONE)
        spent(ledger, "one", account="monthly", amount=int(0.2e12), blocks=["month-03"], analyst="ann|e", purpose="p")
        ledger.allow(
            "monthly", kind=AllowanceKind.ANALYST, name="ann|e", cap=int(1e12), epsilon=1.0, reason="her share"
        )
        ledger.close_account("monthly", reason="it is over")
    (found,) = look("monthly").accounts
    page = Rendered(account_page(found))
    assert "closed: it takes no more runs" in page.text
    assert "Block month-03, the most used one:" in page.text
    assert len([row for row in page.cells if row[0].startswith("month-")]) == MOST_LISTED
    assert "5 blocks that have used less are not shown here." in page.text
    assert ["analyst ann|e", "1.0000", "0.040000", "0.960000", "4.0 %"] in page.cells
    assert next(row for row in page.cells if row[0] == "one")[-2:] == ["ann|e", "p"]


def test_an_account_without_a_run_has_a_page(workspace: Workspace) -> None:
    with made_at_noon() as ledger:
        opened(ledger, "new", epsilon=1.0)
    (found,) = look(None).accounts
    assert "No run yet." in account_page(found)
    assert "0 % of its budget is used" in account_page(found)


@pytest.mark.prefect
def test_verify_says_that_a_ledger_holds_and_fails_with_its_sentence_when_it_does_not(workspace: Workspace) -> None:
    workspace.open_account()
    synthesize(workspace.spec, run_id=f"verified {datetime.now(UTC):%H%M%S%f}")
    register(workspace.spec)
    verify()
    sound = Rendered(pages("verify")[-1].data)
    assert "The ledger is sound" in sound.text
    assert ["manifests", "1", "each names a head of this ledger and its run's promise"] in sound.cells
    with open_ledger() as ledger:
        assert ledger.head() in sound.text

    with closing(sqlite3.connect(workspace.folder / ".dpflow" / "ledger.sqlite")) as database:
        for (trigger,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{trigger}"')
        database.execute("UPDATE event SET body = replace(body, '1', '2') WHERE seq = 5")
        database.commit()
    with pytest.raises(LedgerDamaged) as caught:
        verify()
    damaged = Rendered(pages("verify")[-1].data)
    assert "The ledger is damaged" in damaged.text
    assert str(caught.value) in damaged.text


@pytest.mark.prefect
def test_a_damaged_ledger_is_told_even_if_its_page_cannot_be_written(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(**_options: object) -> None:
        raise LedgerDamaged("event 5 does not fit; restore the ledger")

    def fail(*_arguments: object, **_options: object) -> None:
        raise OSError

    monkeypatch.setattr(verify_module, "verify_ledger", damaged)
    monkeypatch.setattr(verify_module, "create_markdown_artifact", fail)
    with pytest.raises(LedgerDamaged, match="event 5 does not fit"):
        verify()


def test_the_folders_of_all_registered_specs_are_searched(workspace: Workspace) -> None:
    register(workspace.spec, name="here")
    broken = workspace.folder / "broken.yaml"
    broken.write_text(workspace.spec.read_text(encoding="utf-8"), encoding="utf-8")
    register(broken)
    broken.write_text("dataset:", encoding="utf-8")
    assert release_folders() == ([], ["broken"])
    folder = workspace.folder / "releases" / "visits"
    folder.mkdir(parents=True)
    assert release_folders() == ([Path(folder)], ["broken"])
