"""`max_rows_per_unit: auto`: the limit follows from noisy counts and the spec alone, and everything after it is priced by it."""

import json
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dpcore import Session, answer, load_spec, open_release, synthesize
from dpcore.errors import RowsUnexpected, UsageError
from dpcore.ledger import open_ledger
from dpcore.mechanisms import from_description
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.accounting import Currency
from dpcore.release import ChosenLimit
from dpcore.reporting.outcome import Outcome
from dpcore.runs.early import LIMIT_STEP as STEP
from dpcore.runs.early import LOSSES_STEP
from dpcore.runs.planning.limits import LimitError, NoisyUnits, affordable, choice_of, chosen_limit, expected_errors
from dpcore.runs.planning.plan import plan_run
from dpcore.runs.reading import Reading
from dpcore.runs.synthesis import Synthesis
from dpcore.spec import Declaration
from dpcore.spec.release import AUTO_LIMITS
from dpcore.tables.ingest.tally import BUCKETS, EDGES
from tests.conftest import Workspace
from tests.contracts.mechanism import recorded_words
from tests.dpcore.runs.releases import dpflow, interrupted, open_account, privacy_of, transcript_of

pytestmark = pytest.mark.usefixtures("rough_models")

AUTO = ("max_rows_per_unit: 2", "max_rows_per_unit: auto")
PERSONS, TIMES = 400, (1, 1, 1, 8)
"""One of four persons has eight rows."""


@pytest.fixture
def persons(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A table in which some persons have eight rows, and the same noise in every test."""
    rng = np.random.default_rng(7)
    who = np.repeat(np.arange(PERSONS), np.resize(TIMES, PERSONS))
    age = rng.integers(0, 100, len(who))
    table = {"person": who, "sex": rng.choice(["F", "M"], len(who)), "age": age, "smoker": age > 50, "city": "north"}
    pd.DataFrame(table).to_csv(workspace.folder / "visits.csv", index=False)
    workspace.write_spec(AUTO, ("epsilon: 1.0", "epsilon: 8.0"))
    workspace.open_account()
    monkeypatch.setattr(entropy, "random_words", recorded_words(5))
    return workspace


def declared(workspace: Workspace, *changes: tuple[str, str]) -> Declaration:
    return load_spec(workspace.write_spec(AUTO, *changes))


def chosen(declaration: Declaration, *counts: int, noise: float = 1.0) -> int:
    return chosen_limit(expected_errors(declaration, units(*counts, noise=noise).rows, currency=Currency.ZCDP))


def units(*counts: int, noise: float = 1.0) -> NoisyUnits:
    """Return noisy numbers of units with 1, 2, 4, ... rows; the last ones are 0."""
    return NoisyUnits((*counts, *[0] * (len(BUCKETS) - len(counts))), noise=noise)


def test_if_everybody_has_one_row_or_nothing_stands_out_of_the_noise_the_limit_is_one(workspace: Workspace) -> None:
    declaration = declared(workspace)
    assert chosen(declaration, 5000, 0, 0, 0, 0, 0, 0, 0) == 1
    assert chosen(declaration, 9, 9, 9, 9, 9, 9, 9, 9, noise=4.0) == 1


def test_the_limit_grows_with_the_rows_of_a_person_and_with_the_budget(workspace: Workspace) -> None:
    poor, rich = (declared(workspace, ("epsilon: 1.0", f"epsilon: {epsilon}")) for epsilon in ("0.2", "8.0"))
    few, many = (20_000, 3000, 1000, 100, 0, 0, 0, 0), (3000, 0, 0, 300, 0, 0, 100, 100)
    found = [[chosen(declaration, *counts) for counts in (few, many)] for declaration in (poor, rich)]
    assert found == [[1, 1], [4, 64]]


def test_of_equal_errors_the_smaller_limit_is_taken() -> None:
    errors = [LimitError(limit, error) for limit, error in ((4, 0.1), (2, 0.1), (1, 0.2))]
    assert chosen_limit(errors) == 2


def test_a_bucket_in_which_there_is_only_noise_does_not_count() -> None:
    assert units(100, 11, noise=4.0).rows(64) == 100
    assert units(100, 12, noise=4.0).rows(64) == 100 + 12 * 2
    assert units(100, 0, 0, 0, 0, 0, 0, 23, noise=4.0).rows(64) == 100  # above an empty one it takes more
    assert units(100, 0, 0, 0, 0, 0, 0, 24, noise=4.0).rows(64) == 100 + 24 * 64


def test_noise_alone_hardly_ever_makes_units_of_thousands_of_rows() -> None:
    """If every bucket that stands out by three deviations counted, one release in fifty would have many times its rows."""
    rng = np.random.default_rng(0)
    found = [
        NoisyUnits((5000, *rng.normal(0.0, 10.0, len(BUCKETS) - 1).round().astype(int).tolist()), 10.0)
        for _ in range(3000)
    ]
    assert max(each.rows(10**6) for each in found) < 5000 + 2 * 5 * 10.0 * 2
    assert sum(max(each.counts[2:]) >= 30 for each in found) > 10


def test_the_lost_share_is_one_that_units_of_many_rows_cannot_fall_below(workspace: Workspace) -> None:
    declaration = declared(workspace)

    def lost(*counts: int) -> ChosenLimit:
        return choice_of(declaration, units(*counts), currency=Currency.ZCDP, spent=0.01)

    many, few = lost(*[0] * (len(BUCKETS) - 1), 100), lost(900, 100)
    assert many.lost == pytest.approx(1 - many.rows / (EDGES[-1] + 1))  # if each had the fewest rows of its bucket
    assert many.lost_at_least
    assert not few.lost_at_least


def test_limits_that_the_budget_cannot_pay_are_not_offered(workspace: Workspace) -> None:
    rows = lambda _: 1000.0  # noqa: E731  whatever the limit is
    usual, small = declared(workspace), declared(workspace, ("epsilon: 1.0", "epsilon: 0.1"))
    offered = [
        [limit for limit, _ in affordable(declaration, currency=Currency.GDP, rows=rows)]
        for declaration in (usual, small)
    ]
    assert offered == [list(AUTO_LIMITS), [1, 2, 4, 8, 16, 32]]


def test_a_run_buys_the_histogram_first_for_its_share_and_prices_all_else_by_its_choice(persons: Workspace) -> None:
    outcome = synthesize(persons.spec, run_id="r")
    first, losses, *others = transcript_of("r")
    assert [first.step, losses.step] == [STEP, LOSSES_STEP]
    for of_one_row in (first, losses):  # of each person
        assert from_description(of_one_row.mechanism).sensitivity.l1 == 1  # type: ignore[attr-defined]
    with open_ledger() as ledger:
        run = ledger.run("r")
    for bought, share in ((first, 0.04), (losses, 0.01)):
        assert 0.99 * share * run.reserved < bought.amount <= share * run.reserved
    stated = privacy_of(outcome)
    limit = stated["max_rows_per_unit"]
    assert limit == 4
    by_norm = {"l1": limit**2, "l2_squared": limit**2, "linf": limit}
    for each in others:
        moved = each.mechanism.get("sensitivity") or {name: each.mechanism[name] for name in by_norm}
        assert moved == (limit if each.step.endswith("/select") else by_norm)
    assert f"of which as many count as keep the norm of its counts within {limit}" in stated["guarantee"]
    units = stated["chosen_limit"]["units"]
    assert (stated["chosen_limit"]["rows"], stated["chosen_limit"]["of"]) == (limit, list(AUTO_LIMITS))
    assert abs(units["1"] - 300) < 50
    assert abs(units["8"] - 100) < 50
    assert outcome.rows == pytest.approx(1100, rel=0.2)
    assert 0.999 < outcome.spent / outcome.reserved <= 1.0
    assert "4, chosen by a noisy histogram" in (Path(outcome.release) / "card.html").read_text()


def test_a_run_that_dies_after_its_choice_goes_on_with_the_same_limit(
    persons: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Synthesis, "check_rows", interrupted)
        with pytest.raises(KeyboardInterrupt):
            synthesize(persons.spec, run_id="r")
    (bought,) = transcript_of("r")
    monkeypatch.setattr(Reading, "tally", interrupted)
    outcome = synthesize(persons.spec, run_id="r", resume=True)
    assert transcript_of("r")[0] == bought
    assert privacy_of(outcome)["max_rows_per_unit"] == 4


def test_the_total_and_what_is_found_in_the_data_cost_their_share_of_the_whole(persons: Workspace) -> None:
    finding = "{type: categorical, discover: {most: 4, length: 5, alphabet: north, share: 0.2}, outside: other}"
    persons.write_spec(
        AUTO,
        ("epsilon: 1.0", "expect_rows: [300, 3000], epsilon: 8.0"),
        ("{type: categorical, values: [north, south, west], outside: other}", finding),
    )
    synthesize(persons.spec, run_id="r")
    amounts = {each.step: each.amount for each in transcript_of("r")}
    with open_ledger() as ledger:
        reserved = ledger.run("r").reserved
    assert list(amounts)[:3] == [STEP, LOSSES_STEP, "expected-total"]
    assert amounts[LOSSES_STEP] == pytest.approx(reserved / 100, rel=0.01)
    assert amounts["expected-total"] == pytest.approx(reserved / 50, rel=0.01)
    found = sum(amount for step, amount in amounts.items() if step.startswith("discover/"))
    assert found == pytest.approx(0.2 * reserved, rel=0.01)


def test_a_retry_of_a_run_that_its_total_has_stopped_says_the_same(persons: Workspace) -> None:
    persons.write_spec(AUTO, ("epsilon: 1.0", "expect_rows: [9000, 90000], epsilon: 8.0"))
    said = []
    for resume in (False, True):
        with pytest.raises(RowsUnexpected) as stopped:
            synthesize(persons.spec, run_id="r", resume=resume)
        said.append(str(stopped.value))
    assert said[0] == said[1]
    assert "at most 4 rows of each `person` count" in said[0]


def test_a_table_from_python_and_blocks_have_their_rows_per_person_counted_too(persons: Workspace) -> None:
    table = pd.read_csv("visits.csv").assign(day="2024-02-01")
    outside = table.assign(day="2020-01-01")  # in no block that is read: as if it was not there
    persons.write_spec(
        AUTO,
        ("epsilon: 1.0", "epsilon: 8.0"),
        ("dataset: visits", "dataset: monthly"),
        ("universe:", "blocks: {column: day, every: month, start: 2024-01-01}\nuniverse:"),
    )
    open_account("monthly", epsilon=10.0, unit="person", blocks_by="month of day")
    rows = pa.Table.from_pandas(pd.concat([table, *[outside] * 20]), preserve_index=False)
    units = privacy_of(synthesize(persons.spec, table=rows, as_of=date(2024, 5, 1)))["chosen_limit"]["units"]
    assert abs(units["1"] - 300) < 50
    assert abs(units["128"]) < 50


def test_an_epsilon_too_small_for_the_histogram_is_refused_before_anything_is_read(persons: Workspace) -> None:
    persons.write_spec(AUTO, ("epsilon: 1.0", "epsilon: 1e-5"))
    with pytest.raises(UsageError, match="too small"):
        synthesize(persons.spec, run_id="r")
    with open_ledger() as ledger:
        assert ledger.runs("visits") == ()


def test_a_run_that_chose_its_limit_is_warned_of_by_the_rows_that_it_keeps(
    persons: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noisy histogram tells how many rows count, so none of the plan's assumptions is needed."""
    seen: list[int | None] = []

    def warning(_: Declaration, *, counted: int | None, **_others: object) -> None:
        seen.append(counted)

    monkeypatch.setattr("dpcore.runs.synthesis.warning_before", warning)
    outcome = synthesize(persons.spec, run_id="r")
    (counted,) = seen
    assert counted is not None
    assert counted == pytest.approx(PERSONS * (3 * 1 + 4) / 4, rel=0.2)
    assert outcome.rows == pytest.approx(len(pd.read_csv("visits.csv")), rel=0.1)


def test_plan_says_how_the_limit_is_chosen_and_what_each_costs(
    persons: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_run(load_spec(persons.spec), rows=900)
    assert plan.limits is not None
    assert [each.rows_per_unit for each in plan.limits.costs] == list(AUTO_LIMITS)
    errors = [each.error for each in plan.limits.costs]
    assert errors == sorted(errors)
    assert errors[1] == pytest.approx(
        2 * errors[0] / 1.9, rel=0.01
    )  # it keeps 1.9 times the rows, if everybody has ten
    assert dpflow("plan", persons.spec) == 0
    said = capsys.readouterr().out
    assert "limit      1 to 64 rows of each person" in said
    assert "for 4 % of the budget" in said
    assert dpflow("plan", persons.spec, "--error", 0.5, "--on", "sex") == 0
    assert "limit      chosen by the run: " in capsys.readouterr().out
    assert dpflow("check", persons.spec) == 0
    assert "limit      1 to 64 rows of each person" in capsys.readouterr().out


def test_a_plan_is_for_the_limit_that_the_rule_of_a_run_would_choose(workspace: Workspace) -> None:
    """A plan that is for a limit of 1, whatever the number of rows of a person, states neither the noise nor the rows of a run."""
    declaration = declared(workspace)
    planned = {units: plan_run(declaration, rows=400_000, units=units) for units in (400_000, 15_666, None)}
    limits = [plan.limits and plan.limits.likely for plan in planned.values()]
    assert limits[0] == 1
    assert limits[1] in {16, 32, 64}  # 26 rows of each person
    assert limits[2] in {8, 16, 32}  # ten are assumed
    one = plan_run(declared(workspace, ("max_rows_per_unit: auto", "max_rows_per_unit: 1")), rows=400_000, units=15_666)
    assert planned[15_666].first[0].noise > 15 * one.first[0].noise
    assert f"at most {limits[2]} rows of each person count (the limit that a run would" in str(
        planned[None].kept.sentence
    )
    assert "ten rows of each are assumed" in str(planned[None].kept.sentence)


def test_a_plan_after_a_release_is_for_the_limit_that_it_chose(persons: Workspace) -> None:
    chosen_before = privacy_of(synthesize(persons.spec, run_id="r"))["max_rows_per_unit"]
    plan = plan_run(load_spec(persons.spec), rows=None)
    assert plan.limits is not None
    assert plan.limits.likely == chosen_before > 1
    assert plan.kept.rows == plan.rows
    assert str(plan.kept.sentence).endswith("(the limit that the newest release chose)")


def test_a_plan_with_a_declared_limit_says_nothing_of_a_choice(workspace: Workspace) -> None:
    assert plan_run(load_spec(workspace.spec), rows=900).limits is None


# A release that describes all rows


@pytest.fixture
def different(persons: Workspace) -> Workspace:
    """Persons with many rows smoke, and the others do not: kept rows say little of how many rows smoke."""
    rng = np.random.default_rng(8)
    who = np.repeat(np.arange(4 * PERSONS), np.resize((*[1] * 7, 200), 4 * PERSONS))
    smokes = np.resize((*[0.1] * 7, 0.9), 4 * PERSONS)[who] > rng.random(len(who))
    table = {"person": who, "sex": "F", "age": rng.integers(0, 100, len(who)), "smoker": smokes, "city": "north"}
    pd.DataFrame(table).to_csv(persons.folder / "visits.csv", index=False)
    return persons


def smokers(outcome: Outcome) -> tuple[float, int]:
    """Return the share of rows that smoke in a release, and its rows."""
    rows = pd.read_parquet(Path(outcome.release) / "data")
    return float(rows["smoker"].mean()), len(rows)


@pytest.mark.parametrize("strategy", ["mwem", "adaptive"])
def test_a_release_has_as_many_rows_of_each_kind_as_the_table_although_few_rows_of_a_person_count(
    different: Workspace, strategy: str
) -> None:
    different.write_spec(AUTO, ("epsilon: 1.0", "epsilon: 8.0"), ("{name: mwem, rounds: 4}", f"{{name: {strategy}}}"))
    table = pd.read_csv("visits.csv")
    outcome = synthesize(different.spec, run_id="r")
    share, rows = smokers(outcome)
    if strategy == "mwem":  # the control: kept rows of everybody say too little of those with many
        kept = table.groupby("person").head(2)
        assert abs(kept["smoker"].mean() - table["smoker"].mean()) > 0.2
    assert share == pytest.approx(table["smoker"].mean(), abs=0.1)  # the rows of those with many are uncertain
    assert rows == pytest.approx(len(table), rel=5 * open_release(outcome.release).sizes_deviation)
    assert "about all rows" in (Path(outcome.release) / "card.html").read_text()


def test_answers_are_about_all_rows_with_intervals_that_know_how_uncertain_their_number_is(
    different: Workspace,
) -> None:
    outcome = synthesize(different.spec, run_id="r")
    release = open_release(outcome.release)
    table = answer(release, "select count(*) from visits", level=0.9999)
    low, high = (float(table[end].to_numpy()[0]) for end in ("count_low", "count_high"))
    assert 0 < release.sizes_deviation < 0.2
    assert high - low > 3 * release.sizes_deviation * outcome.rows
    assert low < len(pd.read_csv("visits.csv")) < high
    assert release.limit is None


def test_a_declared_limit_persons_and_weights_describe_the_kept_rows(different: Workspace) -> None:
    table = pd.read_csv("visits.csv")
    different.write_spec(("epsilon: 1.0", "epsilon: 8.0"))
    share, rows = smokers(synthesize(different.spec))
    kept = table.groupby("person").head(2)
    assert share == pytest.approx(kept["smoker"].mean(), abs=0.05)
    assert rows == pytest.approx(len(kept), rel=0.1)
    for change in (
        ("universe:", "persons: {rows_of: person}\nuniverse:"),
        ("{name: mwem, rounds: 4}", "{name: pmw, rounds: 3, alpha: 0.1}"),
        ("max_rows_per_unit: auto", "max_rows_per_unit: auto, weight: {column: visits, max: 3}"),
    ):
        assert not load_spec(different.write_spec(AUTO, change)).corrects
    assert load_spec(different.write_spec(AUTO)).corrects


def test_a_resumed_run_and_one_that_goes_on_from_it_correct_by_the_same_classes(
    different: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Synthesis, "sample", interrupted)
        with pytest.raises(KeyboardInterrupt):
            synthesize(different.spec, run_id="r")
    resumed = synthesize(different.spec, run_id="r", resume=True)
    measured = open_release(resumed.release).measurements
    assert all(measurement.each is not None for measurement in measured)
    again = synthesize(different.spec, run_id="r")  # replayed
    assert again.release == resumed.release


def test_errors_of_all_rows_cannot_be_bought_and_the_private_report_compares_all_rows(
    different: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = synthesize(different.spec)
    capsys.readouterr()
    assert dpflow("report", outcome.release, different.spec, "--epsilon", 1.0) != 0
    assert "describes all rows" in capsys.readouterr().err
    assert dpflow("report", outcome.release, different.spec, "--json") == 0
    written = Path(json.loads(capsys.readouterr().out)["private_data"])
    assert str(len(pd.read_csv("visits.csv"))) in written.read_text()


def test_a_session_counts_kept_rows_and_does_not_mix_them_with_all(different: Workspace) -> None:
    with Session.open(different.spec, epsilon=4.0) as session:
        released = session.release()
    assert open_release(released["release"]).describes_all is False
