"""A plan tells what a run will do: the same noise, rounds and refusals; and it leaves no trace."""

import json
from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest

from dpcore import load_spec, synthesize
from dpcore.answers import replicates
from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import Currency
from dpcore.runs.expected_rows import FAINT_WORDS
from dpcore.runs.planning.costs import costs_of
from dpcore.runs.planning.grounds import USUAL_ROWS, PlannedAccount
from dpcore.runs.planning.plan import Plan, plan_run
from dpcore.runs.synthesis import Synthesis
from dpcore.strategies import Strategy
from dpcore.strategies.strategy import column_step
from tests.conftest import Workspace
from tests.dpcore.runs.releases import Tree, dpflow, learned, open_account
from tests.dpcore.runs.test_synthesis_adaptive import ROWS, SPEC, people

pytestmark = pytest.mark.usefixtures("rough_models")

ALL_PAIRS = "workload: {marginals: 2}\n"
RANGES = "workload: {marginals: 2, ranges: [age]}\n"


def declare(
    workspace: Workspace, strategy: str, *, epsilon: float, delta: float = 1e-9, workload: str = ALL_PAIRS
) -> None:
    """Write a table and a spec that asks for all its pairs of columns."""
    people(ROWS).to_csv(workspace.folder / "visits.csv", index=False)
    text = SPEC[: SPEC.index("workload:")].replace("epsilon: 5.0, delta: 1e-9", f"epsilon: {epsilon}, delta: {delta}")
    workspace.spec.write_text(f"{text}{workload}strategy: {strategy}\n", encoding="utf-8")


def few_columns(workspace: Workspace, strategy: str, *, epsilon: float, delta: float = 1e-9) -> None:
    """Write the workspace's own spec, with the row as unit."""
    workspace.write_spec(
        ("unit: person, max_rows_per_unit: 2", "unit: row"),
        ("epsilon: 1.0, delta: 1e-9", f"epsilon: {epsilon}, delta: {delta}"),
        ("{name: mwem, rounds: 4}", strategy),
    )


def measured_in_a_run(spec: Path, *, as_of: date | None = None) -> Strategy:
    """Take the steps of a run up to its last measurement, and return its strategy, which has all of them."""
    run = Synthesis(load_spec(spec), run_id="measured", resume=False, as_of=as_of)
    try:
        learned(run)
        while number := run.rounds.next:
            run.rounds.update(number, run.rounds.measure(number, run.rounds.select(number)))
        return run.strategy
    finally:
        run.close()


def noise_by_step(workspace: Workspace) -> dict[str, float]:
    """Return the noise that each measurement of a run is made with."""
    return {each.step: each.noise for each in measured_in_a_run(workspace.spec).measurements}


def check_first(plan: Plan, measured: dict[str, float]) -> None:
    for axis, column in enumerate(plan.first):
        steps = [f"{column_step(axis, column.name)}{suffix}" for suffix in ("", "-again")[: len(column.measured)]]
        assert [measured.pop(step) for step in steps] == pytest.approx(list(column.measured), rel=0.01)


def check_rounds(plan: Plan, measured: dict[str, float]) -> None:
    assert plan.rounds is not None
    rounds = {step: noise for step, noise in measured.items() if step.startswith("round")}
    assert len(rounds) == plan.rounds.number
    assert list(rounds.values()) == pytest.approx([plan.rounds.noise] * len(rounds), rel=0.01)


@pytest.mark.parametrize(
    ("strategy", "epsilon", "currency", "workload"),
    [
        ("{name: adaptive, rounds: 17}", 0.5, Currency.GDP, ALL_PAIRS),
        ("{name: adaptive, rounds: 3}", 1.0, Currency.PURE, ALL_PAIRS),
        ("{name: adaptive, rounds: 3}", 1.0, Currency.ZCDP, RANGES),
    ],
)
def test_an_adaptive_run_has_the_noise_and_the_rounds_of_its_plan(
    workspace: Workspace, strategy: str, epsilon: float, currency: Currency, workload: str
) -> None:
    delta = 0.0 if currency is Currency.PURE else 1e-9
    declare(workspace, strategy, epsilon=epsilon, delta=delta, workload=workload)
    open_account(epsilon=10.0, delta=delta, currency=currency)
    plan = plan_run(load_spec(workspace.spec), rows=ROWS)
    assert plan.ranges == (("age",) if workload == RANGES else ())
    measured = noise_by_step(workspace)
    check_first(plan, measured)
    check_rounds(plan, measured)
    assert all(step.startswith("round") or workload == RANGES for step in measured)


def test_an_adaptive_run_whose_rounds_tell_nothing_has_fewer_than_planned_and_less_noise(workspace: Workspace) -> None:
    declare(workspace, "{name: adaptive}", epsilon=0.5, workload=ALL_PAIRS)
    open_account(epsilon=10.0, delta=1e-9, currency=Currency.GDP)
    plan = plan_run(load_spec(workspace.spec), rows=ROWS)
    measured = noise_by_step(workspace)
    check_first(plan, measured)
    assert plan.rounds is not None
    assert 0 < len(measured) < plan.rounds.number
    assert all(noise < 1.01 * plan.rounds.noise for noise in measured.values())
    assert min(measured.values()) < 0.8 * plan.rounds.noise


def test_a_budget_that_suits_fewer_rounds_measures_the_columns_again(workspace: Workspace) -> None:
    declare(workspace, "{name: adaptive}", epsilon=3.0)
    plan = plan_run(load_spec(workspace.spec), rows=ROWS)
    assert plan.rounds is not None
    assert plan.rounds.number < plan.rounds.at_most == 45
    assert all(len(column.measured) == 2 and column.noise < min(column.measured) for column in plan.first)
    richer = plan_run(load_spec(workspace.spec), rows=1000 * ROWS)
    assert richer.rounds is not None
    assert richer.rounds.number == 45
    assert all(len(column.measured) == 1 for column in richer.first)


@pytest.mark.parametrize("currency", list(Currency))
def test_a_mwem_run_has_the_noise_and_the_rounds_of_its_plan(workspace: Workspace, currency: Currency) -> None:
    delta = 0.0 if currency is Currency.PURE else 1e-9
    few_columns(workspace, "{name: mwem}", epsilon=1.0, delta=delta)
    open_account(epsilon=10.0, delta=delta, currency=currency)
    plan = plan_run(load_spec(workspace.spec), rows=3000)
    measured = noise_by_step(workspace)
    check_first(plan, measured)
    check_rounds(plan, measured)


@pytest.mark.parametrize("currency", list(Currency))
def test_a_pmw_run_has_the_noise_of_its_plan(workspace: Workspace, currency: Currency) -> None:
    delta = 0.0 if currency is Currency.PURE else 1e-9
    few_columns(workspace, "{name: pmw, rounds: 12, alpha: 0.0001}", epsilon=1.0, delta=delta)
    open_account(epsilon=10.0, delta=delta, currency=currency)
    plan = plan_run(load_spec(workspace.spec), rows=3000)
    measured = noise_by_step(workspace)
    assert plan.rounds is not None
    assert measured.pop("total") == pytest.approx(plan.first[0].noise, rel=0.01)
    assert len(measured) <= plan.rounds.number == 12
    assert list(measured.values()) == pytest.approx([plan.rounds.noise] * len(measured), rel=0.01)


@pytest.mark.parametrize("account", [False, True])
def test_a_plan_leaves_no_trace(workspace: Workspace, tree_of: Tree, account: bool) -> None:
    if account:
        workspace.open_account()
    (workspace.folder / "visits.csv").unlink()  # whoever read it would fail
    before = tree_of(workspace.folder)
    assert dpflow("plan", workspace.spec) == 0
    assert tree_of(workspace.folder) == before


def test_without_an_account_the_usual_currency_is_assumed_and_said(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dpflow("plan", workspace.spec) == 0
    text = capsys.readouterr().out
    assert "not open yet, so gdp is assumed: no .dpflow folder was found from" in text
    assert "remains" not in text
    workspace.write_spec(("delta: 1e-9", "delta: 0"))
    assert dpflow("plan", workspace.spec) == 0
    assert "so pure is assumed" in capsys.readouterr().out
    workspace.open_account()
    workspace.write_spec(("dataset: visits", "dataset: others"))
    assert dpflow("plan", workspace.spec) == 0
    assert "there is no account 'others'; open it first, " in capsys.readouterr().out


def test_what_would_remain_is_what_remains_after_the_run(workspace: Workspace) -> None:
    currency = Currency.GDP
    workspace.open_account(currency=currency)
    planned = plan_run(load_spec(workspace.spec), rows=None).account
    assert planned.currency == currency
    outcome = synthesize(workspace.spec)
    assert planned.remaining == pytest.approx(outcome.remaining, rel=1e-6)
    assert planned.remaining_epsilon == pytest.approx(outcome.remaining_epsilon, rel=1e-6)
    again = plan_run(load_spec(workspace.spec), rows=None)
    assert (again.rows, again.rows_from) == (outcome.rows, "earlier release")
    for change, source in {("width: 25", "width: 20"): "earlier release", ("[F, M]", "[f, m]"): "a guess"}.items():
        workspace.write_spec(change)  # with other values, other rows are kept
        assert plan_run(load_spec(workspace.spec), rows=None).rows_from == source
    workspace.write_spec()
    published = next(workspace.folder.glob("releases/visits/2*/manifest.json"))
    manifest = json.loads(published.read_text())
    for warning, source in {
        "about 30 % of the rows have `other` in `ward`": "earlier release",
        f"the noisy total is 7 rows, which is {FAINT_WORDS} of 30.7": "a guess",
    }.items():
        published.write_text(json.dumps({**manifest, "warnings": [warning]}))
        assert plan_run(load_spec(workspace.spec), rows=None).rows_from == source
    for damage in ("{", "[]", '{"release": 7}', '{"release": "../.."}'):
        (workspace.folder / "releases" / "visits" / "latest.json").write_text(damage, encoding="utf-8")
        assert plan_run(load_spec(workspace.spec), rows=None).rows_from == "a guess"


def test_the_number_of_rows_is_as_given_or_as_the_spec_wants_or_a_guess(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    def rows(*more: object) -> str:
        assert dpflow("plan", workspace.spec, *more) == 0
        return next(line for line in capsys.readouterr().out.splitlines() if line.startswith("rows"))

    assert f"about {USUAL_ROWS:,}: a guess" in rows()
    assert "about 12,345: as given with --rows" in rows("--rows", 12345)
    workspace.spec.write_text(f"{workspace.spec.read_text()}output: {{rows: 777}}\n", encoding="utf-8")
    assert "about 777: from `output.rows`" in rows()
    assert dpflow("plan", workspace.spec, "--rows", 0) == 2
    assert "--rows must be" in capsys.readouterr().err


def test_json_has_every_figure(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert dpflow("plan", workspace.spec, "--rows", 3000, "--units", 3000, "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert set(plan) == set(Plan.__dataclass_fields__)
    assert set(plan["account"]) == set(PlannedAccount.__dataclass_fields__)
    assert [column["name"] for column in plan["first"]] == ["sex", "age", "smoker", "city"]
    for column in plan["first"]:
        assert column["error"] == pytest.approx(column["cells"] * column["noise"] * 0.797885 / 3000, rel=1e-5)
    rounds = plan["rounds"]
    assert rounds["number"] == rounds["at_most"] == 4
    assert rounds["worth_cells"] == int(3000 / (0.7978845608 * rounds["noise"]))
    assert rounds["error"] == pytest.approx(rounds["typical_cells"] * rounds["noise"] * 0.797885 / 3000, rel=1e-5)
    assert 0 < plan["costs"]["least_seconds"] < plan["costs"]["most_seconds"]
    assert plan["costs"]["memory_mb"] > 100


def test_a_workload_of_single_columns_has_no_rounds(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    declare(workspace, "{name: adaptive}", epsilon=1.0, workload="workload: {marginals: 1}\n")
    assert dpflow("plan", workspace.spec) == 0
    assert "rounds     none" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "currency", "exit_code"),
    [
        ([("epsilon: 1.0", "epsilon: 1e-5")], Currency.ZCDP, 2),
        ([("epsilon: 1.0", "epsilon: 1e-3")], Currency.GDP, 2),
        ([("min: 0, max: 99, width: 25", "min: 0, max: 9999999, width: 1")], Currency.ZCDP, 2),
        ([("name: mwem, rounds: 4", "name: pmw, rounds: 2")], Currency.ZCDP, 2),
        ([("add-remove", "replace-one")], Currency.ZCDP, 2),
        ([("delta: 1e-9", "delta: 0")], Currency.ZCDP, 2),
    ],
)
def test_a_plan_refuses_what_a_run_would_refuse_in_the_same_words(
    workspace: Workspace,
    capsys: pytest.CaptureFixture[str],
    changes: list[tuple[str, str]],
    currency: Currency,
    exit_code: int,
) -> None:
    workspace.open_account(currency=currency)
    workspace.write_spec(*changes)
    said = []
    for verb in ("plan", "run"):
        assert dpflow(verb, workspace.spec) == exit_code
        said.append(capsys.readouterr().err.partition(" (ledger ")[0].rstrip())
    assert said[0] == said[1] != ""


def test_what_the_account_cannot_pay_is_planned_and_refused_in_the_words_of_the_run(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.open_account(currency=Currency.ZCDP)
    payable = plan_run(load_spec(workspace.spec), rows=None)
    assert (payable.account.refused, payable.exit_code) == (None, 0)
    workspace.write_spec(("epsilon: 1.0", "epsilon: 11"))
    assert dpflow("run", workspace.spec) == 3
    refused = capsys.readouterr().err.partition(" (ledger ")[0].removeprefix("dpflow: ")
    assert "cannot pay" in refused
    assert dpflow("plan", workspace.spec) == 3
    text = capsys.readouterr().out
    assert f"refused    {refused}\n" in text
    assert "✓ good" in text  # what to expect is said all the same
    assert dpflow("plan", workspace.spec, "--json") == 3
    planned = json.loads(capsys.readouterr().out)
    assert (planned["account"]["refused"], planned["exit_code"]) == (refused, 3)
    assert planned["account"]["remaining_epsilon"] == pytest.approx(10)  # nothing was taken from it
    assert planned["ratings"]["pairs"]


def test_a_closed_account_is_planned_for_and_said_to_be_closed(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.open_account()
    with open_ledger() as ledger:
        ledger.close_account("visits", reason="done")
    assert dpflow("plan", workspace.spec) == 2
    assert "refused    account 'visits' is closed" in capsys.readouterr().out


def test_more_of_anything_costs_more(workspace: Workspace) -> None:
    declare(workspace, "{name: adaptive}", epsilon=3.0)
    declaration = load_spec(workspace.spec)
    least = costs_of(declaration, rows=1000, rounds=5, cells=100)
    for rows, rounds, cells in ((10**7, 5, 100), (1000, 50, 100), (1000, 5, 10_000)):
        more = costs_of(declaration, rows=rows, rounds=rounds, cells=cells)
        assert more.memory_mb >= least.memory_mb
        assert more.least_seconds > least.least_seconds
        assert more.most_seconds > least.most_seconds


SPECS = Path(__file__).parents[4] / "benchmarks" / "specs"


@pytest.mark.parametrize(
    ("table", "rows", "cpu_seconds", "memory_mb"),
    [
        ("adult7", 48_842, 8, 217),
        ("adult_discretized", 48_842, 53, 688),
        ("nist_national2019", 27_253, 53, 862),
        ("diabetes", 101_766, 73, 665),
        ("census_kdd", 299_285, 100, 1140),
    ],
)
def test_the_costs_of_measured_releases_are_estimated_within_a_factor_of_two(
    monkeypatch: pytest.MonkeyPatch, table: str, *, rows: int, cpu_seconds: float, memory_mb: float
) -> None:
    """The figures are those of whole releases, as measured before; nothing is timed here.

    They are of 2026-11-19 (`benchmarks/RESULTS.md`); where runs differ, they are in the middle.
    """
    monkeypatch.setattr(replicates, "REPLICATES", 5)  # as in a release; tests make fewer
    costs = plan_run(load_spec(SPECS / f"{table}.yaml"), rows=rows).costs
    assert costs.least_seconds < cpu_seconds < costs.most_seconds
    assert 0.5 < (costs.least_seconds * costs.most_seconds) ** 0.5 / cpu_seconds < 2
    assert 0.5 < costs.memory_mb / memory_mb < 2


def test_larger_marginals_take_longer(workspace: Workspace) -> None:
    found = []
    for workload in ("workload: {marginals: 1}\n", ALL_PAIRS, "workload: {marginals: 3}\n"):
        declare(workspace, "{name: adaptive}", epsilon=3.0, workload=workload)
        found.append(costs_of(load_spec(workspace.spec), rows=1000, rounds=5, cells=100))
    for fewer, more in pairwise(found):
        assert fewer.least_seconds < more.least_seconds
        assert fewer.most_seconds < more.most_seconds
