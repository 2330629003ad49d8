"""Whole runs at the edges of what can be declared: each ends in a valid release, or is refused before anything is spent."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from dpcore import load_spec, synthesize
from dpcore.errors import DpflowError
from dpcore.privacy.accounting import Currency
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace
from tests.dpcore.runs.releases import check_the_books, check_the_release, nothing_was_bought, open_account, rows_of

pytestmark = pytest.mark.usefixtures("rough_models")

ROWS = 200


def whole(most: int, **more: object) -> dict[str, object]:
    return {"type": "integer", "min": 0, "max": most, "width": 1, **more}


def alike(columns: int, most: int, **more: object) -> dict[str, object]:
    return {f"c{number}": whole(most, **more) for number in range(columns)}


def numbers(columns: int, *, most: int, rows: int = ROWS) -> pd.DataFrame:
    """Make columns of whole numbers, of which each depends on the one before."""
    steps = np.random.default_rng(7).integers(0, 2, (rows, columns))
    return pd.DataFrame(steps.cumsum(axis=1) % (most + 1), columns=[f"c{number}" for number in range(columns)])


def declare(
    workspace: Workspace,
    universe: Mapping[str, object],
    table: pd.DataFrame,
    *,
    currency: Currency | None = None,
    epsilon: float = 5.0,
    workload: Any = 2,
    **more: object,
) -> None:
    """Write the table and a spec for it, and open an account."""
    delta = 0.0 if currency is Currency.PURE else 1e-9
    privacy = {"unit": "row", "neighbours": "add-remove", "epsilon": epsilon, "delta": delta, "lose": "100 %"}
    parts = {"dataset": "visits", "source": {"path": "visits.csv"}, "privacy": privacy, "universe": dict(universe)}
    spec = parts | {"workload": {"marginals": workload}, "strategy": {"name": "adaptive"}} | more
    workspace.spec.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    table.to_csv(workspace.folder / "visits.csv", index=False)
    open_account(epsilon=2 * max(epsilon, 1.0), delta=delta, currency=currency)


FOUR, THREE = numbers(4, most=3), numbers(3, most=2)
LITTLE = {"universe": {"c0": whole(2), "c1": whole(30), "c2": whole(4)}, "table": THREE, "workload": 3}
BEYOND = 1000 + numbers(3, most=3)
EDGES: dict[str, tuple[dict[str, Any], Callable[[pd.DataFrame], bool]]] = {
    "a marginal that does not fit the model": (  # 262 cells: a pair in full has 900
        {
            "universe": alike(4, 29),
            "table": numbers(4, most=29),
            "workload": [["c0", "c1", "c2", "c3"]],
            "epsilon": 50.0,
            "strategy": {"name": "adaptive", "max_model_mb": 0.002},
        },
        lambda made: len(made) > 100,
    ),
    "columns of one value": (
        {"universe": alike(2, 0), "table": numbers(2, most=0)},
        lambda made: (made == 0).all(axis=None),
    ),
    "a column of one value among others": (
        {
            "universe": {"c0": whole(0), **alike(4, 3), "c2": whole(0)},
            "table": FOUR.assign(c2=0),
            "workload": 3,
            "epsilon": 50.0,
        },
        lambda made: (made.c2 == 0).all() and abs(made.c1.mean() - FOUR.c1.mean()) < 0.2,
    ),
    "a single column": (
        {"universe": alike(1, 40), "table": numbers(1, most=40), "workload": [["c0"]]},
        lambda made: made.c0.between(0, 1).mean() > 0.5,
    ),
    "a single value": (
        {"universe": alike(1, 0), "table": numbers(1, most=0), "workload": 1},
        lambda made: (made.c0 == 0).all(),
    ),
    "a column of nulls": (
        {"universe": {**alike(3, 3), "c0": whole(9, missing=True)}, "table": THREE.assign(c0=None), "epsilon": 20.0},
        lambda made: len(made) > 100 and made.c0.isna().mean() > 0.9,
    ),
    "a column of nulls that drops all rows": (
        {"universe": {**alike(3, 3), "c0": whole(9, outside="drop")}, "table": THREE.assign(c0=None), "epsilon": 20.0},
        lambda made: len(made) < 100,
    ),
    "an empty table": ({"universe": alike(4, 20), "table": numbers(4, most=3, rows=0)}, lambda made: len(made) < 100),
    "no row in the universe": (
        {"universe": alike(3, 20, outside="drop"), "table": BEYOND},
        lambda made: len(made) < 100,
    ),
    "every row other": (
        {"universe": alike(3, 20, outside="other", missing=True), "table": BEYOND, "epsilon": 20.0},
        lambda made: made.isna().mean().min() > 0.8,
    ),
    "next to no budget": (
        {**LITTLE, "epsilon": 1e-6, "currency": Currency.PURE, "output": {"rows": 100}},
        lambda made: len(made) == 100,
    ),
    "next to no budget in gdp": (
        {**LITTLE, "epsilon": 4e-3, "currency": Currency.GDP, "output": {"rows": 1}},
        lambda made: len(made) == 1,
    ),
    "next to no noise": (
        {
            "universe": alike(4, 3),
            "table": FOUR,
            "epsilon": 1e4,
            "workload": 3,
            "strategy": {"name": "adaptive", "rounds": 2},
        },
        lambda made: len(made) == ROWS and (made.c0.value_counts() - FOUR.c0.value_counts()).abs().max() <= 4,
    ),
    "many columns": (
        {
            "universe": alike(40, 1),
            "table": numbers(40, most=1),
            "workload": [[f"c{one}", f"c{next_one}"] for one, next_one in pairwise(range(40))],
            "strategy": {"name": "adaptive", "rounds": 2},
        },
        lambda made: len(made.columns) == 40,
    ),
    "a column of many cells": (
        {"universe": {**alike(3, 3), "c0": whole(4999, missing=True)}, "table": THREE},
        lambda made: len(made) > 50,
    ),
    "sets of eight columns": (
        {
            "universe": alike(10, 2),
            "table": numbers(10, most=2),
            "workload": 8,
            "strategy": {"name": "adaptive", "rounds": 2},
        },
        lambda made: len(made) > 100,
    ),
}


@pytest.mark.parametrize("edge", EDGES)
def test_an_edge_is_released(workspace: Workspace, edge: str) -> None:
    declared, holds = EDGES[edge]
    declare(workspace, **declared)
    declaration = load_spec(workspace.spec)
    outcome = synthesize(workspace.spec, run_id="edge")  # the rows are drawn by the run's id
    assert 0 < outcome.epsilon <= declaration.spec.privacy.epsilon
    check_the_books(outcome.run)
    check_the_release(outcome)
    assert verify_ledger().manifests == 1
    made = rows_of(outcome)
    assert len(made) == outcome.rows >= 1
    assert tuple(made.columns) == declaration.universe.names
    measured = pd.read_parquet(Path(outcome.release) / "measurements.parquet")
    assert np.isfinite(measured.noise_standard_deviation).all()
    assert holds(made)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (
            {"universe": alike(2, 29), "table": THREE, "strategy": {"name": "adaptive", "max_model_mb": 0.0001}},
            "max_model_mb",
        ),
        ({**LITTLE, "epsilon": 1e-5}, "too small to be shared"),
        ({**LITTLE, "epsilon": 1e-6}, "too small for any run; ask for epsilon 0.00"),
    ],
    ids=["model too small for the columns", "too little for all answers", "too little for one"],
)
def test_what_cannot_be_released_is_refused_before_anything_is_spent(
    workspace: Workspace, declared: dict[str, Any], message: str
) -> None:
    declare(workspace, **declared)
    with pytest.raises(DpflowError, match=message):
        synthesize(workspace.spec)
    assert nothing_was_bought()
