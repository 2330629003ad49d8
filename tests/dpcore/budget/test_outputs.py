"""What the ledger's verbs and the account's page say of functions that an account pays for."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dpcore import Budget, cli
from dpcore.budget import Gaussian
from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import Currency
from dpcore.reporting.overview import look
from flows.cli.run import run
from flows.pages.account import account_page
from tests.dpcore.budget.accounts import UNIT, opened

NAMES = ("age in march/1", "cost in march/1")


@pytest.fixture
def paid(folder: Path) -> Iterator[Path]:
    """An account with a function that is done, another at work, and the reserve of a flow run that has ended at once."""
    opened(currency=Currency.ZCDP)
    clinic = Budget("clinic")
    with clinic.spend("age", unit=UNIT, rho="1/1000", name="age in march") as step:
        step.keep([1, 2])
    noise = Gaussian(scale=50, sensitivity=1, continuous=False)
    with clinic.spend("cost", unit=UNIT, mechanism=noise, name="cost in march"):
        with clinic.reserve(rho="1/1000"):
            pass
        yield folder


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert cli.main(list(arguments), runner=run) == 0
    return capsys.readouterr().out


def test_show_history_and_verify(paid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, "ledger", "show", "clinic")
    assert all(name in shown for name in NAMES)
    assert "reserve-" in shown
    history = said(capsys, "ledger", "history", "clinic")
    assert "value, rho 0.001" in history
    assert "stated-rho" in history
    assert "stated-gaussian" in history
    assert "operations" in said(capsys, "ledger", "verify")
    runs = json.loads(said(capsys, "ledger", "show", "clinic", "--json"))["accounts"][0]["runs"]
    assert [run["run"] for run in runs][:2] == list(NAMES)


def test_export_and_theorems(paid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "ledger", "export", "--to", "exported")
    events = pq.read_table(next(paid.glob("exported/**/*.parquet"))).to_pylist()
    assert {event["run"] for event in events} >= set(NAMES)
    assert "zcdp" in said(capsys, "ledger", "theorems", "clinic").lower()


def test_the_page_of_the_account_offers_no_resuming_by_dpflow(paid: Path) -> None:
    (found,) = look("clinic").accounts
    page = account_page(found)
    assert "dpflow ledger settle 'cost in march/1'" in page
    assert "--resume" not in page
    with open_ledger() as ledger:
        ledger.reserve("of a spec", account="clinic", amount=1, claim="c")
    (found,) = look("clinic").accounts
    assert "--resume 'of a spec'" in account_page(found)
