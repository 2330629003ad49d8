"""What a plan says of the universe, the candidates, the currencies, and of what can't be spent."""

import json
import math
from itertools import combinations
from pathlib import Path

import pytest

from dpcore import load_spec
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, budget_of, gdp_to_epsilon, zcdp_to_epsilon
from dpcore.reporting.formatting import figure
from dpcore.runs.planning.plan import Plan, plan_run
from tests.conftest import Workspace
from tests.dpcore.runs.planning.test_plan import declare, few_columns
from tests.dpcore.runs.releases import dpflow, open_account


def wide(folder: Path, *, columns: int, values: int, marginals: int) -> Path:
    """Write a spec of many columns."""
    declared = "\n".join(
        f"  c{number:03}: {{type: integer, min: 1, max: {values}, width: 1}}" for number in range(columns)
    )
    path = folder / "wide.yaml"
    path.write_text(
        "dataset: wide\nsource: {path: wide.csv}\n"
        "privacy: {unit: row, neighbours: add-remove, epsilon: 1.0, delta: 1e-9}\n"
        f"universe:\n{declared}\nworkload: {{marginals: {marginals}}}\n",
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize(
    ("columns", "values", "cells"),
    [
        (3, 10, "1,000"),
        (17, 10, "1.0e17"),
        (20, 900, "1.2e59"),
    ],
)
def test_a_universe_of_any_size_is_planned(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], columns: int, values: int, cells: str
) -> None:
    spec = wide(workspace.folder, columns=columns, values=values, marginals=2)
    assert dpflow("plan", spec) == 0
    assert f"universe   {columns} columns, {cells} cells" in capsys.readouterr().out
    assert dpflow("plan", spec, "--json") == 0
    universe = json.loads(capsys.readouterr().out)["universe"]
    assert universe["columns"] == columns
    assert universe["log10_cells"] == pytest.approx(columns * math.log10(values))
    assert universe["cells"] == (values**columns if values**columns <= 10**18 else None)


def test_the_candidates_are_counted_with_their_cells(workspace: Workspace) -> None:
    declare(workspace, "{name: adaptive}", epsilon=1.0, workload="workload: {marginals: 3}\n")
    declaration = load_spec(workspace.spec)
    plan = plan_run(declaration, rows=3000)
    assert plan.rounds is not None
    assert plan.rounds.worth_cells is not None
    shape = declaration.universe.shape
    sizes = sorted(math.prod(some) for size in (2, 3) for some in combinations(shape, size))
    found = plan.rounds.candidates
    assert (found.number, found.smallest, found.largest) == (len(sizes), sizes[0], sizes[-1])
    assert found.median == sizes[(len(sizes) - 1) // 2]
    assert found.too_noisy == sum(size > plan.rounds.worth_cells for size in sizes)
    assert 0 < found.too_noisy < found.number
    assert found.too_large == 0
    declare(workspace, "{name: adaptive, max_model_mb: 0.002}", epsilon=1.0, workload="workload: {marginals: 3}\n")
    small = plan_run(load_spec(workspace.spec), rows=3000)
    assert small.rounds is not None
    assert small.rounds.candidates.too_large == sum(size > 262 for size in sizes) > 0


def test_too_many_cells_are_said_with_what_is_done_about_them(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(strategy: str, rows: int) -> str:
        few_columns(workspace, strategy, epsilon=0.1)
        assert dpflow("plan", workspace.spec, "--rows", rows) == 0
        return capsys.readouterr().out

    assert "measured with merged cells" in said("{name: adaptive}", 100)
    assert "these are measured only in part" in said("{name: mwem}", 700)
    assert "or noise would swamp every pair" in said("{name: mwem}", 100)
    assert "too many" not in said("{name: mwem}", 10**9)
    assert "candidates the counts of" in said("{name: pmw, rounds: 12}", 100)


def plan_of(workspace: Workspace, *, epsilon: float, delta: float, strategy: str = "{name: mwem}") -> Plan:
    few_columns(workspace, strategy, epsilon=epsilon, delta=delta)
    return plan_run(load_spec(workspace.spec), rows=3000)


def test_what_is_spent_is_said_in_each_currency(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    amounts = plan_of(workspace, epsilon=1.0, delta=1e-9).amounts
    assert amounts.epsilon is None
    assert amounts.rho == budget_of(1.0, delta=1e-9, currency=Currency.ZCDP)[1] / AMOUNT_OF_ONE
    assert amounts.mu is not None
    assert zcdp_to_epsilon(amounts.rho, delta=1e-9) == pytest.approx(1.0)
    assert gdp_to_epsilon(amounts.mu**2, delta=1e-9) == pytest.approx(1.0)
    assert dpflow("plan", workspace.spec) == 0
    assert f"rho {figure(amounts.rho)} in zcdp, mu {amounts.mu:.6g} in gdp (charged)" in capsys.readouterr().out
    open_account(epsilon=10.0, delta=1e-9, currency=Currency.ZCDP)
    assert dpflow("plan", workspace.spec) == 0
    assert "in zcdp (charged)" in capsys.readouterr().out


def test_a_pure_promise_implies_one_in_each_currency(workspace: Workspace) -> None:
    amounts = plan_of(workspace, epsilon=1.0, delta=0.0).amounts
    assert amounts.epsilon == 1.0
    assert amounts.rho == pytest.approx(math.tanh(0.5))
    assert amounts.mu is not None
    assert 1.2 < amounts.mu < 1.25  # 2 Phi^-1(e / (1 + e))
