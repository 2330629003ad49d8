"""The page about online sessions runs as it stands, on the sample table."""

import re

from dpcore.ledger import RunState, open_ledger
from dpcore.mechanisms.pricing import currency_for
from dpcore.privacy.accounting import budget_of
from dpcore.privacy.protection import Neighbours
from tests.docs.pages import ROOT, with_sample

PAGE = ROOT / "docs" / "explanation" / "online.md"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def test_the_page_opens_a_session_and_shows_a_refusal(tmp_path, monkeypatch, capsys):
    with_sample(tmp_path, "clinic-visits.csv")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPFLOW_LEDGER_URL", raising=False)
    (tmp_path / "doors.yaml").write_text(blocks("yaml")[0], encoding="utf-8")
    neighbours = Neighbours.ADD_REMOVE
    usual = currency_for(10.0, delta=1e-9, unit="patient_id", neighbours=neighbours)
    currency, cap = budget_of(10.0, delta=1e-9, currency=usual)
    with open_ledger(create=True) as ledger:
        ledger.open_account(
            "clinic-visits",
            currency=currency,
            cap=cap,
            epsilon=10.0,
            delta=1e-9,
            unit="patient_id",
            neighbours=neighbours,
        )
    exec("".join(blocks("python")), {})  # noqa: S102  it is our own page
    first, second, refusal = capsys.readouterr().out.splitlines()
    shown = "".join(blocks("text")).splitlines()
    assert re.sub(r"\d+", "0", first) == re.sub(r"\d+", "0", shown[0])
    assert re.sub(r"\d+", "0", second) == re.sub(r"\d+", "0", shown[1])
    assert refusal == shown[2]
    with open_ledger() as ledger:
        (run,) = ledger.runs("clinic-visits")
        assert run.state is RunState.SETTLED
