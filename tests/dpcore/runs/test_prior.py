"""A prior: a public table from which the weights of a release start, behind a gate."""

from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from benchmarks.coverage_releases import seeded
from dpcore import synthesize
from dpcore.answers.answer import answer
from dpcore.answers.release import open_release
from dpcore.errors import SpecError, UsageError
from dpcore.ledger import open_ledger
from dpcore.spec import load_spec
from tests.dpcore.runs.releases import interrupted_at, manifest_of, open_account

pytestmark = pytest.mark.usefixtures("rough_models")

SPEC = """\
dataset: people
source: {path: private.parquet}
privacy: {unit: row, neighbours: add-remove, epsilon: 0.3, delta: 1e-9}
universe:
  sex: {type: categorical, values: [F, M]}
  age: {type: integer, min: 0, max: 79, width: 10}
  job: {type: categorical, values: [a, b, c, d]}
  smoker: {type: boolean}
workload: {marginals: 2}
strategy: {name: STRATEGY}
prior: {path: public.parquet}
"""


def people(rows: int, *, seed: int, shift: float = 0.0) -> pd.DataFrame:
    """Make people whose columns depend on each other. `shift` makes the others than those of the private table."""
    rng = np.random.default_rng(seed)
    age = rng.binomial(79, 0.35 + shift, rows)
    job = np.clip((age // 12 + rng.integers(-1, 2, rows) - 1) // 1, 0, 3)
    smoker = rng.random(rows) < np.where(job == 1, 0.7, 0.1)
    sex = np.where(rng.random(rows) < np.where(job == 0, 0.8, 0.3), "F", "M")
    return pd.DataFrame({"sex": sex, "age": age, "job": np.array(list("abcd"))[job], "smoker": smoker})


def prepare(folder: Path, strategy: str, public: pd.DataFrame | None = None) -> Path:
    """Write a spec, a private and a public table, and open an account."""
    folder.mkdir(exist_ok=True)
    people(3000, seed=1).to_parquet(folder / "private.parquet", index=False)
    (people(3000, seed=2) if public is None else public).to_parquet(folder / "public.parquet", index=False)
    spec = folder / "spec.yaml"
    spec.write_text(SPEC.replace("STRATEGY", strategy), encoding="utf-8")
    with chdir(folder):
        open_account("people")
    return spec


@pytest.fixture(scope="module", params=["mwem", "adaptive"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder, and a release in it that started from a public table."""
    folder = tmp_path_factory.mktemp("prior")
    spec = prepare(folder, request.param)
    with chdir(folder), seeded(5):
        release = Path(synthesize(spec, run_id="first").release).resolve()
    return folder, release


def test_the_manifest_names_the_prior_and_says_that_it_was_used(made: tuple[Path, Path]) -> None:
    told = manifest_of(made[1])["prior"]
    assert told["name"] == "public.parquet"
    assert len(told["sha256"]) == 64
    assert told["rows"] == 3000
    assert told["used"]
    assert told["distance"] < told["uniform_distance"]
    assert told["error"] < told["uniform_error"]


def test_the_model_is_restored_from_the_release_alone(made: tuple[Path, Path]) -> None:
    release = open_release(made[1])
    assert release.start.functions
    restored, fitted = release.model.marginal((0, 2)), release.fit(release.transcript).marginal((0, 2))
    assert restored == pytest.approx(fitted, abs=1.0)
    rows = pd.read_parquet(made[1] / "data")
    counted = rows.groupby(["sex", "job"]).size().reindex(pd.MultiIndex.from_product([["F", "M"], list("abcd")]))
    # drawing whole rows moves a count by 2 or 3, and one table in twenty has a count that it moves further
    assert restored.ravel() == pytest.approx(counted.fillna(0).to_numpy(), abs=6.0)


def test_answers_have_intervals_whose_replicates_start_there_too(made: tuple[Path, Path]) -> None:
    found = answer(made[1], "select count(*) as n from release where job = 'b' and smoker")
    truth = people(3000, seed=1).query("job == 'b' and smoker").shape[0]
    assert 0 < found["n_high"][0] - found["n_low"][0] < 2000
    assert abs(found["n"][0] - truth) < 500


def test_a_changed_prior_is_refused_and_the_run_stays_as_it_is(made: tuple[Path, Path]) -> None:
    folder, _ = made
    known = (folder / "public.parquet").read_bytes()
    people(3000, seed=9).to_parquet(folder / "public.parquet", index=False)
    try:
        with chdir(folder), pytest.raises(UsageError, match=r"prior public.parquet has changed since run first"):
            synthesize(folder / "spec.yaml", run_id="first", resume=True)
    finally:
        (folder / "public.parquet").write_bytes(known)


def test_a_prior_far_from_the_columns_is_left_alone(tmp_path: Path) -> None:
    far = people(3000, seed=3).assign(job="d", smoker=True, sex="M", age=79)
    spec = prepare(tmp_path, "mwem", far)
    with chdir(tmp_path), seeded(6):
        release = Path(synthesize(spec).release).resolve()
    told = manifest_of(release)["prior"]
    assert not told["used"]
    assert not (release / "start.parquet").exists()
    assert told["error"] is None  # the gate was closed before the rounds


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda frame: frame.drop(columns="job"), "'job'"),
        (lambda frame: frame.assign(age=[[1]] * len(frame)), "type that cannot be read"),
        (None, "leads to no table"),
    ],
)
def test_a_prior_with_another_schema_is_one_sentence_and_nothing_is_spent(
    tmp_path: Path, change: Callable[[pd.DataFrame], pd.DataFrame] | None, sentence: str
) -> None:
    spec = prepare(tmp_path, "mwem", people(20, seed=4) if change is None else change(people(20, seed=4)))
    if change is None:
        (tmp_path / "public.parquet").unlink()
    with chdir(tmp_path):
        with pytest.raises(UsageError, match=sentence) as caught:
            synthesize(spec)
        with open_ledger() as ledger:
            assert not ledger.runs("people")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("the prior cannot be used: ")


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"prior": {"path": "private.parquet"}}, "private table"),
        ({"strategy": {"name": "pmw"}}, "pmw"),
        ({"prior": "newest"}, "{path: public.parquet}"),
        ({"prior": {"path": "s3://bucket/table.parquet"}}, "one file on this machine"),
        ({"prior": {"path": "public.parquet", "rows": 3}}, "{path: public.parquet}"),
    ],
)
def test_a_prior_that_cannot_be_is_refused_with_its_line(tmp_path: Path, change: dict[str, Any], where: str) -> None:
    spec = tmp_path / "spec.yaml"
    written = {**yaml.safe_load(SPEC.replace("STRATEGY", "mwem")), **change}
    spec.write_text(yaml.safe_dump(written, sort_keys=False), encoding="utf-8")
    with pytest.raises(SpecError, match=where) as caught:
        load_spec(spec)
    assert str(caught.value).startswith(f"{spec}:")
    assert "\n" not in str(caught.value)


def test_an_interrupted_run_goes_on_from_the_same_start_and_a_lost_release_is_written_again(tmp_path: Path) -> None:
    spec = prepare(tmp_path, "mwem")
    with chdir(tmp_path), seeded(7):
        with interrupted_at(commit=8):
            synthesize(spec, run_id="r")
        release = Path(synthesize(spec, run_id="r", resume=True).release).resolve()
        release.rename(tmp_path / "elsewhere")
        synthesize(spec, run_id="r", resume=True)
    for name in ("start.parquet", "uncertainty.parquet", "measurements.parquet", "data"):
        pd.testing.assert_frame_equal(pd.read_parquet(release / name), pd.read_parquet(tmp_path / "elsewhere" / name))
    assert manifest_of(release)["prior"]["used"]


@pytest.mark.parametrize("strategy", ["mwem", "adaptive"])
def test_no_row_violates_a_constraint_although_the_prior_does(tmp_path: Path, strategy: str) -> None:
    spec = prepare(tmp_path, strategy)
    spec.write_text(spec.read_text("utf-8") + "constraints: [{impossible: {job: b, smoker: true}}]\n", encoding="utf-8")
    public = pd.read_parquet(tmp_path / "public.parquet")
    assert ((public.job == "b") & public.smoker).sum() > 100
    with chdir(tmp_path):
        release = Path(synthesize(spec).release).resolve()
    rows = pd.read_parquet(release / "data")
    assert manifest_of(release)["prior"]["used"]
    assert not ((rows.job == "b") & rows.smoker).any()
    found = answer(open_release(release), "select count(*) as n from release where job = 'b' and smoker")
    assert found.n.tolist() == [0]


def test_a_folder_is_no_prior(tmp_path: Path) -> None:
    spec = prepare(tmp_path, "mwem")
    (tmp_path / "public").mkdir()
    for name in ("a", "b"):
        people(20, seed=4).to_parquet(tmp_path / "public" / f"{name}.parquet", index=False)
    spec.write_text(spec.read_text("utf-8").replace("public.parquet", "public"), encoding="utf-8")
    with chdir(tmp_path), pytest.raises(UsageError, match="it is not one file on this machine"):
        synthesize(spec)
