"""The least epsilon for an error: it suffices, nothing smaller does, and what can't be had is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dpcore import load_spec
from dpcore.errors import UsageError
from dpcore.privacy.accounting import Currency
from dpcore.runs.planning.plan import Plan, plan_run
from dpcore.runs.planning.target import Target, epsilon_for
from dpcore.spec import Declaration
from tests.conftest import Workspace
from tests.dpcore.runs.planning.test_plan import ALL_PAIRS, RANGES, declare, few_columns
from tests.dpcore.runs.releases import dpflow, open_account

ROWS = 20_000


def at(declaration: Declaration, epsilon: float) -> Declaration:
    privacy = declaration.spec.privacy.model_copy(update={"epsilon": epsilon})
    return replace(declaration, spec=declaration.spec.model_copy(update={"privacy": privacy}))


def error_of(plan: Plan, target: Target) -> float:
    """Return the error of the target's marginal, from the figures of a plan."""
    if len(target.columns) == 1:
        return next(column.error for column in plan.first if column.name == target.columns[0])
    assert plan.rounds is not None
    return target.cells * plan.rounds.noise * 0.7978845608 / plan.rows


def below(epsilon: float) -> float:
    """Return the next smaller number of three digits."""
    digits, exponent = f"{epsilon:.2e}".split("e")
    whole = round(float(digits) * 100) - 1
    return float(f"{whole}e{int(exponent) - 2}") if whole >= 100 else float(f"999e{int(exponent) - 3}")


@pytest.mark.parametrize(
    ("currency", "strategy", "columns"),
    [
        (Currency.PURE, "{name: adaptive}", ["age"]),
        (Currency.ZCDP, "{name: mwem}", ["sex", "age"]),
        (Currency.GDP, "{name: adaptive}", ["sex", "age"]),
    ],
)
def test_the_epsilon_suffices_and_the_next_smaller_one_does_not(
    workspace: Workspace, currency: Currency, strategy: str, columns: list[str]
) -> None:
    delta = 0.0 if currency is Currency.PURE else 1e-9
    few_columns(workspace, strategy, epsilon=1.0, delta=delta)
    open_account(epsilon=100.0, delta=delta, currency=currency)
    declaration = load_spec(workspace.spec)
    target = epsilon_for(declaration, error=0.03, columns=columns, rows=ROWS)
    assert target.currency == currency
    plan = plan_run(at(declaration, target.epsilon), rows=ROWS)
    assert error_of(plan, target) == pytest.approx(target.error)
    assert target.error <= 0.03
    assert plan.amount == target.amount
    assert plan.rounds is not None
    assert target.rounds == (plan.rounds.number if len(columns) > 1 else None)
    assert error_of(plan_run(at(declaration, below(target.epsilon)), rows=ROWS), target) > 0.03
    assert target.spec_error == pytest.approx(error_of(plan_run(declaration, rows=ROWS), target))


def test_a_smaller_error_a_larger_marginal_or_a_smaller_table_needs_more_epsilon(workspace: Workspace) -> None:
    declaration = load_spec(workspace.spec)

    def epsilon(error: float = 0.02, columns: tuple[str, ...] = ("sex", "age"), rows: int = ROWS) -> float:
        return epsilon_for(declaration, error=error, columns=columns, rows=rows).epsilon

    usual = epsilon()
    assert epsilon(error=0.01) > usual
    assert epsilon(columns=("age", "city")) > usual
    assert epsilon(rows=ROWS // 2) > usual
    assert epsilon(columns=("age", "sex")) == usual


def test_a_marginal_is_measured_only_where_the_strategy_finds_it_worth_its_noise(workspace: Workspace) -> None:
    declare(workspace, "{name: adaptive, rounds: 5}", epsilon=1.0)
    declaration = load_spec(workspace.spec)
    target = epsilon_for(declaration, error=1.9, columns=["sex", "age"], rows=ROWS)
    assert target.error <= 1.0
    plan = plan_run(at(declaration, target.epsilon), rows=ROWS)
    assert plan.rounds is not None
    assert plan.rounds.worth_cells is not None
    assert plan.rounds.worth_cells >= target.cells


def test_ranges_leave_less_for_a_column(workspace: Workspace) -> None:
    found = []
    for workload in (ALL_PAIRS, RANGES):
        declare(workspace, "{name: adaptive, rounds: 5}", epsilon=1.0, workload=workload)
        found.append(epsilon_for(load_spec(workspace.spec), error=0.05, columns=["age"], rows=ROWS).epsilon)
    assert found[0] < found[1]


@pytest.mark.parametrize("error", [0.0, 2.0, float("nan")])
def test_an_error_that_is_no_share_is_refused(workspace: Workspace, error: float) -> None:
    with pytest.raises(UsageError, match="above 0 and below 2"):
        epsilon_for(load_spec(workspace.spec), error=error, columns=["sex"], rows=None)


@pytest.mark.parametrize(
    ("columns", "words"),
    [(["sex", "height"], "`height`: not a column"), ([], "at least one"), (["sex", "sex"], "once")],
)
def test_columns_that_make_no_marginal_are_refused(workspace: Workspace, columns: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        epsilon_for(load_spec(workspace.spec), error=0.02, columns=columns, rows=None)


def test_an_error_that_no_epsilon_reaches_is_refused_with_the_one_that_is_reached(workspace: Workspace) -> None:
    declaration = load_spec(workspace.spec)
    with pytest.raises(UsageError, match="at 100 it is") as refused:
        epsilon_for(declaration, error=1e-6, columns=["age"], rows=100)
    reached = float(str(refused.value).split("it is ")[1].split()[0])
    column = plan_run(at(declaration, 100.0), rows=100).first[1]
    assert reached == pytest.approx(column.error, rel=0.01)


def test_a_marginal_that_no_round_would_measure_is_refused(workspace: Workspace) -> None:
    declare(workspace, "{name: adaptive}", epsilon=1.0, workload="workload: {marginals: [[sex, age]]}\n")
    names = load_spec(workspace.spec).universe.names
    with pytest.raises(UsageError, match="no marginal of the workload contains"):
        epsilon_for(load_spec(workspace.spec), error=0.02, columns=names[:3], rows=None)
    declare(workspace, "{name: adaptive, max_model_mb: 0.002}", epsilon=1.0, workload="workload: {marginals: 3}\n")
    with pytest.raises(UsageError, match="more than the model may have"):
        epsilon_for(load_spec(workspace.spec), error=0.02, columns=names[-3:], rows=None)
    few_columns(workspace, "{name: pmw, rounds: 12}", epsilon=1.0)
    with pytest.raises(UsageError, match="single counts"):
        epsilon_for(load_spec(workspace.spec), error=0.02, columns=["sex"], rows=None)


def test_an_account_that_would_not_pay_is_said_not_refused(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.open_account()
    assert dpflow("plan", workspace.spec, "--error", 0.008, "--on", "sex,age", "--rows", 1000, "--units", 1000) == 0
    assert "account    would refuse:" in capsys.readouterr().out
    assert dpflow("plan", workspace.spec, "--error", 0.1, "--on", "sex,age", "--rows", ROWS) == 0
    assert "refuse" not in capsys.readouterr().out


def test_the_answer_is_said_in_words_and_in_json(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(*more: str) -> str:
        assert dpflow("plan", workspace.spec, "--rows", ROWS, "--error", 0.02, *more) == 0
        return capsys.readouterr().out

    data = json.loads(answer("--on", "sex,age", "--json"))
    assert set(data) == set(Target.__dataclass_fields__)
    assert data["columns"] == ["sex", "age"]
    assert data["error"] <= data["wanted"] == 0.02
    assert json.loads(answer("--on", "sex", "--on", "age", "--json")) == data
    text = answer("--on", "sex,age")
    assert text.startswith(f"epsilon    {data['epsilon']:g} at delta 1e-09 (mu^2 ")
    assert "from noise alone" in text
    assert "if one of the 4 rounds measures it" in text
    assert "like every single column" in answer("--on", "sex")


def test_a_name_with_a_comma_is_one_column(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    workspace.write_spec(("  sex:", '  "sex,f":'))
    assert dpflow("plan", workspace.spec, "--error", 0.02, "--on", "sex,f", "--on", "age", "--json") == 0
    assert json.loads(capsys.readouterr().out)["columns"] == ["sex,f", "age"]


@pytest.mark.parametrize("half", [("--error", 0.02), ("--on", "sex")])
def test_an_error_without_its_marginal_is_refused(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], half: tuple[object, ...]
) -> None:
    assert dpflow("plan", workspace.spec, *half) == 2
    assert "go together" in capsys.readouterr().err


def test_a_search_leaves_no_trace(workspace: Workspace) -> None:
    (workspace.folder / "visits.csv").unlink()
    before = sorted(Path(workspace.folder).rglob("*"))
    assert dpflow("plan", workspace.spec, "--error", 0.02, "--on", "age") == 0
    assert sorted(Path(workspace.folder).rglob("*")) == before


def test_values_to_be_found_count_as_many_as_there_may_be_and_leave_less_for_the_noise(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    def epsilon(column: str) -> float:
        target = epsilon_for(load_spec(workspace.spec), error=0.05, columns=[column], rows=ROWS)
        return target.epsilon

    declared = epsilon("sex")
    text = workspace.spec.read_text(encoding="utf-8")
    ward = "  ward: {type: categorical, discover: {most: 20, length: 3, alphabet: abc, share: 0.3}, outside: other}\n"
    workspace.spec.write_text(text.replace("universe:\n", f"universe:\n{ward}"), encoding="utf-8")
    assert epsilon("sex") > declared
    assert epsilon("ward") > 0
    assert dpflow("plan", workspace.spec, "--error", 0.05, "--on", "ward,sex") == 0
    assert "ward x sex: at most " in capsys.readouterr().out
