"""The ratings of a plan are true: a release has the noise that they state, and a run warns of them before it charges anything."""

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from itertools import combinations
from pathlib import Path

import pytest

from dpcore import load_spec
from dpcore.marginals.workload import Axes
from dpcore.privacy.accounting import Currency
from dpcore.reporting.ratings import Rating, rate
from dpcore.runs.planning.plan import Plan, plan_run
from dpcore.runs.planning.rated import MOST_WRONG, RatedColumn, expected_error
from dpcore.runs.synthesis import Synthesis
from dpcore.spec import Declaration
from dpcore.strategies import Strategy
from tests.conftest import Workspace
from tests.dpcore.runs.planning.test_plan import ALL_PAIRS, declare, few_columns, measured_in_a_run
from tests.dpcore.runs.releases import dpflow, learned, open_account
from tests.dpcore.runs.test_synthesis_adaptive import ROWS

pytestmark = pytest.mark.usefixtures("rough_models")

ROOT = Path(__file__).parents[4]


def recorded_noise(strategy: Strategy, *, combined: bool) -> dict[Axes, float]:
    """Return the noise of each pair's counts as recorded: of all measurements that contain the pair, or of the best one.

    Versions with merged cells do not count.
    """
    columns, shape = strategy.resolutions.columns, strategy.resolutions.shape
    precisions: dict[Axes, list[float]] = {}
    for measured in strategy.measurements:
        if max(measured.axes) < columns:
            for pair in combinations(measured.axes, 2):
                summed = math.prod(shape[axis] for axis in measured.axes if axis not in pair)
                precisions.setdefault(pair, []).append(1 / (summed * measured.noise**2))
    return {pair: 1 / math.sqrt(sum(found) if combined else max(found)) for pair, found in precisions.items()}


def check_pairs(plan: Plan, strategy: Strategy, *, measured: str, rel: float = 1e-3) -> None:
    """Check that every pair that was measured has its planned noise, and that what must be measured was."""
    recorded, compared = recorded_noise(strategy, combined=measured == "yes"), 0
    names = [column.name for column in plan.ratings.columns]
    for pair in plan.ratings.pairs:
        axes = tuple(names.index(name) for name in pair.columns)
        assert (pair.measured, pair.rating) == (measured, rate(pair.error))
        if measured == "yes" or axes in recorded:
            assert pair.noise == pytest.approx(recorded[axes], rel=rel), pair
            compared += 1
    assert compared


@pytest.mark.parametrize(
    ("strategy", "epsilon", "currency", "order", "measured"),
    [
        ("{name: mwem}", 3.0, Currency.GDP, 3, "yes"),  # triples, which contain the pairs
        ("{name: mwem, rounds: 2}", 1.0, Currency.ZCDP, 2, "perhaps"),
    ],
)
def test_a_pair_is_measured_with_the_noise_of_its_plan(
    workspace: Workspace, strategy: str, *, epsilon: float, currency: Currency, order: int, measured: str
) -> None:
    delta = 0.0 if currency is Currency.PURE else 1e-9
    few_columns(workspace, strategy, epsilon=epsilon, delta=delta)
    text = workspace.spec.read_text(encoding="utf-8").replace("marginals: 2", f"marginals: {order}")
    workspace.spec.write_text(text, encoding="utf-8")
    open_account(epsilon=100.0, delta=delta, currency=currency)
    plan = plan_run(load_spec(workspace.spec), rows=3000)
    check_pairs(plan, measured_in_a_run(workspace.spec), measured=measured)


def test_a_pair_is_measured_about_as_noisily_as_planned_if_the_run_decides_how_often(workspace: Workspace) -> None:
    few_columns(workspace, "{name: adaptive}", epsilon=30.0)
    text = workspace.spec.read_text(encoding="utf-8").replace("marginals: 2", "marginals: 3")
    workspace.spec.write_text(text, encoding="utf-8")
    open_account(epsilon=100.0, delta=1e-9, currency=Currency.GDP)
    plan = plan_run(load_spec(workspace.spec), rows=3000)
    check_pairs(plan, measured_in_a_run(workspace.spec), measured="yes", rel=0.3)


def test_a_pair_within_one_of_several_marginals_has_a_noise_between_theirs(workspace: Workspace) -> None:
    few_columns(workspace, "{name: adaptive, rounds: 3}", epsilon=3.0)
    text = workspace.spec.read_text(encoding="utf-8").replace("marginals: 2", "marginals: 3")
    workspace.spec.write_text(text, encoding="utf-8")
    open_account(epsilon=100.0, delta=1e-9, currency=Currency.GDP)
    plan = plan_run(load_spec(workspace.spec), rows=3000)
    recorded, sizes = recorded_noise(measured_in_a_run(workspace.spec), combined=False), (3, 4, 2, 4)
    names = [column.name for column in plan.ratings.columns]
    assert plan.rounds is not None
    assert recorded
    for pair in plan.ratings.pairs:
        axes = tuple(names.index(name) for name in pair.columns)
        others = [math.sqrt(size) * plan.rounds.noise for axis, size in enumerate(sizes) if axis not in axes]
        assert pair.measured == "perhaps"
        for noise in (pair.noise, recorded.get(axes, pair.noise)):
            assert 0.999 * min(others) < noise < 1.001 * max(others)


def test_the_sample_has_the_noise_of_its_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPFLOW_LEDGER_URL", raising=False)
    program = [sys.executable, ROOT / "data" / "clinic_visits.py", "--out", "clinic-visits.csv"]
    subprocess.run(program, check=True, capture_output=True)
    text = (ROOT / "data" / "clinic-visits.yaml").read_text(encoding="utf-8").replace("../releases", "releases")
    text = text.replace("# rounds: 12", "rounds: 12")  # else large pairs are measured in groups of their cells
    Path("spec.yaml").write_text(text, encoding="utf-8")
    open_account("clinic-visits", epsilon=10.0, unit="patient_id")
    plan = plan_run(load_spec("spec.yaml"), rows=20_000, units=9000)
    strategy = measured_in_a_run(Path("spec.yaml"))
    # the cells of `cost` are found in the data; the plan only knows about how many
    check_pairs(plan, strategy, measured="perhaps", rel=0.03)
    bought = {each.axes: each.noise for each in strategy.measurements if each.step.startswith("one-way/")}
    assert len(bought) == 7
    for (axis,), noise in bought.items():
        assert plan.first[axis].noise == pytest.approx(noise, rel=0.03)


def test_a_plan_by_block_has_the_noise_of_a_run_on_these_blocks(workspace: Workspace) -> None:
    """The column of the blocks' days has fewer cells in a run on few blocks, so that the other columns get more."""
    days = "  day: {type: date, min: 2024-01-01, max: 2024-12-31, every: week}\n"
    few_columns(workspace, "{name: mwem}", epsilon=1.0)
    text = workspace.spec.read_text(encoding="utf-8").replace("workload:", f"{days}workload:")
    window = "blocks: {column: day, every: month, start: 2024-01-01, window: last 2}\n"
    workspace.spec.write_text(text + window, encoding="utf-8")
    table = (workspace.folder / "visits.csv").read_text(encoding="utf-8").splitlines()
    dated = [
        f"{table[0]},day",
        *(f"{line},2024-{2 + row % 2:02}-{1 + row % 28:02}" for row, line in enumerate(table[1:])),
    ]
    (workspace.folder / "visits.csv").write_text("\n".join(dated), encoding="utf-8")
    as_of = date(2024, 4, 1)
    unopened = plan_run(load_spec(workspace.spec), rows=3000, as_of=as_of)
    open_account(epsilon=10.0, currency=Currency.GDP, blocks_by="month of day")
    plan = plan_run(load_spec(workspace.spec), rows=3000, as_of=as_of)
    assert plan.blocks == unopened.blocks == ("2024-02", "2024-03")
    assert plan.ratings == unopened.ratings
    assert column(plan, "day").cells == 9
    check_pairs(plan, measured_in_a_run(workspace.spec, as_of=as_of), measured="yes")


def column(plan: Plan, name: str) -> RatedColumn:
    (found,) = (each for each in plan.ratings.columns if each.name == name)
    return found


CODES = "  code: {type: categorical, values_from: codes.txt}\n"


def with_codes(workspace: Workspace, number: int, *, strategy: str = "{name: adaptive}", epsilon: float = 1.0) -> None:
    """Write the spec of ten columns with one of many codes, and all its pairs in the workload."""
    declare(workspace, strategy, epsilon=epsilon)
    (workspace.folder / "codes.txt").write_text("\n".join(f"c{each}" for each in range(number)), encoding="utf-8")
    text = workspace.spec.read_text(encoding="utf-8").replace("workload:", f"{CODES}workload:")
    workspace.spec.write_text(text, encoding="utf-8")


def test_a_column_of_many_values_is_told_with_what_to_do(workspace: Workspace) -> None:
    with_codes(workspace, 1290)
    plan = plan_run(load_spec(workspace.spec), rows=100_000)
    code, sex = column(plan, "code"), column(plan, "sex")
    assert (code.pairs_rating, sex.rating, sex.id, code.id) == (Rating.FAIR, Rating.GOOD, None, None)
    assert "; expect an error of " in code.sentence
    assert code.sentence.endswith(" in pairs; group it or raise epsilon")
    assert "raise" not in sex.sentence
    (pair,) = (each for each in plan.ratings.pairs if each.columns == ("age", "code"))
    assert pair.cells == 60 * 1290
    assert pair.sentence.endswith(", with merged cells")
    total = plan.ratings
    assert (total.good, total.fair, total.poor) == tuple(
        sum(each.rating is rating for each in total.pairs) for rating in Rating
    )


def test_a_column_whose_rare_values_drown_in_noise_is_not_called_good_alone(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 40 countries one may have nearly all rows: then the column is good by its rows, and most of its values are not."""
    with_codes(workspace, 40)
    plan = plan_run(load_spec(workspace.spec), rows=48_000)
    code, sex = column(plan, "code"), column(plan, "sex")
    (noise,) = (each.noise for each in plan.first if each.name == "code")
    assert (code.rating, code.middle_rating) == (Rating.GOOD, Rating.FAIR)
    assert code.middle_error == pytest.approx(10 * code.error)
    assert code.drowned == math.ceil(noise * math.sqrt(2 / math.pi) / 0.5)
    rare = f"frequent values are good; values with fewer than about {code.drowned} rows drown in noise"
    assert code.sentence == f"code has 40 values: {rare}"
    assert (sex.middle_error, sex.middle_rating) == (sex.error, Rating.GOOD)  # two values, neither of them rare
    assert "drown" not in sex.sentence
    assert dpflow("plan", workspace.spec, "--rows", 48_000) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert rare in told
    assert f" {noise:.1f} ✓ good " in told
    assert "drown" not in column(plan_run(load_spec(workspace.spec), rows=10**7), "code").sentence


FINE = "  cost: {type: integer, min: 0, max: 9999}\n  weight: {type: number, min: 0, max: 500, step: 0.1}\n"


def test_columns_at_full_resolution_are_rated_better_the_more_rows_there_are(workspace: Workspace) -> None:
    """Of few rows a run finds few cells, whose counts are accurate. They tell the values apart as little as the noise lets them."""
    declare(workspace, "{name: adaptive}", epsilon=1.0)
    text = workspace.spec.read_text(encoding="utf-8").replace("workload:", f"{FINE}workload:")
    workspace.spec.write_text(text, encoding="utf-8")
    declaration = load_spec(workspace.spec)
    plans = [plan_run(declaration, rows=rows) for rows in (500, 2_000, 10_000, 100_000, 20_000_000)]
    costs = [column(plan, "cost") for plan in plans]
    assert (costs[0].cells, costs[0].rating) == (1, Rating.POOR)
    assert costs[0].sentence.startswith("cost has about 1 cell: expect an error of 1")
    assert costs[-1].rating is Rating.GOOD
    assert len({len(plan.ratings.pairs) for plan in plans}) == 1  # a column of one cell does not vanish from them
    for name in (("cost", "weight"), ("age", "cost")):
        pairs = [next(each for each in plan.ratings.pairs if each.columns == name) for plan in plans]
        for errors in ([each.error for each in costs], [each.error for each in pairs]):
            assert errors == sorted(errors, reverse=True)
        assert (pairs[0].rating, pairs[-1].rating) == (Rating.POOR, Rating.GOOD)


def test_an_id_is_recognised_by_the_values_that_it_may_have(workspace: Workspace) -> None:
    with_codes(workspace, 3000)
    told = column(plan_run(load_spec(workspace.spec), rows=5000), "code")
    assert told.id is not None
    assert told.sentence.startswith(
        "code looks like an id: it has 3,000 values, about as many as there may be rows; leave it out"
    )
    assert column(plan_run(load_spec(workspace.spec), rows=500_000), "code").id is None


def test_each_change_has_the_figures_of_the_changed_spec(workspace: Workspace) -> None:
    """The steward who follows the advice gets the plan that was promised."""
    with_codes(workspace, 1290)
    plan = plan_run(load_spec(workspace.spec), rows=20_000)
    group, raise_epsilon = plan.changes
    assert (group.kind, raise_epsilon.kind) == ("cells", "epsilon")
    assert group.sentence.startswith("group code and age into 20 cells instead of up to 1,290 each: typical error ")
    assert raise_epsilon.sentence.startswith("raise epsilon from 1 to 2: typical error ")
    before = plan.ratings
    for each in plan.changes:
        assert (each.before.poor, each.before.typical, each.before.number) == (
            before.poor,
            before.typical,
            before.number,
        )
        assert each.after.typical < each.before.typical
    text = workspace.spec.read_text(encoding="utf-8")
    workspace.spec.write_text(text.replace("epsilon: 1.0", "epsilon: 2.0"), encoding="utf-8")
    raised = plan_run(load_spec(workspace.spec), rows=20_000).ratings
    assert raised.typical == pytest.approx(raise_epsilon.after.typical)
    assert raised.poor == raise_epsilon.after.poor
    (workspace.folder / "codes.txt").write_text("\n".join(f"c{each}" for each in range(20)), encoding="utf-8")
    workspace.spec.write_text(text.replace("max: 59, width: 1", "max: 59, width: 3"), encoding="utf-8")
    grouped = plan_run(load_spec(workspace.spec), rows=20_000).ratings
    assert grouped.typical == pytest.approx(group.after.typical)
    assert grouped.poor == group.after.poor


def test_fewer_rows_of_a_person_and_pairs_instead_of_triples_are_tried_too(workspace: Workspace) -> None:
    workspace.write_spec(
        ("max_rows_per_unit: 2", "max_rows_per_unit: 8"),
        ("marginals: 2", "marginals: 3"),
        ("epsilon: 1.0", "epsilon: 11"),
    )
    plan = plan_run(load_spec(workspace.spec), rows=200)
    fewer, *_ = plan.changes
    assert fewer.sentence.startswith("count at most 4 rows of each person instead of 8, if few have more: ")
    workspace.write_spec(
        ("max_rows_per_unit: 2", "max_rows_per_unit: 4"),
        ("marginals: 2", "marginals: 3"),
        ("epsilon: 1.0", "epsilon: 11"),
    )
    assert plan_run(load_spec(workspace.spec), rows=200).ratings.typical == pytest.approx(fewer.after.typical)


def test_a_change_that_the_account_cannot_pay_says_so(workspace: Workspace) -> None:
    few_columns(workspace, "{name: mwem}", epsilon=1.0)
    open_account(epsilon=1.5, delta=1e-9, currency=Currency.GDP)
    (change,) = (each for each in plan_run(load_spec(workspace.spec), rows=100).changes if each.kind == "epsilon")
    assert change.sentence.endswith("; the account cannot pay for that")
    assert "cannot pay" in str(change.refused)


def test_a_plan_that_is_good_needs_no_change(workspace: Workspace) -> None:
    few_columns(workspace, "{name: mwem}", epsilon=1.0)
    plan = plan_run(load_spec(workspace.spec), rows=10**7)
    assert plan.ratings.good == plan.ratings.number == 6
    assert plan.changes == ()
    assert plan.warnings == ()


@pytest.mark.parametrize(("rows", "warned"), [(50, True), (10**6, False)])
def test_a_run_warns_in_the_words_of_its_plan_before_anything_is_charged(
    workspace: Workspace, caplog: pytest.LogCaptureFixture, rows: int, warned: bool
) -> None:
    few_columns(workspace, "{name: mwem}", epsilon=1.0)
    workspace.spec.write_text(f"{workspace.spec.read_text()}output: {{rows: {rows}}}\n", encoding="utf-8")
    open_account(epsilon=10.0, delta=1e-9, currency=Currency.GDP)
    plan = plan_run(load_spec(workspace.spec), rows=None)
    assert len(plan.warnings) == warned
    run = Synthesis(load_spec(workspace.spec), run_id="r", resume=False)
    with caplog.at_level("WARNING", logger="dpcore.progress"):
        run.reserve()
    said = [record.getMessage() for record in caplog.records if record.name == "dpcore.progress"]
    assert run.ledger.run("r").spent == 0
    run.close()
    assert said == [
        f"warning: {warning}; `dpflow plan` names the changes that would help most" for warning in plan.warnings
    ]
    assert all("expect a typical one of its 6 pairs of columns to be wrong by " in each for each in said)


@pytest.mark.parametrize("epsilon", [0.02, 50.0])
def test_a_run_that_had_to_guess_its_rows_warns_before_the_rounds_if_they_are_too_few(
    workspace: Workspace, caplog: pytest.LogCaptureFixture, epsilon: float
) -> None:
    few_columns(workspace, "{name: mwem}", epsilon=epsilon)
    open_account(epsilon=100.0, delta=1e-9, currency=Currency.GDP)
    assert plan_run(load_spec(workspace.spec), rows=None).warnings == ()  # for 100,000 rows, which is a guess
    run = Synthesis(load_spec(workspace.spec), run_id="r", resume=False)
    with caplog.at_level("WARNING", logger="dpcore.progress"):
        learned(run)
    spent, reserved = run.ledger.run("r").spent, run.ledger.run("r").reserved
    run.close()
    said = [record.getMessage() for record in caplog.records if record.name == "dpcore.progress"]
    assert sum("columns drawn each by itself" in each for each in said) == (epsilon < 1)
    assert spent < reserved / 2


def test_the_number_of_rows_may_come_from_what_the_spec_expects(workspace: Workspace) -> None:
    workspace.write_spec(("epsilon: 1.0", "epsilon: 1.0, expect_rows: [1000, 100000]"))
    plan = plan_run(load_spec(workspace.spec), rows=None)
    assert (plan.rows, plan.rows_from) == (10_000, "expect_rows")


WIDE = 24


def wide(workspace: Workspace) -> None:
    names = [f"a_column_with_a_rather_long_name_{number}" for number in range(WIDE)]
    columns = "".join(
        f"  {name}: {{type: integer, min: 0, max: {3 + place}, width: 1}}\n" for place, name in enumerate(names)
    )
    text = workspace.spec.read_text(encoding="utf-8")
    head = text[: text.index("universe:")].replace("unit: person, max_rows_per_unit: 2", "unit: row")
    workspace.spec.write_text(f"{head}universe:\n{columns}{ALL_PAIRS}", encoding="utf-8")


def test_a_wide_table_gets_a_summary_that_fits_and_everything_if_asked(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    width = 80
    wide(workspace)
    monkeypatch.setenv("COLUMNS", str(width))
    pairs = WIDE * (WIDE - 1) // 2
    assert dpflow("plan", workspace.spec) == 0
    lines = capsys.readouterr().out.splitlines()
    place = workspace.folder.name  # a path is not broken
    assert max(len(line) for line in lines if place not in line) <= width
    assert len(lines) < 90
    assert f"of {pairs:,} pairs of columns" in "\n".join(lines)
    assert f"worst of {pairs:,} pairs" in "\n".join(lines)
    assert dpflow("plan", workspace.spec, "--all") == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(" x " in line for line in lines) >= pairs
    assert max(len(line) for line in lines if place not in line) <= width
    assert dpflow("plan", workspace.spec, "--json") == 0
    ratings = json.loads(capsys.readouterr().out)["ratings"]
    assert (len(ratings["pairs"]), len(ratings["columns"])) == (pairs, WIDE)
    assert all(each["sentence"] and each["rating"] in {"good", "fair", "poor"} for each in ratings["pairs"])


def test_a_plan_of_single_counts_is_rated_too(workspace: Workspace) -> None:
    few_columns(workspace, "{name: pmw, rounds: 12, alpha: 0.01}", epsilon=1.0)
    plan = plan_run(load_spec(workspace.spec), rows=3000)
    assert plan.rounds is not None
    assert {pair.noise for pair in plan.ratings.pairs} == {plan.rounds.noise}
    assert len(plan.ratings.columns) == 4


def test_a_workload_of_single_columns_is_rated_by_columns(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(workspace, "{name: adaptive}", epsilon=1.0, workload="workload: {marginals: 1}\n")
    plan = plan_run(load_spec(workspace.spec), rows=ROWS)
    assert (plan.ratings.asked_for, plan.ratings.pairs, plan.ratings.number) == ("columns", (), 10)
    assert dpflow("plan", workspace.spec, "--rows", ROWS) == 0
    assert "of 10 columns" in capsys.readouterr().out


def wide_spec(workspace: Workspace, *, sizes: Sequence[int], workload: str = "{marginals: 2}") -> Declaration:
    """Declare a table with columns of so many values, at epsilon 1."""
    columns = "".join(
        f"  c{place}: {{type: integer, min: 0, max: {size - 1}, width: 1}}\n" for place, size in enumerate(sizes)
    )
    privacy = "{unit: row, neighbours: add-remove, epsilon: 1.0, delta: 1e-9}"
    text = f"dataset: wide\nsource: {{path: wide.csv}}\nprivacy: {privacy}\nuniverse:\n{columns}workload: {workload}\n"
    spec = workspace.folder / "wide.yaml"
    spec.write_text(text, encoding="utf-8")
    return load_spec(spec)


COLON = (3, 2, 10, 2, 2, 2, 11, 2, 4, 4, 2, 2, 10, 2, 2)
"""The numbers of cells of the columns of `survival::colon`, with its missing values and ten bins for each number."""


def test_a_plan_warns_if_columns_drawn_each_by_itself_may_be_as_near(workspace: Workspace) -> None:
    declaration = wide_spec(workspace, sizes=COLON)
    plan = plan_run(declaration, rows=150)
    (warning,) = plan.warnings
    assert warning.startswith(
        "columns drawn each by itself may be as near to the table as the release: expect a typical "
    )
    assert "with about 150 rows; shuffled columns of twenty real tables were wrong by 2 % to 59 %; " in warning
    assert plan_run(declaration, rows=20_000).warnings == ()
    assert plan.ratings.typical > MOST_WRONG


def test_the_expected_error_grows_with_the_noise_and_never_exceeds_it() -> None:
    for columns in (1, 2):
        shares = [10 ** (power / 10) for power in range(-40, 20)]
        errors = [expected_error(share, columns=columns) for share in shares]
        assert errors == sorted(errors)
        assert all(error <= share for error, share in zip(errors, shares, strict=True))


@pytest.mark.parametrize(
    ("spec", "rows"), [("data/clinic-visits.yaml", None), ("benchmarks/specs/adult_discretized.yaml", 48_842)]
)
def test_neither_the_sample_nor_adult_is_warned_of(spec: str, rows: int | None) -> None:
    """Adult's release has a fifth of the error of shuffled columns, though most of its pairs have too many cells for single counts."""
    assert plan_run(load_spec(ROOT / spec), rows=rows).warnings == ()


def test_a_table_with_more_columns_than_rounds_can_link_is_told_to_name_a_target_or_fewer_columns(
    workspace: Workspace,
) -> None:
    plan = plan_run(wide_spec(workspace, sizes=(4,) * 60), rows=3000)
    assert plan.rounds is not None
    assert plan.ratings.is_wide
    assert {each.kind for each in plan.changes} == {"target", "columns"}
    said = {each.kind: each.sentence for each in plan.changes}
    rounds = plan.rounds.number
    assert said["target"].startswith(
        f"name the column that matters most as `target`, so that {rounds} rounds go to its 59 pairs, and not to any of 1,770: "
    )
    assert said["columns"].startswith(
        f"ask for the {rounds + 1} columns that matter most instead of 60, since {rounds} rounds link no more: "
    )
    after = {each.kind: each.after.number for each in plan.changes}
    assert after == {"target": 59, "columns": math.comb(rounds + 1, 2)}
    named = plan_run(wide_spec(workspace, sizes=(4,) * 60, workload="{marginals: 2, target: c7}"), rows=3000)
    assert "target" not in {each.kind for each in named.changes}
    narrow = plan_run(wide_spec(workspace, sizes=(4,) * (rounds - 5)), rows=3000)
    assert not narrow.ratings.is_wide
    assert "target" not in {each.kind for each in narrow.changes}
