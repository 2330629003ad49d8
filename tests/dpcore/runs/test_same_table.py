"""`prior: {release: latest, unchanged: true}`: a release to which the measurements of an earlier one of the same table count, too."""

import shutil
from contextlib import chdir
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.coverage_releases import seeded
from dpcore import Session, answer, open_release, synthesize
from dpcore.errors import ReleaseDamaged, SpecError, TableChanged, UsageError
from dpcore.ledger import RunState, open_ledger
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.resolutions import Resolutions
from dpcore.models.fitting import Transcript
from dpcore.runs.planning.plan import plan_run
from dpcore.spec import load_spec
from dpcore.strategies.earlier import SUFFIX, Earlier
from dpcore.tables.reading.encoding import encode_rows
from tests.campaign import CAMPAIGN, often
from tests.dpcore.runs.releases import manifest_of, open_account
from tests.dpcore.runs.test_earlier_release import in_ledger, interrupt, make, runs_of
from tests.dpcore.runs.test_prior import people, prepare

UNCHANGED = "prior: {release: latest, unchanged: true}"
FINE = ("age: {type: integer, min: 0, max: 79, width: 10}", "age: {type: integer, min: 0, max: 79}")


def ready(folder: Path, strategy: str) -> Path:
    """Write a spec whose table is unchanged, with a column at full resolution, and a private table; open an account."""
    spec = prepare(folder, strategy)
    (folder / "public.parquet").unlink()
    text = spec.read_text("utf-8").replace("prior: {path: public.parquet}", UNCHANGED).replace(*FINE)
    spec.write_text(text, encoding="utf-8")
    return spec


@pytest.fixture(scope="module", params=["mwem", "adaptive"])
def two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A spec and two releases of it, the second with the measurements of the first."""
    spec = ready(tmp_path_factory.mktemp("unchanged"), request.param)
    return spec, make(spec, "first", seed=15), make(spec, "second", seed=16)


@pytest.fixture
def copied(two: tuple[Path, Path, Path], tmp_path: Path) -> Path:
    shutil.copytree(two[0].parent, tmp_path / "copy", symlinks=True)
    return tmp_path / "copy" / "spec.yaml"


def error(release: Path, *, rows: int = 3000) -> float:
    """Return the mean distance of the model's pairs from the true ones."""
    opened, table = open_release(release), people(rows, seed=1)
    codes = encode_rows(opened.universe, pa.RecordBatch.from_pandas(table, preserve_index=False))[0]
    found = []
    for axes in combinations(range(len(codes)), 2):
        true = np.zeros([opened.universe.shape[axis] for axis in axes])
        np.add.at(true, tuple(codes[axis] for axis in axes), 1)
        found.append(np.abs(opened.model.marginal(axes) - true).sum() / rows)
    return float(np.mean(found))


def test_the_measurements_of_the_first_count_for_the_second_and_are_named_apart(two: tuple[Path, Path, Path]) -> None:
    _, first, second = two
    before, after = open_release(first), open_release(second)
    taken = {each.step: each for each in after.measurements if each.step.endswith(SUFFIX)}
    assert {step.removesuffix(SUFFIX) for step in taken} == {each.step for each in before.measurements}
    for each in before.measurements:
        again = taken[each.step + SUFFIX]
        assert (again.axes, again.noise) == (each.axes, each.noise)
        assert np.array_equal(again.values, each.values)
    assert len(after.measurements) > len(taken)
    told = manifest_of(second)["prior"]
    assert (told["used"], told["unchanged"], told["measurements"]) == (True, True, len(taken))
    assert manifest_of(first)["prior"]["used"] is False  # there was nothing to go on from


def test_cells_are_taken_over_and_nothing_is_spent_on_finding_them(two: tuple[Path, Path, Path]) -> None:
    spec, first, second = two
    one, other = open_release(first), open_release(second)
    assert other.universe == one.universe
    assert other.resolutions.shape[: len(one.resolutions.shape)] == one.resolutions.shape
    assert manifest_of(second)["discovered"] == manifest_of(first)["discovered"]
    with chdir(spec.parent), open_ledger() as ledger:
        steps = {run: [each.step for each in ledger.transcript(run)] for run in ("first", "second")}
    assert any(step.startswith("discover/") for step in steps["first"])
    assert not any(step.startswith("discover/") for step in steps["second"])


@pytest.mark.campaign
@pytest.mark.parametrize("strategy", ["mwem", *(["adaptive"] if CAMPAIGN else [])])
def test_second_releases_are_more_accurate(strategy: str, tmp_path: Path) -> None:
    """Their errors are 0.7 of the first ones', and 1.0 without the earlier measurements; single pairs of releases vary by 0.2."""
    errors: dict[str, float] = {"first": 0.0, "second": 0.0}
    for number in range(often(3, campaign=6)):
        spec = ready(tmp_path / str(number), strategy)
        for place, run in enumerate(errors):
            errors[run] += error(make(spec, run, seed=100 + 2 * number + place))
    assert errors["second"] < 0.9 * errors["first"]


def test_intervals_of_the_second_are_narrower(two: tuple[Path, Path, Path]) -> None:
    _, first, second = two
    query = "select job, count(*) as n from release group by job"
    widths = [float((each["n_high"] - each["n_low"]).mean()) for each in (answer(first, query), answer(second, query))]
    assert widths[1] < 0.9 * widths[0]


def test_a_third_release_goes_on_from_the_second_and_a_session_from_the_third(copied: Path) -> None:
    third = make(copied, "third", seed=7)
    steps = [each.step for each in open_release(third).measurements]
    assert len(steps) == len(set(steps))
    assert any(step.endswith(2 * SUFFIX) for step in steps)
    assert runs_of(third) == ["first", "second", "third"]
    with chdir(copied.parent), seeded(8), Session.open(copied, epsilon=0.1, session="s") as session:
        assert session.knowledge.first.manifest["prior"]["run"] == "third"
        assert session.ask("select count(*) as n from release", within=500).price.free


def test_an_interrupted_run_ends_with_the_same_release(copied: Path) -> None:
    interrupt(copied, "third")
    assert in_ledger(copied.parent)["third"].spent > 0
    resumed = make(copied, "third", seed=7, resume=True)
    assert manifest_of(resumed)["prior"]["run"] == "second"
    again = open_release(resumed).measurements
    with chdir(copied.parent), open_ledger() as ledger:
        stored = {each.step: each.output for each in ledger.transcript("third")}
    for each in again:
        if each.step in stored:
            own = Measurement.from_bytes(stored[each.step] or b"", step=each.step)
            assert np.array_equal(own.values, each.values)


def changed(folder: Path, strategy: str, rows: int) -> Path:
    """Make a release, and then change the table: to its first rows, or to more."""
    spec = ready(folder, strategy)
    make(spec, "first", seed=5)
    people(rows, seed=1).to_parquet(spec.parent / "private.parquet", index=False)
    return spec


@pytest.mark.parametrize("strategy", ["mwem", "adaptive"])
def test_a_false_declaration_is_found_by_noisy_counts_and_ends_the_run(tmp_path: Path, strategy: str) -> None:
    spec = changed(tmp_path / "false", strategy, rows=1500)
    for _ in range(2):  # a retry of an ended run does not begin again
        with pytest.raises(UsageError) as stopped:
            make(spec, "second", seed=6)
    assert "ended" in str(stopped.value)
    ended = in_ledger(spec.parent)["second"]
    assert ended.state is RunState.SETTLED
    assert ended.release is None
    assert 0 < ended.spent < ended.reserved
    with pytest.raises(
        TableChanged, match=r"noisy counts of its columns contradict that; run third was ended.*remove `unchanged`"
    ):
        make(spec, "third", seed=7)


def test_without_the_check_a_false_declaration_would_make_a_wrong_release(tmp_path: Path) -> None:
    spec = changed(tmp_path / "unchecked", "mwem", rows=1500)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Earlier, "agrees_with", lambda *_: True)
        wrong = make(spec, "second", seed=6)
    spec.write_text(spec.read_text("utf-8").replace(UNCHANGED, ""), encoding="utf-8")
    assert error(wrong, rows=1500) > 1.5 * error(make(spec, "third", seed=6), rows=1500)


def test_the_number_of_rows_tells_of_changes_that_no_column_shows() -> None:
    one, more = Measurement("one-way/01-a", (0,), None, np.full(400, 50), 5.0), np.full(400, 53)
    known = Earlier.of(Resolutions([400]), Transcript((one,), ()), rows_per_unit=0)
    assert known.agrees_with([replace(one, values=np.full(400, 51))])
    assert not known.agrees_with([replace(one, values=more)])  # by 1,200 rows, where 141 are a standard deviation
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Earlier, "_has_as_many_rows", lambda *_: True)
        assert known.agrees_with([replace(one, values=more)])


def earlier(counts: list[int], *, noise: float, rows_per_unit: int = 0) -> Earlier:
    measured = Measurement("one-way/01-a", (0,), None, np.array(counts), noise)
    return Earlier.of(Resolutions([len(counts)]), Transcript((measured,), ()), rows_per_unit=rows_per_unit)


def test_the_check_follows_the_noise() -> None:
    rng, agreed = np.random.default_rng(1), []
    for _ in range(200):
        one, other = (np.rint(1000 + rng.laplace(0, 20, 30)).astype(np.int64) for _ in range(2))
        noise = 20 * np.sqrt(2)
        own = Measurement("one-way/01-a", (0,), None, other, noise)
        agreed.append(earlier(one.tolist(), noise=noise).agrees_with([own]))
    assert all(agreed)
    own = Measurement("one-way/01-a", (0,), None, 1000 + 200 * (-1) ** np.arange(30), 28.0)
    assert not earlier([1000] * 30, noise=28.0).agrees_with([own])
    assert earlier([1000] * 30, noise=28.0, rows_per_unit=20).agrees_with([own])  # rows of units are chosen at random
    assert earlier([1000] * 30, noise=28.0).agrees_with([])  # nothing to compare


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("values: [a, b, c, d]", "values: [a, b, c, d, e]"), "was made with another `universe.job` than the spec has"),
        (
            ("strategy: {name: mwem}", "strategy: {name: adaptive}"),
            "was made by strategy mwem, and the spec has adaptive",
        ),
    ],
)
def test_a_release_that_does_not_fit_is_refused_and_nothing_is_spent(
    tmp_path: Path, change: tuple[str, str], problem: str
) -> None:
    spec = ready(tmp_path / "other", "mwem")
    make(spec, "first")
    spec.write_text(spec.read_text("utf-8").replace(*change), encoding="utf-8")
    with pytest.raises(UsageError, match=problem):
        make(spec, "second")
    assert set(in_ledger(spec.parent)) == {"first"}


def test_words_about_a_column_are_no_difference(copied: Path) -> None:
    text = copied.read_text("utf-8").replace(
        "smoker: {type: boolean}", "smoker: {type: boolean, description: smokes daily}"
    )
    copied.write_text(text, encoding="utf-8")
    assert manifest_of(make(copied, "third", seed=7))["prior"]["run"] == "second"


def test_without_a_release_to_go_on_from_an_account_that_has_made_some_is_refused(copied: Path) -> None:
    shutil.move(copied.parent / "releases", copied.parent / "elsewhere")
    with pytest.raises(ReleaseDamaged, match=r"it is missing; restore it from a backup .*--resume second"):
        make(copied, "third", seed=7)
    with chdir(copied.parent), open_ledger() as ledger:
        for run in ("first", "second"):
            ledger.withdraw(run, reason="wrong", keep=None)
    with pytest.raises(UsageError, match=r"no release of account people is in .*: they were withdrawn"):
        make(copied, "third", seed=7)
    assert set(in_ledger(copied.parent)) == {"first", "second"}


def test_a_release_of_a_session_is_refused(tmp_path: Path) -> None:
    spec = ready(tmp_path / "session", "mwem")
    make(spec, "first")
    with chdir(spec.parent), seeded(8), Session.open(spec, epsilon=0.1, session="s") as session:
        session.release()
    with pytest.raises(UsageError, match=r"publishes the answers of a session.*remove `unchanged`"):
        make(spec, "second")


@pytest.mark.parametrize(
    ("added", "problem"),
    [
        ("prior: {path: public.parquet, unchanged: true}", "is about an earlier release of the same table"),
        (f"{UNCHANGED}\nconstraints: [{{depends: job -> sex}}]", "cannot be used with `depends`"),
        (f"{UNCHANGED}\nblocks: {{column: day, by: month}}", "the spec has `blocks`"),
    ],
)
def test_what_contradicts_an_unchanged_table_is_a_mistake_of_the_spec(tmp_path: Path, added: str, problem: str) -> None:
    spec = ready(tmp_path / "mistake", "mwem")
    text = spec.read_text("utf-8").replace(UNCHANGED, added)
    if "day" in added:
        text = text.replace("universe:\n", "universe:\n  day: {type: date, min: 2024-01-01, max: 2024-12-31}\n")
    spec.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=problem):
        load_spec(spec)


def test_a_chosen_limit_is_taken_over(tmp_path: Path) -> None:
    spec = ready(tmp_path / "limit", "mwem")
    table = people(3000, seed=1).assign(person=np.arange(3000) // 3)
    table.to_parquet(spec.parent / "private.parquet", index=False)
    text = spec.read_text("utf-8").replace("unit: row", "unit: person, max_rows_per_unit: auto")
    spec.write_text(text.replace("dataset: people", "dataset: persons"), encoding="utf-8")
    with chdir(spec.parent), seeded(5):
        open_account("persons", unit="person")
        first = Path(synthesize(spec, run_id="first").release).resolve()
        second = Path(synthesize(spec, run_id="second").release).resolve()
        with open_ledger() as ledger:
            steps = [each.step for each in ledger.transcript("second")]
    one, other = (manifest_of(each)["privacy"] for each in (first, second))
    assert other["max_rows_per_unit"] == one["max_rows_per_unit"]
    assert other["chosen_limit"] == one["chosen_limit"]
    assert not any(step.startswith("rows-per-unit") for step in steps)
    assert manifest_of(second)["prior"]["used"] is True


def test_who_pays_for_a_second_release_of_a_spec_is_told_how_both_could_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = ready(tmp_path / "twice", "mwem")
    spec.write_text(spec.read_text("utf-8").replace(UNCHANGED, ""), encoding="utf-8")
    hint = f"`{UNCHANGED}` in the spec lets both count"
    with caplog.at_level("INFO", logger="dpcore.progress"):
        first = make(spec, "first")
        assert hint not in caplog.text
        make(spec, "second")
        assert f"release {first.name} was made from this spec before" in caplog.text
        assert hint in caplog.text


def test_a_plan_says_that_the_earlier_measurements_count_and_finds_nothing_anew(two: tuple[Path, Path, Path]) -> None:
    spec, _, second = two
    with chdir(spec.parent):
        plan = plan_run(load_spec(spec), rows=None)
    assert plan.prior is not None
    assert f"{second.name}: its measurements count beside those planned here" in plan.prior
    assert not plan.discovers
    spec.with_name("first.yaml").write_text(spec.read_text("utf-8").replace(UNCHANGED, ""), encoding="utf-8")
    with chdir(spec.parent):
        assert plan_run(load_spec(spec.with_name("first.yaml")), rows=None).discovers
