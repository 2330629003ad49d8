"""The one list of steps: their order, what a driver passes on, and the runs that are open in a process."""

from types import SimpleNamespace
from typing import Any

import pytest

from dpcore import Outcome, load_spec
from dpcore.errors import BudgetRefused, RunHeld, UsageError
from dpcore.marginals.measurements import Measurement, Selection
from dpcore.runs.rounds import Exhausted
from dpcore.runs.steps import RESERVE, ROUND, Done, Step, check_run, in_order, open_run, opened
from dpcore.runs.synthesis import Synthesis
from tests.conftest import Workspace
from tests.dpcore.runs.releases import learned

pytestmark = pytest.mark.usefixtures("rough_models")

OUTCOME: Any = object()


class Made:
    """A run that was asked for some optional steps, and makes so many rounds."""

    run_id = "run"

    def __init__(self, *optional: str, published: bool = False, rounds: int = 2) -> None:
        self.checks_rows = "check-rows" in optional
        self.discovers = "discover" in optional
        self.lacks_limit = "choose-limit" in optional
        self.groups_rows = "learn-sizes" in optional
        self.published = published
        self.calls: list[str] = []
        self._last: Any = None
        self._number = rounds

    @property
    def rounds(self) -> SimpleNamespace:
        done = sum(call.startswith("update") for call in self.calls)
        return SimpleNamespace(next=done + 1 if done < self._number else 0)

    def take(self, step: Step, *given: Any) -> Any:
        """Note down a step, which must get the result of the one before."""
        run_id, *number, after = given
        assert run_id == "run"
        assert after is self._last
        self.calls.append(" ".join([step.name, *map(str, number)]))
        self._last = OUTCOME if step.name == "settle" else Done()
        return self._last


def taken(run: Any, **named: Any) -> list[str]:
    assert in_order(run, run.take, **named) is OUTCOME
    return list(run.calls)


@pytest.mark.parametrize(
    ("optional", "rounds"), [([], 2), (["discover"], 0), (["choose-limit", "check-rows", "learn-sizes", "discover"], 2)]
)
def test_steps_come_in_order_and_each_gets_the_result_of_the_one_before(optional: list[str], rounds: int) -> None:
    made = [f"{action} {number}" for number in range(1, rounds + 1) for action in ("select", "measure", "update")]
    assert taken(Made(*optional, rounds=rounds)) == [
        *("reserve", *optional, "ingest", "histogram", "begin"),
        *(*made, "sample", "publish", "settle"),
    ]


def test_a_run_whose_release_is_in_its_place_is_only_settled() -> None:
    assert taken(Made("check-rows", "discover", published=True)) == ["reserve", "settle"]


def test_progress_is_told_after_the_first_model_and_after_each_round() -> None:
    run = Made()
    calls = taken(run, after_learning=lambda: run.calls.append("told"))
    assert [calls[place - 1] for place, call in enumerate(calls) if call == "told"] == ["begin", "update 1", "update 2"]


def test_a_run_is_found_by_its_id_while_it_is_open_and_closed_then(workspace: Workspace) -> None:
    workspace.open_account()
    run = Synthesis(load_spec(workspace.spec), run_id="r1", resume=False)
    with open_run(run):
        assert opened("r1") is run
        second = Synthesis(load_spec(workspace.spec), run_id="r1", resume=False)
        with pytest.raises(RunHeld, match="run r1 is already open in this process"), open_run(second):
            pass
        assert opened("r1") is run
    for lost in (lambda: opened("r1"), lambda: RESERVE("r1", None)):
        with pytest.raises(UsageError, match="run r1 is not open in this process"):
            lost()
    for ledger in (run.ledger, second.ledger):
        with pytest.raises(Exception, match="closed"):
            ledger.head()


def test_steps_return_public_values_only(workspace: Workspace) -> None:
    workspace.open_account()
    returned: list[Any] = []

    def watched(step: Step, *given: Any) -> Any:
        returned.append(step(*given))
        return returned[-1]

    with open_run(Synthesis(load_spec(workspace.spec), run_id="r1", resume=False)) as run:
        learned(run)
        with pytest.raises(UsageError, match="sample before publishing"):
            run.publish()
    with open_run(Synthesis(load_spec(workspace.spec), run_id="r1", resume=True)) as run:
        in_order(run, watched)
    assert {type(it) for it in returned} == {Done, Selection, Measurement, Outcome}


def test_a_round_without_budget_passes_that_on(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.open_account()
    select, measure, update = ROUND
    with open_run(Synthesis(load_spec(workspace.spec), run_id="r1", resume=False)) as run:
        learned(run)
        assert run.rounds.next == 1
        monkeypatch.setattr(run.curator, "exhausted", lambda *_, **__: True)
        selection = select("r1", 1, Done())
        assert selection == measure("r1", 1, selection) == Exhausted()
        assert update("r1", 1, Exhausted()) == Done()
        assert run.rounds.next == 0


def test_what_a_run_has_reserved_already_counts_as_paid(workspace: Workspace) -> None:
    workspace.open_account(epsilon=1.2)
    declaration = load_spec(workspace.spec)
    with open_run(Synthesis(declaration, run_id="first", resume=False)) as run:
        run.reserve()
    check_run(declaration, resume=None, run_id="first")
    with pytest.raises(BudgetRefused):
        check_run(declaration, resume=None, run_id="second")
