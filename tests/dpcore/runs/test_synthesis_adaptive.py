"""Whole runs over a universe too large to hold every cell: chosen unasked, paid like any other, resumed, replayed and told of by its groups."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from dpcore import load_spec, synthesize
from dpcore.ledger import open_ledger
from dpcore.mechanisms import from_description
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Neighbours
from dpcore.spec import DENSE_CELLS
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace
from tests.dpcore.runs.test_synthesis import check_the_books, check_the_release, resume, run_and_die, transcript_of
from tests.processes import forked

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
TWO_ROUNDS = ("workload:", "strategy: {name: adaptive, rounds: 2}\nworkload:")
# The ledger's calls in a run of two rounds, each with a moment before it and one after: reserve, lease, data version; charge and commit for
# the lost rows, for every column, and for the selection and the measurement of every round; settle.
AFTER_THE_COLUMNS = 2 * (3 + 2 * (1 + COLUMNS))
THE_END = AFTER_THE_COLUMNS + 2 * (2 * 4 + 1)


def people(rows: int) -> pd.DataFrame:
    """Make a table in which most columns go with the age, some trades are rare, and every value has a cell."""
    rng = np.random.default_rng(4)
    age = rng.integers(0, 60, rows)
    old = age > 30
    trades = rng.choice(list("abcdefgh"), rows, p=[0.5, 0.2, 0.15, 0.1, 0.02, 0.01, 0.01, 0.01])
    return pd.DataFrame(
        {
            "person": [f"p{number}" for number in rng.integers(0, max(rows // 2, 1), rows)],
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


def prepare(folder: Workspace, *changes: tuple[str, str], table: pd.DataFrame | None = None) -> None:
    """Write the table and the spec, with some of its parts changed."""
    text = SPEC
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    folder.spec.write_text(text, encoding="utf-8")
    (people(ROWS) if table is None else table).to_csv(folder.folder / "visits.csv", index=False)


def open_account(
    *,
    epsilon: float = 50.0,
    delta: float = 1e-9,
    currency: Currency | None = None,
    unit: str = "row",
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
) -> None:
    currency, cap = budget_of(epsilon, delta=delta, currency=currency)
    with open_ledger(create=True) as ledger:
        ledger.open_account(
            "visits", currency=currency, cap=cap, epsilon=epsilon, delta=delta, unit=unit, neighbours=neighbours
        )


def manifest_of(release: str) -> dict[str, object]:
    content: dict[str, object] = json.loads((Path(release) / "manifest.json").read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize(
    ("account", "changes"),
    [
        ({}, []),
        ({"currency": Currency.GDP}, []),
        ({"delta": 0.0}, [("delta: 1e-9", "delta: 0")]),
        ({"neighbours": Neighbours.REPLACE_ONE}, [("add-remove", "replace-one")]),
        ({"unit": "person"}, [("unit: row", "unit: person, max_rows_per_unit: 2")]),
    ],
    ids=["zcdp", "gdp", "pure", "replace-one", "person"],
)
def test_a_large_universe_is_released_unasked_in_every_currency_and_for_every_unit(
    workspace: Workspace, account: dict[str, object], changes: list[tuple[str, str]]
) -> None:
    prepare(workspace, *changes)
    open_account(**account)  # type: ignore[arg-type]
    declaration = load_spec(workspace.spec)
    assert declaration.spec.strategy is None
    assert declaration.universe.size > DENSE_CELLS
    assert declaration.strategy.name == "adaptive"

    outcome = synthesize(workspace.spec)

    assert 4.99 < outcome.epsilon <= 5.0
    assert 0.996 < outcome.spent / outcome.reserved <= 1.0
    check_the_books(outcome.run, crashes=0)
    check_the_release(outcome)
    with open_ledger() as ledger:
        transcript = ledger.transcript(outcome.run)
    for operation in transcript:
        assert from_description(operation.mechanism).price(Currency(outcome.currency)) <= operation.amount
    found = verify_ledger(releases=[workspace.folder])
    assert (found.runs, found.manifests, found.operations) == (1, 1, len(transcript))
    made = pq.read_table(Path(outcome.release) / "data").to_pandas()
    kept = ROWS if account.get("unit") is None else people(ROWS).groupby("person").head(2).shape[0]
    assert len(made) == outcome.rows == pytest.approx(kept, rel=0.3)
    assert tuple(made.columns) == declaration.universe.names
    assert made.age.between(0, 59).all()
    assert set(made.trade) <= set("abcdefgh")


def test_the_rows_resemble_the_table_and_a_shuffled_control_does_not(workspace: Workspace) -> None:
    prepare(workspace, ("epsilon: 5.0", "epsilon: 20.0"))
    open_account()
    made = pq.read_table(Path(synthesize(workspace.spec).release) / "data").to_pandas()
    true = people(ROWS)

    def differences(made: pd.DataFrame) -> list[float]:
        """Return how far two shares are from the table's: of smokers among the young, and of basic plans in the first trade."""
        smokers = [table[table.age <= 30].smoker.mean() for table in (made, true)]
        basic = [(table[table.trade == "a"].plan == "basic").mean() for table in (made, true)]
        return [abs(smokers[0] - smokers[1]), abs(basic[0] - basic[1])]

    assert max(differences(made)) < 0.1
    rng = np.random.default_rng(0)
    shuffled = made.assign(age=rng.permutation(made.age), plan=rng.permutation(made.plan))
    assert min(differences(shuffled)) > 0.1


def rows_of(column: pd.Series, counts: pd.DataFrame) -> np.ndarray:
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


def test_keys_join_noisy_counts_with_the_rows_they_are_of(workspace: Workspace) -> None:
    prepare(workspace)
    open_account()
    outcome = synthesize(workspace.spec)
    people_as_released = people(ROWS).replace({"city": {"elsewhere": "other"}})
    measured = pd.read_parquet(Path(outcome.release) / "measurements.parquet")
    grouped, controls = set(), 0
    for _, step in measured.groupby("step", observed=True):
        names, noise = list(step.attributes.iloc[0]), step.noise_standard_deviation.iloc[0]
        assert abs(step.noisy_count.sum() - ROWS) < 6 * noise * len(step) ** 0.5
        inside = np.ones((len(step), ROWS), dtype=bool)
        for name in names:
            inside &= rows_of(people_as_released[name], step)
            if f"{name}_low" in step and (step[f"{name}_high"] - step[f"{name}_low"]).nunique() > 1:
                grouped.add(name)
        assert (inside.sum(axis=0) == 1).all()  # every row is in one count of each measurement
        true = inside.sum(axis=1)
        assert np.abs(step.noisy_count - true).max() < 7 * noise
        controls += np.abs(step.noisy_count.to_numpy() - np.roll(true, 1)).max() > 7 * noise
    assert "age" in grouped
    assert controls >= 3  # the keys of other cells would not agree


def test_the_manifest_names_the_groups(workspace: Workspace) -> None:
    prepare(workspace)
    open_account()
    outcome = synthesize(workspace.spec)
    measured = pd.read_parquet(Path(outcome.release) / "measurements.parquet").groupby("step", observed=True)
    rounds = manifest_of(outcome.release)["rounds"]
    assert rounds
    coarser = 0
    for each in rounds:
        step = measured.get_group(f"round-{each['number']:03}/measure")
        assert len(step) == each["cells"]
        for column, name in zip(each["columns"], step.attributes.iloc[0], strict=True):
            keys = [key for key in (f"{name}_low", f"{name}_values", f"{name}_null") if key in step]
            groups = step[keys].astype(str).agg(" ".join, axis=1).nunique()
            size = load_spec(workspace.spec).universe.attributes[name].size
            assert column == (name if groups == size else f"{name} in {groups} groups")
            coarser += column.startswith("age in ")
    assert coarser


def test_a_settled_run_is_replayed_without_the_table(
    workspace: Workspace, tree_of: Callable[[Path], dict[str, bytes]]
) -> None:
    prepare(workspace, ("workload:", "strategy: {name: adaptive, rounds: 5}\nworkload:"))
    check_a_replay(workspace, tree_of)


def check_a_replay(workspace: Workspace, tree_of: Callable[[Path], dict[str, bytes]]) -> None:
    """Run, and run again without the table: with the release in place, and once it is lost."""
    open_account()
    first = synthesize(workspace.spec, run_id="r1")
    before, release = tree_of(workspace.folder / "releases"), Path(first.release)
    (workspace.folder / "visits.csv").write_text("the table is gone\n", encoding="utf-8")
    assert synthesize(workspace.spec, run_id="r1", resume=True) == first
    assert tree_of(workspace.folder / "releases") == before
    release.rename(workspace.folder / "elsewhere")
    assert synthesize(workspace.spec, run_id="r1", resume=True) == first
    for part in ("data", "measurements.parquet"):
        assert pq.read_table(release / part).equals(pq.read_table(workspace.folder / "elsewhere" / part))
    check_the_books("r1", crashes=0)


@pytest.mark.parametrize(
    "calls",
    [
        8,  # the check of lost rows is paid for
        12,  # the first column is
        AFTER_THE_COLUMNS,
        AFTER_THE_COLUMNS + 2,  # a selection is paid for
        AFTER_THE_COLUMNS + 4,  # and stored
        AFTER_THE_COLUMNS + 6,  # its measurement is paid for
        AFTER_THE_COLUMNS + 8,  # and stored
        THE_END - 1,  # the release is written, the run not settled
        THE_END,
    ],
)
def test_a_run_killed_at_a_boundary_of_the_ledger_goes_on(workspace: Workspace, calls: int) -> None:
    prepare(workspace, TWO_ROUNDS)
    open_account()
    child = forked().Process(target=run_and_die, args=(str(workspace.spec), "r1", calls))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    before = transcript_of("r1")
    outcome = resume(workspace.spec, "r1")
    after = transcript_of("r1")
    assert after[: len(before)] == before
    assert len(after) == 1 + COLUMNS + 2 * 2
    check_the_books("r1", crashes=1)
    check_the_release(outcome)
    assert verify_ledger().manifests == 1


def test_a_column_of_nulls_is_released_as_one(workspace: Workspace) -> None:
    prepare(
        workspace,
        ("epsilon: 5.0", "epsilon: 20.0"),
        TWO_ROUNDS,
        table=people(ROWS).assign(sex=None),
    )
    open_account()
    outcome = synthesize(workspace.spec)
    check_the_books(outcome.run, crashes=0)
    made = pq.read_table(Path(outcome.release) / "data").to_pandas()
    assert made.sex.isna().mean() > 0.9
    assert made.age.notna().all()
