"""Charged steps: only what the list names is charged, and each name has one meaning."""

from collections import Counter

import pytest

from dpcore.curator.charges import CHARGED_STEPS, ChargedStep, Statistic, charge
from dpcore.errors import StepFailed
from dpcore.ledger import Ledger, open_ledger
from dpcore.mechanisms import DiscreteLaplace
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Sensitivity
from tests.conftest import Workspace

NOISE = DiscreteLaplace(scale=10.0, sensitivity=Sensitivity(l1=1, l2_squared=1, linf=1))


@pytest.fixture
def ledger(workspace: Workspace) -> Ledger:
    workspace.open_account(delta=0.0)
    with open_ledger() as ledger:
        ledger.reserve("r", account="visits", amount=AMOUNT_OF_ONE, claim="a test")
        yield ledger


def charged(ledger: Ledger, step: str, statistic: Statistic) -> int:
    charge(ledger, ledger.lease("r"), step=step, statistic=statistic, mechanism=NOISE, currency=Currency.PURE)
    return ledger.run("r").spent


@pytest.mark.parametrize(
    ("step", "statistic"),
    [
        ("peek", Statistic.COUNT),
        ("round-001/select", Statistic.MARGINAL),  # a name that is listed, with what is not asked under it
        ("total", Statistic.MARGINAL),
        ("rows-per-unit", Statistic.COUNT),
        ("round-001/select/again", Statistic.CELL_ERRORS),
    ],
)
def test_a_step_of_no_listed_kind_is_refused_before_it_is_charged(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, step: str, statistic: Statistic
) -> None:
    with pytest.raises(StepFailed, match="no kind that the proof covers"):
        charged(ledger, step, statistic)
    assert ledger.run("r").spent == 0
    monkeypatch.setattr("dpcore.curator.charges.CHARGED_STEPS", (*CHARGED_STEPS, ChargedStep("new", statistic, step)))
    assert charged(ledger, step, statistic) == AMOUNT_OF_ONE // 10  # the control: with its row, it is charged


def test_every_kind_has_a_name_and_a_form_of_its_own() -> None:
    assert max(Counter(kind.name for kind in CHARGED_STEPS).values()) == 1
    assert max(Counter((kind.statistic, kind.steps) for kind in CHARGED_STEPS).values()) == 1
    assert {kind.statistic for kind in CHARGED_STEPS} == set(Statistic)
