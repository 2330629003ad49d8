"""`dpflow ledger theorems`: an account's operations priced again, by every theorem."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from dpcore.cli.ledger_theorems import add_verbs
from dpcore.cli.output import Answer
from dpcore.errors import UsageError
from dpcore.ledger import Ledger
from dpcore.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialMechanism,
    Flavour,
    Mechanism,
    RoundedGaussian,
)
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Cap, Currency, budget_of, epsilon_of, promise_of
from dpcore.privacy.protection import Sensitivity
from dpcore.textbook.theorems import optimal_composition
from tests.dpcore.cli.ledgers import dpflow, made_at_noon, opened

ONE = Sensitivity(l1=1, l2_squared=1, linf=1)
TWO = Sensitivity(l1=2, l2_squared=2, linf=1)
MANY = Sensitivity(l1=4, l2_squared=16, linf=4)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPFLOW_LEDGER_URL", raising=False)
    return tmp_path


def measured(ledger: Ledger, account: str, mechanisms: list[Mechanism], *, commit: bool = True) -> None:
    """Spend what each mechanism costs; without a commit the worker dies each time, and has paid all the same."""
    terms = ledger.account(account)
    ledger.reserve(f"run-{account}", account=account, amount=terms.cap, claim="test")
    lease = ledger.lease(f"run-{account}", holder="worker-7 4120 99")
    for number, mechanism in enumerate(mechanisms):
        price = mechanism.price(terms.currency)
        operation = ledger.charge(lease, step=f"step-{number}", amount=price, mechanism=mechanism.describe())
        if commit:
            ledger.commit(operation, b"noisy")


def told(*arguments: str) -> Answer:
    parser = argparse.ArgumentParser()
    add_verbs(parser.add_subparsers())
    chosen = parser.parse_args(["theorems", *arguments])
    answer = chosen.verb(chosen)
    assert json.loads("".join(answer.pieces(as_json=True))) == answer.data
    return answer


def by_theorem(answer: Answer) -> dict[str, dict[str, Any]]:
    return {finding["theorem"]: finding for finding in answer.data["theorems"]}


CLINIC = """\
12 operations of clinic, at delta 1e-09

theorem   so far  promised
basic     2.2621         -  not valid          it is a filter, but no cap in epsilon was fixed in advance
advanced  4.9622         -  not valid          it needs prices and their number fixed in advance
optimal        -         -  does not apply     it is known for equal prices only; numeric composes others
zcdp      0.7558        10  promised is valid  so far; no theorem promises it for adaptive prices
gdp            -         -  does not apply     a step has no price from which a mu squared follows
numeric   0.7753         -  not valid          it needs prices and their number fixed in advance

so far: the epsilon of the operations charged so far
promised: the epsilon of the whole cap in rho, valid for adaptively chosen operations
smallest valid: epsilon 10 at delta 1e-09, promised, by zcdp"""


def test_in_a_zcdp_account_the_cap_is_valid_and_neither_its_sum_so_far_nor_any_other_is() -> None:
    noise = [DiscreteGaussian(scale=40.0, sensitivity=TWO)] * 10
    choice = [ExponentialMechanism(epsilon=0.1, sensitivity=1, flavour=Flavour.GUMBEL)] * 2
    with made_at_noon() as ledger:
        opened(ledger, "clinic", epsilon=10.0, delta=1e-9)
        measured(ledger, "clinic", [*noise, *choice])
        spent = ledger.run("run-clinic").spent
    answer = told("clinic")
    found = by_theorem(answer)
    assert answer.data["operations"] == 12
    assert not any(finding["so_far_valid"] for finding in found.values())
    assert found["zcdp"]["so_far"] == epsilon_of(spent, currency=Currency.ZCDP, delta=1e-9)
    assert found["numeric"]["so_far"] is not None
    promised = answer.data["promised"]
    assert answer.data["smallest"] == promised
    assert (promised["theorem"], promised["valid"]) == ("zcdp", True)
    assert promised["epsilon"] == epsilon_of(answer.data["cap_amount"], currency=Currency.ZCDP, delta=1e-9)
    assert found["zcdp"]["so_far"] < promised["epsilon"] <= answer.data["declared"]["epsilon"] == 10.0
    assert answer.text == CLINIC
    assert max(map(len, answer.text.splitlines())) <= 120


def test_a_pure_account_is_told_at_delta_0_and_at_any_that_is_named() -> None:
    with made_at_noon() as ledger:
        opened(ledger, "births", epsilon=10.0)
        measured(ledger, "births", [DiscreteLaplace(scale=10.0, sensitivity=ONE)] * 40, commit=False)
    answer = told("births")
    found = by_theorem(answer)
    assert (answer.data["smallest"]["theorem"], answer.data["delta"]) == ("basic", 0.0)
    assert answer.data["smallest"]["epsilon"] == found["basic"]["so_far"] == pytest.approx(4.0)
    assert (answer.data["promised"]["epsilon"], answer.data["promised"]["valid"]) == (10.0, True)
    assert [name for name, finding in found.items() if finding["so_far_valid"]] == ["basic"]
    assert found["optimal"]["so_far"] is None
    assert "does not apply" in answer.text
    assert "both are valid" in answer.text
    assert answer.text.endswith("smallest valid: epsilon 4 at delta 0, so far, by basic")
    at_a_delta = by_theorem(told("births", "--delta", "1e-6"))
    best = optimal_composition(0.1, delta=0, count=40, total_delta=1e-6)
    assert at_a_delta["optimal"]["so_far"] == pytest.approx(best, rel=1e-9)
    assert not at_a_delta["optimal"]["so_far_valid"]
    assert told("births", "--delta", "1e-6").data["smallest"]["theorem"] == "basic"


def test_counts_that_move_by_one_each_are_cheaper_than_one_that_moves_by_all() -> None:
    found = {}
    with made_at_noon() as ledger:
        for name, sensitivity in (("spread", TWO), ("heaped", Sensitivity(l1=2, l2_squared=4, linf=2))):
            opened(ledger, name, epsilon=20.0)
            measured(ledger, name, [DiscreteLaplace(scale=20.0, sensitivity=sensitivity)] * 20)
    for name in ("spread", "heaped"):
        found[name] = by_theorem(told(name, "--delta", "1e-6"))
    assert found["spread"]["basic"]["so_far"] == found["heaped"]["basic"]["so_far"]
    assert found["spread"]["numeric"]["so_far"] < 0.9 * found["heaped"]["numeric"]["so_far"]


def test_a_gdp_account_is_told_by_its_cap_and_its_sum_of_squares_so_far() -> None:
    with made_at_noon() as ledger:
        opened(ledger, "visits", epsilon=10.0, delta=1e-6, currency=Currency.GDP)
        measured(ledger, "visits", [RoundedGaussian(scale=20.0, sensitivity=MANY)] * 5)
        spent = ledger.run("run-visits").spent
    answer = told("visits")
    found = by_theorem(answer)
    assert answer.data["smallest"] == answer.data["promised"]
    assert answer.data["promised"]["epsilon"] == epsilon_of(
        answer.data["cap_amount"], currency=Currency.GDP, delta=1e-6
    )
    assert found["gdp"]["so_far"] == epsilon_of(spent, currency=Currency.GDP, delta=1e-6)
    assert not found["gdp"]["so_far_valid"]
    assert found["numeric"]["so_far"] == pytest.approx(found["gdp"]["so_far"], rel=1e-3)
    nothing = told("visits", "--delta", "0")
    assert nothing.data["smallest"] is None
    assert nothing.text.endswith("at this delta: a cap in mu^2 promises an epsilon at a delta above 0 only")


def test_one_that_has_no_operation_has_spent_nothing() -> None:
    with made_at_noon() as ledger:
        opened(ledger, "empty")
    answer = told("empty")
    assert answer.text == "no operation was charged yet\npromised: epsilon 2, for adding or removing one row"
    assert (answer.data["promised"]["epsilon"], answer.data["promised"]["delta"]) == (2.0, 0.0)
    assert (answer.data["operations"], answer.data["theorems"], answer.data["smallest"]) == (0, [], None)


def test_of_an_account_by_blocks_the_promise_is_told_and_no_history_is_composed() -> None:
    with made_at_noon() as ledger:
        opened(ledger, "sales", months=2)
        opened(ledger, "visits", months=2, unit="person", epsilon=4, delta=1e-6)
    sales, visits = told("sales"), told("visits", "--delta", "1e-9")
    assert (sales.data["operations"], sales.data["theorems"], sales.data["promised"]["epsilon"]) == (None, [], 2.0)
    assert "each block has its own history" in sales.text
    assert "several" not in sales.text
    promised, cap = visits.data["promised"], visits.data["cap_amount"]
    assert promised["epsilon"] == epsilon_of(cap, currency=Currency.ZCDP, delta=1e-9)
    assert "for adding or removing one person, all of whose rows are in one block" in visits.text
    assert visits.text.endswith(
        "For one person with rows in several blocks, the losses of these blocks add up; no cap limits that."
    )
    with pytest.raises(UsageError, match="delta must be above 0"):
        told("visits", "--delta", "0")


def test_a_cap_is_in_the_currency_as_in_show_and_its_whole_amount_has_a_name_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with made_at_noon() as ledger:
        opened(ledger, "clinic", epsilon=10.0, delta=1e-9)
        cap = ledger.account("clinic").cap
    capsys.readouterr()
    assert dpflow("ledger", "show", "clinic", "--json") == 0
    (shown,) = json.loads(capsys.readouterr().out)["accounts"]
    data = told("clinic").data
    assert data["cap"] == shown["cap"] == cap / AMOUNT_OF_ONE
    assert data["cap_amount"] == cap


def test_a_raise_after_the_first_charge_is_told_and_is_part_of_the_promise() -> None:
    with made_at_noon() as ledger:
        opened(ledger, "early", epsilon=1.0, delta=1e-9)
        opened(ledger, "late", epsilon=1.0, delta=1e-9)
        _, cap = budget_of(2.0, delta=1e-9)
        first = ledger.account("late").cap
        ledger.raise_cap("early", cap=cap, epsilon=2.0, reason="before anything was charged")
        for name in ("early", "late"):
            measured(ledger, name, [DiscreteGaussian(scale=40.0, sensitivity=ONE)])
        ledger.raise_cap("late", cap=cap, epsilon=2.0, reason="after it")
    early, late = told("early"), told("late")
    assert (early.data["raised"], late.data["raised"]) == (False, True)
    assert early.data["promised"]["delta"] == 1e-9
    assert early.data["promised"]["epsilon"] <= 2.0
    assert late.data["smallest"] == late.data["promised"]
    stated = promise_of(Cap(Currency.ZCDP, cap, first=first), delta=1e-9)
    assert (late.data["promised"]["epsilon"], late.data["promised"]["delta"]) == (stated.epsilon, stated.delta)
    assert stated.delta == 2e-9
    assert "the cap was raised after the first charge" in late.text
    assert late.text.endswith("at delta 2e-09, promised, by zcdp")
    assert "raised" not in early.text


def test_an_unknown_account_and_a_bad_delta_are_refused() -> None:
    with made_at_noon() as ledger:
        opened(ledger, "births", epsilon=2.0)
        measured(ledger, "births", [DiscreteLaplace(scale=10.0, sensitivity=ONE)])
        assert ledger.run("run-births").spent == AMOUNT_OF_ONE // 10
    with pytest.raises(UsageError, match="nobody"):
        told("nobody")
    with pytest.raises(UsageError, match="delta must be"):
        told("births", "--delta", "1")
    with pytest.raises(UsageError, match="delta must be"):
        told("births", "--delta=-1e-6")
