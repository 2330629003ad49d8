"""Whole releases with a learned function and a sum: every row obeys both, on every path that makes rows, and both are paid for."""

import json
from contextlib import chdir
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.coverage_releases import seeded
from dpcore import open_online, synthesize
from dpcore.answers.answer import answer
from dpcore.answers.release import Release, open_release
from dpcore.answers.sample import sample
from dpcore.errors import UsageError
from dpcore.ledger import open_ledger
from dpcore.runs.expected_rows import NoisyTotal, small_total_warning
from dpcore.runs.planning import plan_run
from dpcore.spec import load_spec
from dpcore.universe.dependencies import Depends
from tests.dpcore.runs.releases import open_account

pytestmark = pytest.mark.usefixtures("rough_models")

CITIES = {"Boston": "MA", "Salem": "MA", "Austin": "TX", "Dallas": "TX", "Reno": "NV"}
SPEC = """\
dataset: pay
privacy: {unit: row, neighbours: add-remove, epsilon: 2, delta: 1e-9}
universe:
  state: {type: categorical, values: [MA, NV, TX], missing: true}
  city: {type: categorical, values: [Boston, Salem, Austin, Dallas, Reno], outside: other}
  wages: {type: integer, min: 0, max: 39}
  bonus: {type: integer, min: 0, max: 29, width: 5}
  total: {type: integer, min: 0, max: 68}
constraints:
  - {depends: city -> state, share: 0.1}
  - {sum: total = wages + bonus, violations: repair}
workload: {marginals: 2}
strategy: {name: adaptive}
"""


def table() -> pd.DataFrame:
    """Make a table of which some rows contradict the function, and one in twenty does not add up."""
    rng, rows = np.random.default_rng(1), 3000
    city = rng.choice([*CITIES, "Nome"], rows, p=[0.3, 0.25, 0.2, 0.15, 0.05, 0.05])
    state = np.array([CITIES.get(each, "MA") for each in city], dtype=object)
    wrong = rng.random(rows)
    state[wrong < 0.005] = "NV"
    state[wrong > 0.95] = None
    wages, bonus = rng.integers(5, 40, rows), rng.poisson(8, rows).clip(0, 29)
    total = wages + bonus + 20 * (rng.random(rows) < 0.05)
    return pd.DataFrame({"state": state, "city": city, "wages": wages, "bonus": bonus, "total": total})


def violations(rows: pd.DataFrame) -> int:
    """Count what contradicts the spec, by expressions that know nothing of how rows were made."""
    known = rows[rows.city.notna() & (rows.city != "other") & rows.state.notna()]
    several = known.astype(str).groupby("city").state.nunique().gt(1).sum()
    return int(several + (rows.wages + rows.bonus != rows.total).sum())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release of the table, with the same noise in every run of the tests."""
    with chdir(tmp_path_factory.mktemp("dependencies")), seeded(3):
        Path("spec.yaml").write_text(SPEC, encoding="utf-8")
        open_account("pay", epsilon=100.0)
        return open_release(Path(synthesize("spec.yaml", table=table()).release).resolve())


def test_every_released_row_obeys_one_function_and_adds_up(made: Release) -> None:
    rows = pd.read_parquet(made.folder / "data")
    assert violations(table()) > 100
    assert len(rows) > 2700
    assert violations(rows) == 0
    assert rows.state.isna().any()
    known = rows[rows.city.isin(list(CITIES)) & rows.state.notna()]
    assert (known.state.astype(str) == known.city.astype(str).map(CITIES)).all()  # and it is the true function


@pytest.mark.parametrize("where", [None, "wages >= 13 and total < 37", "state = 'TX' or bonus = 7"])
def test_every_sampled_row_obeys_them_too(made: Release, where: str | None) -> None:
    rows = pd.concat([each.to_pandas() for each in sample(made, rows=2000, where=where, seed=1)])
    assert len(rows) == 2000
    assert violations(rows) == 0
    if where and "wages" in where:
        assert ((rows.wages >= 13) & (rows.total < 37)).all()


def test_the_manifest_and_the_card_tell_the_function_and_its_price(made: Release) -> None:
    (told,) = json.loads((made.folder / "manifest.json").read_text(encoding="utf-8"))["dependencies"]
    assert (told["given"], told["determined"], told["rows"]) == (["city"], "state", list(map(list, CITIES.items())))
    assert told["spent"] == pytest.approx(0.1, rel=1e-6)
    assert told["clear"] == 5
    assert "Every row of this release obeys one function, city → state." in (made.folder / "card.html").read_text(
        encoding="utf-8"
    )
    (restored,) = (each for each in made.universe.constraints if isinstance(each, Depends))
    assert restored.codes == (0, 0, 2, 2, 1)


def test_what_the_function_excludes_is_zero_without_doubt(made: Release) -> None:
    never = answer(made, "select count(*) from release where city = 'Boston' and state = 'TX'")
    assert never[["count", "count_low", "count_high"]].to_numpy().tolist() == [[0.0, 0.0, 0.0]]


def test_the_run_charges_the_counts_of_the_function_before_those_of_the_model_and_replays_them(made: Release) -> None:
    with chdir(made.folder.parents[2]), open_ledger() as ledger:
        steps = [each.step for each in ledger.transcript(made.manifest["privacy"]["run"])]
        bought = steps.index("depends/1-01-state")
        assert steps[0] == "rows-lost"
        assert all(step.startswith("discover/") for step in steps[1:bought])
        assert steps[bought + 1].startswith("one-way/")


def test_a_plan_tells_what_the_function_costs(made: Release) -> None:
    with chdir(made.folder.parents[2]):
        declaration = load_spec("spec.yaml", with_table=True)
        (planned,) = plan_run(declaration, rows=3000).depends
    (told,) = made.manifest["dependencies"]
    assert (planned.words, planned.cells, planned.share) == ("city -> state", 24, 0.1)
    assert planned.noise == pytest.approx(told["noise"])


def test_a_small_total_may_come_from_constraints_that_drop_rows_but_not_from_what_is_learned_or_repaired(
    tmp_path: Path,
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC, encoding="utf-8")
    told = small_total_warning(load_spec(path, with_table=True), NoisyTotal(0.0, noise=10.0))
    assert told is not None
    assert "contradicts a constraint" not in told
    path.write_text(SPEC.replace("violations: repair", "violations: drop"), encoding="utf-8")
    told = small_total_warning(load_spec(path, with_table=True), NoisyTotal(0.0, noise=10.0))
    assert "a row is dropped if it contradicts a constraint on " in str(told)


def test_an_online_session_refuses_constraints(made: Release) -> None:
    path = made.folder.parents[2] / "spec.yaml"
    wanted = pytest.raises(
        UsageError, match="an online session learns a model without constraints; remove `constraints`"
    )
    with wanted, open_online(path, alpha=0.1, beta=0.05, queries=100, rows=10_000, table=table()):
        pass
