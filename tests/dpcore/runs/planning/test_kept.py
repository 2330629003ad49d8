"""A plan rates against the rows that count after the limit on rows per unit, or against few if it cannot know."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore import load_spec
from dpcore.errors import UsageError
from dpcore.runs.planning import Plan, epsilon_for, plan_run
from dpcore.runs.planning.kept import kept_of
from tests.conftest import Workspace
from tests.dpcore.runs.releases import dpflow

pytestmark = pytest.mark.usefixtures("rough_models")

TABLE = 1_200_000
GAMES = 7_300
ONE = ("max_rows_per_unit: 2", "max_rows_per_unit: 1")


def plan_of(
    workspace: Workspace, *changes: tuple[str, str], rows: int | None = TABLE, units: int | None = None
) -> Plan:
    workspace.write_spec(*changes)
    return plan_run(load_spec(workspace.spec), rows=rows, units=units)


def errors(plan: Plan) -> list[float]:
    return [each.error for each in plan.ratings.pairs]


def test_a_limit_that_drops_nearly_all_rows_is_rated_by_what_remains(workspace: Workspace) -> None:
    capped = plan_of(workspace, ONE, units=GAMES)
    assert (capped.rows, capped.kept.rows, capped.kept.basis) == (TABLE, GAMES, "units")
    alone = plan_of(workspace, ("unit: person, max_rows_per_unit: 2", "unit: row"), rows=GAMES)
    assert errors(capped) == pytest.approx(errors(alone))
    assert alone.kept.sentence is None
    assert str(capped.kept.sentence).endswith(
        "; the limit keeps 0.61 % of the rows, so that noise weighs 164 times as much as if all of them counted"
    )


def test_without_the_number_of_units_few_rows_are_assumed_and_that_is_said(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = plan_of(workspace, ONE)
    assert (unknown.kept.rows, unknown.kept.basis) == (TABLE // 10, "assumed")
    assert errors(unknown) == pytest.approx([10 * each for each in errors(plan_of(workspace, ONE, units=TABLE))])
    assert dpflow("plan", workspace.spec, "--rows", TABLE) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "at most 1 row of each person counts, and nobody has said how many units there are" in said
    assert "one row in ten is assumed to count; give their number with --units; the limit may drop most" in said


def test_the_fewest_rows_that_the_spec_lets_count_are_rated(workspace: Workspace) -> None:
    expecting = ("epsilon: 1.0", "epsilon: 1.0, expect_rows: [4000, 90000]")
    plan = plan_of(workspace, expecting, rows=None)
    assert (plan.kept.rows, plan.kept.basis) == (4000, "expect_rows")
    assert "at most 2 rows of each person count, which may drop most of the rows; " in str(plan.kept.sentence)
    assert plan_of(workspace, expecting, rows=3000).kept.rows == 3000
    assert not any("can count" in each for each in plan_of(workspace, expecting, rows=None, units=2000).warnings)
    (warning,) = (each for each in plan_of(workspace, expecting, units=1999).warnings if "can count" in each)
    assert warning.startswith("`expect_rows` starts at 4,000, but at most 3,998 rows can count, 2 of each person: ")


def test_a_number_of_rows_that_count_is_not_limited_again(workspace: Workspace) -> None:
    expecting = ("epsilon: 1.0", "epsilon: 1.0, expect_rows: [4000, 90000]")
    assert plan_of(workspace, expecting, rows=None, units=3000).kept.rows == 4000
    auto = ("max_rows_per_unit: 2", "max_rows_per_unit: auto")
    assert not any("can count" in each for each in plan_of(workspace, expecting, auto, units=1999).warnings)
    with pytest.raises(UsageError, match="every unit has a row"):
        plan_of(workspace, expecting, rows=1000, units=1999)


def test_what_counted_in_an_earlier_release_counts_again(workspace: Workspace) -> None:
    workspace.open_account()
    assert dpflow("run", workspace.spec) == 0
    plan = plan_run(load_spec(workspace.spec), rows=None)
    assert plan.rows_from == plan.kept.basis == "earlier release"
    assert plan.rows == plan.kept.rows


def test_a_smaller_limit_is_tried_with_the_rows_that_it_keeps(workspace: Workspace) -> None:
    """With very many rows of each unit, half the limit has half the noise and half the rows: no help."""
    eight = ("max_rows_per_unit: 2", "max_rows_per_unit: 8")
    helps = [
        "rows per unit" in {each.kind for each in plan_of(workspace, eight, rows=rows, units=190).changes}
        for rows in (200, 200_000)
    ]
    assert helps == [True, False]


def test_each_limit_that_a_run_may_choose_is_planned_with_the_rows_that_it_keeps(workspace: Workspace) -> None:
    auto = ("max_rows_per_unit: 2", "max_rows_per_unit: auto")
    limits = plan_of(workspace, auto, units=GAMES).limits
    assert limits is not None
    # 164 rows of each unit: twice the limit has twice the noise and nearly twice the rows
    assert limits.costs[1].error == pytest.approx(limits.costs[0].error, rel=0.02)


@given(st.lists(st.integers(1, 100), min_size=1), st.integers(1, 9))
def test_no_more_rows_are_kept_than_equal_units_would_have(per_unit: list[int], limit: int) -> None:
    rows, units = sum(per_unit), len(per_unit)
    kept = kept_of(rows, units=units, limit=limit)
    assert units <= kept + 1e-9
    assert kept <= min(rows, units * limit) + 1e-9
    if limit == 1:
        assert kept == pytest.approx(units)


def test_the_estimate_is_right_for_a_geometric_distribution() -> None:
    per_unit = np.random.default_rng(7).geometric(0.2, size=200_000)
    for limit in (1, 3, 10):
        true = int(np.minimum(per_unit, limit).sum())
        assert kept_of(int(per_unit.sum()), units=len(per_unit), limit=limit) == pytest.approx(true, rel=0.01)


def test_the_epsilon_for_an_error_is_that_of_the_rows_that_count(workspace: Workspace) -> None:
    workspace.write_spec(ONE)
    capped = epsilon_for(load_spec(workspace.spec), error=0.1, columns=["age"], rows=TABLE, units=GAMES)
    workspace.write_spec(("unit: person, max_rows_per_unit: 2", "unit: row"))
    assert capped.epsilon == epsilon_for(load_spec(workspace.spec), error=0.1, columns=["age"], rows=GAMES).epsilon
    assert math.isclose(capped.kept.rows, GAMES)


def test_units_that_cannot_be_are_refused(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert dpflow("plan", workspace.spec, "--units", 0) == 2
    assert "--units must be" in capsys.readouterr().err
    with pytest.raises(UsageError, match="give --rows instead of --units"):
        plan_of(workspace, ("unit: person, max_rows_per_unit: 2", "unit: row"), units=100)
