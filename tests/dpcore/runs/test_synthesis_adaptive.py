"""Whole runs over a universe too large to hold every cell: chosen unasked, with weights, a target and ranges, and told of by its groups."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpcore import load_spec, synthesize
from dpcore.ledger import open_ledger
from dpcore.spec import DENSE_CELLS
from dpcore.strategies import Adaptive, strategy_for
from tests.conftest import Workspace
from tests.dpcore.runs.releases import (
    check_the_books,
    check_the_release,
    gone_on,
    killed,
    manifest_of,
    open_account,
    rows_of,
    steps_of,
    transcript_of,
)

ROWS = 1200
SPEC = """\
dataset: visits
source: {path: visits.csv}
privacy: {unit: row, neighbours: add-remove, epsilon: 5.0, delta: 1e-9}
universe:
  sex: {type: categorical, values: [F, M], missing: true}
  age: {type: integer, min: 0, max: 59, width: 1}
  smoker: {type: boolean}
  city: {type: categorical, values: [north, south, west], outside: other}
  grade: {type: integer, min: 0, max: 9}
  income: {type: number, min: 0, max: 100, bins: 10}
  children: {type: integer, min: 0, max: 5}
  trade: {type: categorical, values: [a, b, c, d, e, f, g, h]}
  month: {type: integer, min: 1, max: 12}
  plan: {type: categorical, values: [basic, more, all]}
workload:
  marginals:
    - [age, smoker]
    - [age, grade]
    - [age, income]
    - [age, children, sex]
    - [trade, plan]
    - [city, month]
"""
COLUMNS = 10
ASKED = (
    ("bins: 10", "bins: 200"),
    ("workload:\n", "workload:\n  target: age\n  ranges: [income, month]\n"),
    ("- [trade, plan]", "- {columns: [trade, plan], weight: 5}"),
)
FOUR_ROUNDS = ("workload:", "strategy: {name: adaptive, rounds: 4}\nworkload:")
# The ledger's calls in a run, each with a moment before it and one after: reserve, lease, data version; charge and commit for the lost rows
# and for every column.
AFTER_THE_COLUMNS = 2 * (3 + 2 * (1 + COLUMNS))


def people(rows: int) -> pd.DataFrame:
    """Make a table in which most columns go with the age, some trades are rare, and every value has a cell."""
    rng = np.random.default_rng(4)
    age = rng.integers(0, 60, rows)
    old = age > 30
    trades = rng.choice(list("abcdefgh"), rows, p=[0.5, 0.2, 0.15, 0.1, 0.02, 0.01, 0.01, 0.01])
    return pd.DataFrame(
        {
            "sex": rng.choice(np.array(["F", "M", None], dtype=object), rows, p=[0.5, 0.4, 0.1]),
            "age": age,
            "smoker": rng.random(rows) < np.where(old, 0.1, 0.6),
            "city": rng.choice(["north", "south", "west", "elsewhere"], rows, p=[0.5, 0.3, 0.1, 0.1]),
            "grade": np.clip(age // 6 + rng.integers(-1, 2, rows), 0, 9),
            "income": np.clip(rng.normal(20 + age, 10), 0, 99.9),
            "children": np.where(old, rng.integers(0, 6, rows), 0),
            "trade": trades,
            "month": rng.integers(1, 13, rows),
            "plan": np.where(trades == "a", "basic", rng.choice(["basic", "more", "all"], rows)),
        }
    )


def prepare(workspace: Workspace, *changes: tuple[str, str], table: pd.DataFrame | None = None) -> Path:
    """Write the table and the spec, with some of its parts changed, and open an account."""
    text = SPEC
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    workspace.spec.write_text(text, encoding="utf-8")
    (people(ROWS) if table is None else table).to_csv(workspace.folder / "visits.csv", index=False)
    open_account()
    return workspace.spec


def rows_counted(column: pd.Series, counts: pd.DataFrame) -> np.ndarray:
    """Return which rows each noisy count is of, by the keys of a column."""
    name, inside = column.name, np.zeros((len(counts), len(column)), dtype=bool)
    if f"{name}_low" in counts:
        low, high = (counts[f"{name}_{end}"].to_numpy(dtype=float)[:, None] for end in ("low", "high"))
        inside |= (low <= column.to_numpy()) & (column.to_numpy() < high)
    else:
        inside |= np.array([column.isin(list(values)) for values in counts[f"{name}_values"]])
    if f"{name}_null" in counts:
        inside |= counts[f"{name}_null"].to_numpy(dtype=bool)[:, None] & column.isna().to_numpy()
    return inside


def check_keys(measured: pd.DataFrame) -> set[str]:
    """Check that the keys of noisy counts say of which rows they are. Return the columns that were measured in groups."""
    people_as_released = people(ROWS).replace({"city": {"elsewhere": "other"}})
    grouped, controls = set(), 0
    for _, step in measured.groupby("step", observed=True):
        noise = step.noise_standard_deviation.iloc[0]
        assert abs(step.noisy_count.sum() - ROWS) < 6 * noise * len(step) ** 0.5
        inside = np.ones((len(step), ROWS), dtype=bool)
        for name in step.attributes.iloc[0]:
            inside &= rows_counted(people_as_released[name], step)
            if f"{name}_low" in step and (step[f"{name}_high"] - step[f"{name}_low"]).nunique() > 1:
                grouped.add(name)
        assert (inside.sum(axis=0) == 1).all()  # every row is in one count of each measurement
        true = inside.sum(axis=1)
        assert np.abs(step.noisy_count - true).max() < 7 * noise
        controls += np.abs(step.noisy_count.to_numpy() - np.roll(true, 1)).max() > 7 * noise
    assert controls >= 3  # the keys of other cells would not agree
    return grouped


def check_rounds(release: str, spec: Path) -> None:
    """Check that the manifest names the groups in which each round has measured its columns."""
    measured = pd.read_parquet(Path(release) / "measurements.parquet").groupby("step", observed=True)
    rounds, universe = manifest_of(release)["rounds"], load_spec(spec).universe
    for each in rounds:
        step = measured.get_group(f"round-{each['number']:03}/measure")
        assert len(step) == each["cells"]
        for column, name in zip(each["columns"], step.attributes.iloc[0], strict=True):
            keys = [key for key in (f"{name}_low", f"{name}_values", f"{name}_null") if key in step]
            groups = step[keys].astype(str).agg(" ".join, axis=1).nunique()
            assert column == (name if groups == universe.attributes[name].size else f"{name} in {groups} groups")
    assert any(column.startswith("age in ") for each in rounds for column in each["columns"])


def test_a_large_universe_is_released_unasked_by_groups_that_the_release_tells(workspace: Workspace) -> None:
    spec = prepare(workspace)
    declaration = load_spec(spec)
    assert declaration.spec.strategy is None
    assert declaration.universe.size > DENSE_CELLS
    assert isinstance(strategy_for(declaration), Adaptive)
    outcome = synthesize(spec)
    check_the_books(outcome.run)
    check_the_release(outcome)
    assert "age" in check_keys(pd.read_parquet(Path(outcome.release) / "measurements.parquet"))
    check_rounds(outcome.release, spec)
    made = rows_of(outcome)
    assert len(made) == outcome.rows == pytest.approx(ROWS, rel=0.3)
    assert tuple(made.columns) == declaration.universe.names


def test_the_rows_resemble_the_table_and_a_shuffled_control_does_not(workspace: Workspace) -> None:
    made, true = rows_of(synthesize(prepare(workspace, ("epsilon: 5.0", "epsilon: 20.0"), FOUR_ROUNDS))), people(ROWS)

    def difference(made: pd.DataFrame) -> float:
        """Return how far the share of basic plans in the first trade is from the table's."""
        basic = [(table[table.trade == "a"].plan == "basic").mean() for table in (made, true)]
        return abs(basic[0] - basic[1])

    assert difference(made) < 0.1
    assert difference(made.assign(plan=np.random.default_rng(0).permutation(made.plan))) > 0.1


@pytest.mark.usefixtures("rough")
def test_weights_target_and_ranges_are_paid_for_and_the_release_holds_the_levels(workspace: Workspace) -> None:
    outcome = synthesize(prepare(workspace, *ASKED, FOUR_ROUNDS))
    check_the_books(outcome.run)
    check_the_release(outcome)
    levels = [step for step in steps_of(outcome.run) if step.startswith("one-way/")][COLUMNS:]
    assert levels
    assert all(step.startswith("one-way/06-income-") for step in levels)  # twelve months have no coarser level
    selected = [row for row in transcript_of(outcome.run) if row.step.endswith("/select")]
    assert [row.mechanism["sensitivity"] for row in selected[:2]] == [1, 1]  # pairs with the target, which weigh 1
    assert {row.mechanism["sensitivity"] for row in selected} <= {1, 5}
    manifest = manifest_of(outcome)
    assert (manifest["strategy"], manifest["spec"]["workload"]["ranges"]) == ("adaptive", ["income", "month"])
    assert all(any("age" in column for column in each["columns"]) for each in manifest["rounds"][:2])
    measured = pd.read_parquet(Path(outcome.release) / "measurements.parquet").groupby("step", observed=True)
    for step in levels:
        level, groups = measured.get_group(step), step.rsplit("-", 1)[1]
        assert len(level) == int(groups)
        edges = [0.0, *level.income_high]  # where they lie depends on noise; that they cover the range does not
        assert list(level.income_low) == edges[:-1]
        assert edges[-1] == 100.0
        assert edges == sorted(set(edges))


def test_mwem_takes_weights_and_a_target(workspace: Workspace) -> None:
    workspace.write_spec(
        ("marginals: 2", "marginals: [[sex, age], [sex, smoker], {columns: [age, city], weight: 9}], target: sex")
    )
    workspace.open_account()
    outcome = synthesize(workspace.spec)
    check_the_books(outcome.run)
    chosen = [row.mechanism["sensitivity"] for row in transcript_of(outcome.run) if row.step.endswith("select")]
    assert chosen == [2, 2, 18, 18]  # two pairs with the target first, then the heavy one, then all again


@pytest.mark.usefixtures("rough")
@pytest.mark.parametrize(
    "calls",
    [
        AFTER_THE_COLUMNS + 2,  # a level is paid for
        AFTER_THE_COLUMNS + 4,  # and stored
        AFTER_THE_COLUMNS + 2 * 7 + 1,  # in the rounds
    ],
)
def test_a_run_killed_among_its_levels_and_rounds_goes_on(workspace: Workspace, calls: int) -> None:
    spec = prepare(workspace, *ASKED, FOUR_ROUNDS)
    assert killed(spec, "r1", calls=calls)
    gone_on(spec, "r1")
    bought = steps_of("r1")
    assert sum(step.startswith("round-") for step in bought) == 2 * 4


def test_a_run_that_was_interrupted_late_has_about_as_many_rounds_as_declared(workspace: Workspace) -> None:
    rounds = 9  # without a declared number, how many follow depends on each run's noise
    spec = prepare(workspace, ("epsilon: 5.0", "epsilon: 0.7"), (FOUR_ROUNDS[0], FOUR_ROUNDS[1].replace("4", "9")))
    assert killed(spec, "late", calls=AFTER_THE_COLUMNS + 2 * 4 * (rounds - 1))
    assert rounds - 1 <= len(manifest_of(gone_on(spec, "late"))["rounds"]) <= rounds
    with open_ledger() as ledger:
        assert ledger.run("late").state == "settled"
