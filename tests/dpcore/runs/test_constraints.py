"""Whole releases under constraints: no row, sampled row, or answer contradicts them, and private rows that do are not counted."""

from contextlib import chdir
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.coverage_releases import seeded
from dpcore import synthesize
from dpcore.answers.answer import answer
from dpcore.answers.release import Release, open_release
from dpcore.answers.sample import sample
from tests.dpcore.runs.releases import open_account

SPEC = """\
dataset: stays
privacy: {unit: row, neighbours: add-remove, epsilon: 2, delta: 1e-9}
universe:
  sex: {type: categorical, values: [F, M]}
  pregnant: {type: boolean, missing: true}
  relation: {type: categorical, values: [wife, husband, own]}
  age: {type: integer, min: 0, max: 99, width: 5}
  admitted: {type: date, min: 2025-01-01, max: 2025-12-31}
  discharged: {type: date, min: 2025-01-01, max: 2026-01-31, missing: true}
constraints:
  - impossible: {sex: M, pregnant: true}
  - {if: {relation: [wife, husband]}, then: {age: {min: 15}}, violations: repair}
  - possible: {columns: [sex, relation], rows: [[F, wife], [M, husband], [[F, M], own]]}
  - {order: admitted <= discharged, violations: repair}
workload: {marginals: 2}
strategy: {name: STRATEGY}
"""


def table() -> pd.DataFrame:
    """Make a table of which one row in twenty violates a constraint."""
    rng, rows = np.random.default_rng(1), 3000
    sex = rng.choice(["F", "M"], rows)
    relation = np.where(rng.random(rows) < 0.4, "own", np.where(sex == "F", "wife", "husband"))
    admitted = pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 365, rows), "D")
    days = np.where(rng.random(rows) < 0.05, -20, rng.poisson(4, rows))
    return pd.DataFrame(
        {
            "sex": sex,
            "pregnant": rng.random(rows) < 0.05,
            "relation": relation,
            "age": rng.integers(0, 99, rows),
            "admitted": admitted,
            "discharged": admitted + pd.to_timedelta(days, "D"),
        }
    )


def violations(rows: pd.DataFrame) -> int:
    """Count rows that contradict the spec, by expressions that know nothing of how they were made."""
    wrong = (rows.sex == "M") & (rows.pregnant == True)  # noqa: E712  nulls are neither
    wrong |= rows.relation.isin(["wife", "husband"]) & (rows.age < 15)
    wrong |= (rows.relation == "wife") & (rows.sex != "F") | (rows.relation == "husband") & (rows.sex != "M")
    wrong |= rows.admitted > rows.discharged
    return int(wrong.sum())


@pytest.fixture(scope="module", params=["mwem", "adaptive"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release of the table, with the same noise in every run of the tests."""
    spec = SPEC.replace("STRATEGY", request.param)
    if request.param == "mwem":  # a dense model of a few hundred thousand cells
        spec = spec.replace("max: 2025-12-31}", "max: 2025-12-31, every: month}").replace(
            "max: 2026-01-31, missing: true}", "max: 2026-01-31, every: month, missing: true}"
        )
    with chdir(tmp_path_factory.mktemp(request.param)), seeded(3):
        Path("spec.yaml").write_text(spec, encoding="utf-8")
        open_account("stays", epsilon=100.0)
        return open_release(Path(synthesize("spec.yaml", table=table()).release).resolve())


def test_no_released_row_violates_a_constraint(made: Release) -> None:
    rows = pd.read_parquet(made.folder / "data")
    assert violations(table()) > 100
    assert len(rows) > 2500
    assert violations(rows) == 0
    assert rows.discharged.isna().any()  # the repaired ones


@pytest.mark.parametrize("where", [None, "admitted > '2025-03-10' and discharged < '2025-05-20'", "relation <> 'own'"])
def test_no_sampled_row_violates_a_constraint_or_its_own_condition(made: Release, where: str | None) -> None:
    rows = pd.concat([each.to_pandas(date_as_object=False) for each in sample(made, rows=3000, where=where, seed=1)])
    assert len(rows) == 3000
    assert violations(rows) == 0
    if where and "admitted" in where:
        assert (rows.admitted > "2025-03-10").all()
        assert (rows.discharged < "2025-05-20").all()


def test_an_impossible_count_is_zero_without_doubt(made: Release) -> None:
    never = answer(made, "select count(*) from release where sex = 'M' and pregnant")
    assert never[["count", "count_low", "count_high"]].to_numpy().tolist() == [[0.0, 0.0, 0.0]]
    some = answer(made, "select count(*) from release where sex = 'F' and pregnant")
    assert 0 < float(some["count"].iloc[0]) < float(some["count_high"].iloc[0])


def test_the_model_that_is_fitted_again_has_the_same_zeros(made: Release) -> None:
    again = made.fit(made.transcript)
    for axes in made.universe.possible:
        mask = again.possible(axes)
        assert mask is not None
        assert not again.marginal(axes)[~mask].any()
        assert not made.model.marginal(axes)[~mask].any()
