"""Whole runs with weights, a target and ranges: paid like any other, resumed and replayed, and told of in the release."""

import signal
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from dpcore import synthesize
from dpcore.ledger import open_ledger
from dpcore.mechanisms import from_description
from dpcore.privacy.accounting import Currency
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace
from tests.dpcore.runs.test_synthesis import check_the_books, check_the_release, resume, run_and_die, transcript_of
from tests.dpcore.runs.test_synthesis_adaptive import (
    AFTER_THE_COLUMNS,
    COLUMNS,
    check_a_replay,
    manifest_of,
    open_account,
    prepare,
)
from tests.processes import forked

ASKED = (
    ("bins: 10", "bins: 200"),
    ("workload:\n", "workload:\n  target: age\n  ranges: [income, month]\n"),
    ("- [trade, plan]", "- {columns: [trade, plan], weight: 5}"),
)
FOUR_ROUNDS = ("workload:", "strategy: {name: adaptive, rounds: 4}\nworkload:")


def levels_of(run_id: str) -> list[str]:
    return [step for step, _ in transcript_of(run_id) if step.startswith("one-way/")][COLUMNS:]


@pytest.mark.parametrize("currency", list(Currency))
def test_a_run_is_paid_in_every_currency_at_the_sensitivity_of_its_weights(
    workspace: Workspace, currency: Currency
) -> None:
    delta = 0.0 if currency is Currency.PURE else 1e-9
    prepare(workspace, *ASKED, FOUR_ROUNDS, ("delta: 1e-9", f"delta: {delta:g}"))
    open_account(delta=delta, currency=currency)
    outcome = synthesize(workspace.spec)
    assert 4.99 < outcome.epsilon <= 5.0
    assert 0.996 < outcome.spent / outcome.reserved <= 1.0
    check_the_books(outcome.run, crashes=0)
    check_the_release(outcome)
    levels = levels_of(outcome.run)
    assert levels
    assert all(step.startswith("one-way/06-income-") for step in levels)  # twelve months have no coarser level
    with open_ledger() as ledger:
        transcript = ledger.transcript(outcome.run)
    for operation in transcript:
        assert from_description(operation.mechanism).price(currency) <= operation.amount
    sensitivities = [row.mechanism["sensitivity"] for row in transcript if row.step.endswith("/select")]
    assert sensitivities[:2] == [1, 1]  # pairs with the target, which weigh 1
    assert set(sensitivities) <= {1, 5}
    assert verify_ledger(releases=[workspace.folder]).manifests == 1


def test_the_release_tells_the_strategy_and_holds_the_levels(workspace: Workspace) -> None:
    prepare(workspace, *ASKED)
    open_account()
    outcome = synthesize(workspace.spec)
    manifest = manifest_of(outcome.release)
    assert manifest["strategy"] == "adaptive"
    assert manifest["spec"]["strategy"] is None
    assert manifest["spec"]["workload"]["ranges"] == ["income", "month"]
    first = manifest["rounds"][: len(manifest["rounds"]) // 2]
    assert all("age" in each["columns"][0] or "age" in each["columns"][-1] for each in first[:2])
    measured = pd.read_parquet(Path(outcome.release) / "measurements.parquet").groupby("step", observed=True)
    for step in levels_of(outcome.run):
        level, (_, name, groups) = measured.get_group(step), step.rsplit("-", 2)
        assert len(level) == int(groups)
        assert level.attributes.map(list).map(lambda names, name=name: names == [name]).all()
        start, end = {"income": (0.0, 100.0), "month": (1.0, 13.0)}[name]
        edges = [start, *level[f"{name}_high"]]  # where they lie depends on noise; that they cover the range does not
        assert list(level[f"{name}_low"]) == edges[:-1]
        assert edges[-1] == end
        assert edges == sorted(set(edges))


def test_a_settled_run_is_replayed_without_the_table(
    workspace: Workspace, tree_of: Callable[[Path], dict[str, bytes]]
) -> None:
    prepare(workspace, *ASKED)
    check_a_replay(workspace, tree_of)


@pytest.mark.parametrize(
    "calls",
    [
        AFTER_THE_COLUMNS,
        AFTER_THE_COLUMNS + 2,  # a level is paid for
        AFTER_THE_COLUMNS + 4,  # and stored
        AFTER_THE_COLUMNS + 6,  # the next one, or the first selection, is paid for
        AFTER_THE_COLUMNS + 10,
    ],
)
def test_a_run_killed_among_its_levels_goes_on(workspace: Workspace, calls: int) -> None:
    prepare(workspace, *ASKED, FOUR_ROUNDS)
    open_account()
    child = forked().Process(target=run_and_die, args=(str(workspace.spec), "r1", calls))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    before = transcript_of("r1")
    outcome = resume(workspace.spec, "r1")
    after = transcript_of("r1")
    assert after[: len(before)] == before
    assert len(after) == 1 + COLUMNS + len(levels_of("r1")) + 2 * 4
    check_the_books("r1", crashes=1)
    check_the_release(outcome)
    assert verify_ledger().manifests == 1


def test_mwem_takes_weights_and_a_target(workspace: Workspace) -> None:
    workspace.write_spec(
        ("marginals: 2", "marginals: [[sex, age], [sex, smoker], {columns: [age, city], weight: 9}], target: sex")
    )
    workspace.open_account()
    outcome = synthesize(workspace.spec)
    check_the_books(outcome.run, crashes=0)
    with open_ledger() as ledger:
        chosen = [row.mechanism["sensitivity"] for row in ledger.transcript(outcome.run) if row.step.endswith("select")]
    assert chosen == [2, 2, 18, 18]  # two pairs with the target first, then the heavy one, then all again
    assert manifest_of(outcome.release)["strategy"] == "mwem"
