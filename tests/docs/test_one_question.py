"""The guide's questions from Python run as they stand, on the sample table, and are paid for."""

from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Neighbours
from tests.docs.pages import blocks, with_sample

ASKED = ("mean", "quartiles", "top", "choice", "above")


def test_the_questions_are_answered_near_the_truth_and_charged(tmp_path, monkeypatch, capsys):
    with_sample(tmp_path, "clinic-visits.csv")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPFLOW_LEDGER_URL", raising=False)
    currency, cap = budget_of(10.0, delta=1e-9, currency=Currency.GDP)  # as `make demo` opens it
    terms = {"unit": "patient_id", "neighbours": Neighbours.ADD_REMOVE, "epsilon": 10.0, "delta": 1e-9}
    with open_ledger(create=True) as ledger:
        ledger.open_account("clinic-visits", currency=currency, cap=cap, **terms)
    names, spent = {}, 0
    for code, name in zip(blocks("docs/how-to/one-question.md", "python"), ASKED, strict=True):
        exec(code, names)  # noqa: S102  it is our own page
        spent += names[name].price(Currency.GDP)
        with open_ledger() as ledger:
            assert ledger.balance("clinic-visits").spent == spent
    mean, quartiles, top, choice, above = capsys.readouterr().out.splitlines()
    assert mean.startswith("MeanEstimate(mean=4")
    low, middle, high = map(float, quartiles.strip("()").split(", "))
    assert 0 <= low <= middle <= high <= 2000
    assert len(set(top.strip("()").split(", "))) == 3
    assert choice in {"planned", "emergency"}
    assert above.strip("()").replace(",", "").split()[-1] in {"True", "False"}
