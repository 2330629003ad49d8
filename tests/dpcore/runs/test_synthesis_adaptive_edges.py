"""Whole runs at the edges of what can be declared: each ends in a valid release, or is refused before anything is spent."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml

from dpcore import load_spec, synthesize
from dpcore.errors import DpflowError
from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import Currency
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace
from tests.dpcore.runs.test_synthesis import check_the_books, check_the_release
from tests.dpcore.runs.test_synthesis_adaptive import open_account

ROWS = 200


def whole(most: int, **more: object) -> dict[str, object]:
    return {"type": "integer", "min": 0, "max": most, "width": 1, **more}


def numbers(columns: int, *, most: int, rows: int = ROWS) -> pd.DataFrame:
    """Make columns of whole numbers, of which each depends on the one before."""
    rng = np.random.default_rng(7)
    steps = rng.integers(0, 2, (rows, columns))
    return pd.DataFrame(steps.cumsum(axis=1) % (most + 1), columns=[f"c{number}" for number in range(columns)])


def declare(
    workspace: Workspace,
    universe: Mapping[str, object],
    table: pd.DataFrame,
    *,
    workload: int | Sequence[Sequence[str]] = 2,
    epsilon: float = 5.0,
    delta: float = 1e-9,
    lose: str = "20 %",
    **more: object,
) -> None:
    """Write the table and a spec for it."""
    spec = {
        "dataset": "visits",
        "source": {"path": "visits.csv"},
        "privacy": {"unit": "row", "neighbours": "add-remove", "epsilon": epsilon, "delta": delta, "lose": lose},
        "universe": dict(universe),
        "workload": {"marginals": workload},
        "strategy": {"name": "adaptive"},
    } | more
    workspace.spec.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    table.to_csv(workspace.folder / "visits.csv", index=False)


def released(workspace: Workspace, *, currency: Currency | None = None) -> pd.DataFrame:
    """Run, check all that holds for every release, and return its rows."""
    declaration = load_spec(workspace.spec)
    privacy, universe = declaration.spec.privacy, declaration.universe
    open_account(epsilon=2 * max(privacy.epsilon, 1.0), delta=privacy.delta, currency=currency)
    outcome = synthesize(workspace.spec)
    assert 0 < outcome.spent <= outcome.reserved
    assert outcome.epsilon <= privacy.epsilon
    check_the_books(outcome.run, crashes=0)
    check_the_release(outcome)
    assert verify_ledger().manifests == 1
    made = pq.read_table(Path(outcome.release) / "data")
    assert made.num_rows == outcome.rows >= 1
    assert tuple(made.column_names) == universe.names
    for name, attribute in universe.attributes.items():
        codes = attribute.encode(made[name])
        assert ((codes >= 0) & (codes < attribute.size)).all()
    measured = pd.read_parquet(Path(outcome.release) / "measurements.parquet")
    assert np.isfinite(measured.noise_standard_deviation).all()
    return made.to_pandas()


def refusal(workspace: Workspace) -> str:
    """Run, and check that nothing was reserved or spent before it was refused."""
    privacy = load_spec(workspace.spec).spec.privacy
    open_account(epsilon=2 * max(privacy.epsilon, 1.0), delta=privacy.delta)
    with pytest.raises(DpflowError) as refused:
        synthesize(workspace.spec)
    with open_ledger() as ledger:
        balance = ledger.balance("visits")
    assert (balance.spent, balance.reserved) == (0, 0)
    return str(refused.value)


def test_a_marginal_that_does_not_fit_the_model_is_released_from_its_parts(workspace: Workspace) -> None:
    universe = {f"c{number}": whole(29) for number in range(4)}
    declare(
        workspace,
        universe,
        numbers(4, most=29),
        workload=[list(universe)],
        epsilon=50.0,
        strategy={"name": "adaptive", "max_model_mb": 0.002},  # 262 cells: a pair in full has 900
    )
    released(workspace)


def test_a_model_that_cannot_hold_the_columns_is_refused_before_anything_is_spent(workspace: Workspace) -> None:
    strategy = {"name": "adaptive", "max_model_mb": 0.0001}
    declare(workspace, {"c0": whole(29), "c1": whole(29)}, numbers(2, most=29), strategy=strategy)
    assert "max_model_mb" in refusal(workspace)


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_columns_of_one_value_are_released_as_they_are(workspace: Workspace, columns: int) -> None:
    universe = {f"c{number}": whole(0) for number in range(columns)}
    declare(workspace, universe, numbers(columns, most=0), workload=min(columns, 2))
    assert (released(workspace) == 0).all(axis=None)


def test_a_column_of_one_value_among_others(workspace: Workspace) -> None:
    universe = {"c0": whole(0), "c1": whole(3), "c2": whole(0), "c3": whole(3)}
    table = numbers(4, most=3).assign(c0=0, c2=0)
    declare(workspace, universe, table, workload=3, epsilon=50.0)
    made = released(workspace)
    assert (made[["c0", "c2"]] == 0).all(axis=None)
    assert abs(made.c1.mean() - table.c1.mean()) < 0.2


@pytest.mark.parametrize("workload", [1, [["c0"]]])
@pytest.mark.parametrize("most", [1, 40])
def test_a_single_column(workspace: Workspace, workload: int | list[list[str]], most: int) -> None:
    declare(workspace, {"c0": whole(most)}, numbers(1, most=most), workload=workload)
    assert released(workspace).c0.between(0, 1).mean() > 0.5


@pytest.mark.parametrize("missing", [False, True])
def test_an_empty_column_is_missing_where_that_is_declared_and_drops_all_rows_elsewhere(
    workspace: Workspace, missing: bool
) -> None:
    universe = {"c0": whole(9, missing=missing, outside="drop"), "c1": whole(3), "c2": whole(3)}
    declare(workspace, universe, numbers(3, most=3).assign(c0=None), epsilon=20.0, lose="100 %")
    made = released(workspace)
    assert len(made) > 100 if missing else len(made) < 100
    assert not missing or made.c0.isna().mean() > 0.9


def test_an_empty_table(workspace: Workspace) -> None:
    declare(workspace, {f"c{number}": whole(20) for number in range(4)}, numbers(4, most=3, rows=0))
    assert len(released(workspace)) < 100


def test_a_table_of_which_no_row_is_in_the_universe(workspace: Workspace) -> None:
    universe = {f"c{number}": whole(20, outside="drop") for number in range(3)}
    declare(workspace, universe, 1000 + numbers(3, most=3), lose="100 %")
    assert len(released(workspace)) < 100


def test_a_table_of_which_every_row_is_other(workspace: Workspace) -> None:
    universe = {f"c{number}": whole(20, outside="other", missing=True) for number in range(3)}
    declare(workspace, universe, 1000 + numbers(3, most=3), epsilon=20.0)
    assert released(workspace).isna().mean().min() > 0.8


@pytest.mark.parametrize(
    ("epsilon", "currency"),
    [
        (1e-3, Currency.PURE),
        (1e-6, Currency.PURE),
        (1e-3, Currency.ZCDP),
        (3e-4, Currency.ZCDP),
        (4e-3, Currency.GDP),
    ],
)
def test_a_budget_that_pays_for_next_to_nothing(workspace: Workspace, epsilon: float, currency: Currency) -> None:
    delta = 0.0 if currency is Currency.PURE else 1e-9
    universe = {"c0": whole(2), "c1": whole(30), "c2": whole(4)}
    declare(
        workspace,
        universe,
        numbers(3, most=2),
        workload=3,
        epsilon=epsilon,
        delta=delta,
        output={"rows": 100},
    )
    released(workspace, currency=currency)


@pytest.mark.parametrize(
    ("epsilon", "message"), [(1e-5, "too small to be shared"), (1e-6, "too small for any run; ask for epsilon 0.00")]
)
def test_a_budget_that_pays_for_nothing_is_refused_before_anything_is_spent(
    workspace: Workspace, epsilon: float, message: str
) -> None:
    universe = {"c0": whole(2), "c1": whole(30), "c2": whole(4)}
    declare(workspace, universe, numbers(3, most=2), workload=3, epsilon=epsilon)
    assert message in refusal(workspace)


@pytest.mark.parametrize("currency", [Currency.PURE, Currency.ZCDP, Currency.GDP])
def test_a_budget_that_leaves_next_to_no_noise(workspace: Workspace, currency: Currency) -> None:
    delta = 0.0 if currency is Currency.PURE else 1e-9
    table = numbers(4, most=3)
    declare(workspace, {f"c{number}": whole(3) for number in range(4)}, table, workload=3, epsilon=1e4, delta=delta)
    made = released(workspace, currency=currency)
    assert len(made) == ROWS
    pairs = [
        frame.groupby(["c0", "c1"]).size().reindex(pd.MultiIndex.from_product([range(4)] * 2), fill_value=0)
        for frame in (made, table)
    ]
    assert (pairs[0] - pairs[1]).abs().max() <= 4


@pytest.mark.parametrize("table_rows", [1, ROWS])
def test_a_single_row_is_released(workspace: Workspace, table_rows: int) -> None:
    declare(
        workspace,
        {f"c{number}": whole(3) for number in range(4)},
        numbers(4, most=3, rows=table_rows),
        output={"rows": 1},
    )
    assert len(released(workspace)) == 1


def test_two_hundred_columns_of_two_values(workspace: Workspace) -> None:
    columns = [f"c{number}" for number in range(200)]
    declare(
        workspace,
        {name: whole(1) for name in columns},
        numbers(200, most=1),
        workload=[list(pair) for pair in pairwise(columns)],
        epsilon=20.0,
        strategy={"name": "adaptive", "rounds": 8},
    )
    released(workspace)


def test_a_column_of_five_thousand_cells(workspace: Workspace) -> None:
    universe = {"c0": whole(4999, missing=True), "c1": whole(3), "c2": whole(3)}
    declare(workspace, universe, numbers(3, most=3), workload=3)
    released(workspace)


def test_a_workload_of_all_sets_of_eight_out_of_ten_columns(workspace: Workspace) -> None:
    declare(workspace, {f"c{number}": whole(2) for number in range(10)}, numbers(10, most=2), workload=8)
    released(workspace)
