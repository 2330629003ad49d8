"""A budget too small for the noise of any of its steps is refused before anything is set aside; what crashes use up ends the rounds."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
import yaml

from dpcore import load_spec, synthesize
from dpcore.curator.curator import Curator
from dpcore.errors import UsageError
from dpcore.ledger import open_ledger
from dpcore.mechanisms import RoundedGaussian
from dpcore.mechanisms.pricing import least_amount
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.runs.paying import smallest_share
from dpcore.runs.steps import check_run
from dpcore.runs.synthesis import Synthesis
from dpcore.strategies import strategy_for
from tests.conftest import Workspace
from tests.dpcore.runs.releases import nothing_was_bought, open_account, steps_of, transcript_of

pytestmark = pytest.mark.usefixtures("rough_models")

ONE_ROW = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
SIZES = (3, 31, 5)


def declare(
    workspace: Workspace,
    epsilon: float,
    *,
    strategy: str,
    sizes: Sequence[int] = SIZES,
    rounds: int | None = None,
    currency: Currency = Currency.GDP,
    opened: bool = False,
) -> None:
    """Write a table of whole numbers and a spec for it, with so many cells in each column, and open an account."""
    spec = {
        "dataset": "visits",
        "source": {"path": "visits.csv"},
        "privacy": {"unit": "row", "neighbours": "add-remove", "epsilon": epsilon, "delta": 1e-9},
        "universe": {
            f"c{number}": {"type": "integer", "min": 0, "max": size - 1, "width": 1}
            for number, size in enumerate(sizes)
        },
        "workload": {"marginals": 2},
        "strategy": {"name": strategy} | ({"rounds": rounds} if rounds else {}),
        "output": {"rows": 10},
    }
    workspace.spec.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    rng = np.random.default_rng(3)
    table = pd.DataFrame({f"c{number}": rng.integers(0, size, 200) for number, size in enumerate(sizes)})
    table.to_csv(workspace.folder / "visits.csv", index=False)
    if not opened:
        open_account(epsilon=1.0, currency=currency)


@pytest.mark.parametrize(
    ("sizes", "epsilon", "strategy"), [((5000, 2, 2), 3e-3, "adaptive"), (SIZES, 3e-4, "mwem"), (SIZES, 1e-3, "pmw")]
)
def test_noise_that_gdp_cannot_draw_is_refused_before_anything_is_reserved(
    workspace: Workspace, sizes: tuple[int, ...], epsilon: float, strategy: str
) -> None:
    declare(workspace, epsilon, sizes=sizes, strategy=strategy)
    for refused in (lambda: synthesize(workspace.spec), lambda: check_run(load_spec(workspace.spec), resume=None)):
        with pytest.raises(UsageError, match=r"ask for epsilon .*fewer `rounds`.*account in zcdp"):
            refused()
    assert nothing_was_bought()


@pytest.mark.parametrize("strategy", ["adaptive", "mwem", "pmw"])
def test_the_epsilon_that_the_refusal_names_is_enough_and_little_more_than_that(
    workspace: Workspace, strategy: str
) -> None:
    declare(workspace, 1e-3, strategy=strategy, rounds=12)
    with pytest.raises(UsageError, match="ask for epsilon") as refused:
        check_run(load_spec(workspace.spec), resume=None)
    enough = float(str(refused.value).split("ask for epsilon ")[1].split(",")[0])
    declare(workspace, 0.99 * enough, strategy=strategy, rounds=12, opened=True)
    with pytest.raises(UsageError, match="ask for epsilon"):
        check_run(load_spec(workspace.spec), resume=None)
    declare(workspace, enough, strategy=strategy, rounds=12, opened=True)
    check_run(load_spec(workspace.spec), resume=None)


def test_an_account_in_zcdp_pays_for_the_same(workspace: Workspace) -> None:
    declare(workspace, 1e-3, strategy="mwem", currency=Currency.ZCDP)
    assert synthesize(workspace.spec).rows == 10


@pytest.mark.parametrize("currency", [Currency.ZCDP, Currency.GDP])
def test_an_epsilon_that_amounts_to_nothing_asks_for_more(workspace: Workspace, currency: Currency) -> None:
    declare(workspace, 1e-8, strategy="mwem", currency=currency)
    with pytest.raises(UsageError, match=r"epsilon 1e-08 is too small.*; ask for epsilon 0\.000"):
        synthesize(workspace.spec)
    assert nothing_was_bought()


@pytest.mark.parametrize("strategy", ["adaptive", "mwem", "pmw"])
def test_no_measurement_gets_less_than_the_smallest_share(workspace: Workspace, strategy: str) -> None:
    declare(workspace, 0.1, strategy=strategy)
    outcome = synthesize(workspace.spec)
    with open_ledger() as ledger:
        reserved = ledger.run(outcome.run).reserved
    paid = [each.amount for each in transcript_of(outcome.run) if "select" not in each.step]
    declaration = load_spec(workspace.spec)
    assert min(paid) >= 0.999 * smallest_share(declaration, strategy_for(declaration)) * reserved


def test_rounds_that_crashes_have_left_no_noise_for_end_early_instead_of_failing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(workspace, 0.01, strategy="mwem", rounds=3)
    begin = Synthesis.begin

    def lose_almost_all(run: Synthesis) -> None:
        begin(run)
        lease = run.curator._received[1]  # type: ignore[index]
        left = 6 * least_amount(currency=Currency.GDP, protection=ONE_ROW) - 1
        amount = run.ledger.run(run.run_id).remaining - left
        mechanism = RoundedGaussian.for_amount(amount, currency=Currency.GDP, sensitivity=ONE_ROW.sensitivity)
        run.ledger.charge(lease, step="lost", amount=amount, mechanism=mechanism.describe())

    monkeypatch.setattr(Synthesis, "begin", lose_almost_all)
    outcome = synthesize(workspace.spec)
    assert not [step for step in steps_of(outcome.run) if step.startswith("round")]


@pytest.mark.parametrize(("answers", "exhausted"), [(2, False), (3, True)])
def test_what_is_left_must_pay_for_every_answer_to_come(workspace: Workspace, answers: int, exhausted: bool) -> None:
    open_account(epsilon=1.0, currency=Currency.GDP)
    amount = 3 * least_amount(currency=Currency.GDP, protection=ONE_ROW) - 1
    assert amount < budget_of(1.0, delta=1e-9, currency=Currency.GDP)[1]
    with open_ledger() as ledger:
        ledger.reserve("run", account="visits", amount=amount, claim="claim", analyst=None, purpose=None)
        curator = Curator(ledger=ledger, run_id="run", protection=ONE_ROW, currency=Currency.GDP)
        assert curator.exhausted("step", answers=answers) is exhausted
