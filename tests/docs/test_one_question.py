"""The guide's question from Python runs as it stands, on the sample table, and is paid for."""

import subprocess
import sys
from pathlib import Path

from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Neighbours
from tests.docs.pages import blocks

PROJECT = Path(__file__).parents[2]


def question() -> str:
    (code,) = blocks("docs/how-to/one-question.md", "python")
    return code


def test_the_question_is_answered_with_a_mean_near_the_true_one_and_charged(tmp_path, monkeypatch, capsys):
    (tmp_path / "data").mkdir()
    program = PROJECT / "data" / "clinic_visits.py"
    subprocess.run(
        [sys.executable, program, "--out", "data/clinic-visits.csv"], check=True, capture_output=True, cwd=tmp_path
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPFLOW_LEDGER_URL", raising=False)
    currency, cap = budget_of(10.0, delta=1e-9)
    terms = {"unit": "patient_id", "neighbours": Neighbours.ADD_REMOVE, "epsilon": 10.0, "delta": 1e-9}
    with open_ledger(create=True) as ledger:
        ledger.open_account("clinic-visits", currency=currency, cap=cap, **terms)
    exec(question(), names := {})  # noqa: S102  it is our own page
    assert capsys.readouterr().out.startswith("MeanEstimate(mean=4")
    with open_ledger() as ledger:
        assert ledger.balance("clinic-visits").spent == names["mean"].price(Currency.ZCDP)
