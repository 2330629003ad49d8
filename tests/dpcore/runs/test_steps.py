"""The one list of steps: their order, what a driver passes on, and the runs that are open in a process."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from dpcore import Outcome, load_spec
from dpcore.errors import BudgetRefused, RunHeld, UsageError
from dpcore.marginals.measurements import Measurement, Selection
from dpcore.runs import steps
from dpcore.runs.rounds import Exhausted
from dpcore.runs.steps import PLAIN, Done, Learned, Reserved, Steps, in_order, open_run, opened
from dpcore.runs.synthesis import Synthesis
from tests.conftest import Workspace

OUTCOME: Any = object()


def noting(calls: list[str], *, reserved: Reserved, rounds: int) -> Steps:
    """Return steps that do nothing but note down that they were called, each with the result of the one before."""
    results: list[Any] = ["run"]

    def step(name: str, result: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            assert given[0] == "run"
            assert given[-1] is results[-1]
            calls.append(name if len(given) < 3 else f"{name} {given[1]}")
            results.append(result(*given))
            return results[-1]

        return call

    def learned(_run: str, number: Any, *_given: Any) -> Learned:
        done = number if isinstance(number, int) else 0
        return Learned(next_round=done + 1 if done < rounds else 0)

    made: dict[str, Callable[..., Any]] = {it.name: lambda *_: Done() for it in fields(Steps)}
    made |= {"reserve": lambda *_: reserved, "begin": learned, "update": learned, "settle": lambda *_: OUTCOME}
    return Steps(**{name: step(name, result) for name, result in made.items()})


@pytest.mark.parametrize(
    ("reserved", "optional"),
    [
        (Reserved(checks_rows=False, discovers=False), []),
        (Reserved(checks_rows=True, discovers=False), ["check_rows"]),
        (Reserved(checks_rows=False, discovers=True), ["discover"]),
        (Reserved(checks_rows=True, discovers=True), ["check_rows", "discover"]),
        (
            Reserved(checks_rows=True, discovers=True, chooses_limit=True),
            ["choose_limit", "check_rows", "discover"],
        ),
        (
            Reserved(checks_rows=True, discovers=True, groups_rows=True),
            ["check_rows", "learn_sizes", "discover"],
        ),
    ],
)
@pytest.mark.parametrize("rounds", [0, 2])
def test_steps_come_in_order_and_each_gets_the_result_of_the_one_before(
    reserved: Reserved, optional: list[str], rounds: int
) -> None:
    calls: list[str] = []
    assert in_order("run", noting(calls, reserved=reserved, rounds=rounds)) is OUTCOME
    made = [f"{action} {number}" for number in range(1, rounds + 1) for action in ("select", "measure", "update")]
    assert calls == ["reserve", *optional, "ingest", "histogram", "begin", *made, "sample", "publish", "settle"]


def test_a_run_whose_release_is_in_its_place_is_only_settled() -> None:
    calls: list[str] = []
    reserved = Reserved(checks_rows=True, discovers=True, published=True)
    assert in_order("run", noting(calls, reserved=reserved, rounds=2)) is OUTCOME
    assert calls == ["reserve", "settle"]


def test_progress_is_told_after_the_first_model_and_after_each_round() -> None:
    calls: list[str] = []
    given = noting(calls, reserved=Reserved(checks_rows=False, discovers=False), rounds=2)
    in_order("run", given, after_learning=lambda: calls.append("told"))
    assert [calls[place - 1] for place, call in enumerate(calls) if call == "told"] == ["begin", "update 1", "update 2"]


def test_a_run_is_found_by_its_id_while_it_is_open_and_closed_then(workspace: Workspace) -> None:
    workspace.open_account()
    run = Synthesis(load_spec(workspace.spec), run_id="r1", resume=False)
    with open_run(run) as run_id:
        assert (run_id, opened("r1")) == ("r1", run)
        second = Synthesis(load_spec(workspace.spec), run_id="r1", resume=False)
        with pytest.raises(RunHeld, match="run r1 is already open in this process"), open_run(second):
            pass
        assert opened("r1") is run
    for lost in (lambda: opened("r1"), lambda: steps.reserve("r1")):
        with pytest.raises(UsageError, match="run r1 is not open in this process"):
            lost()
    for ledger in (run.ledger, second.ledger):
        with pytest.raises(Exception, match="closed"):
            ledger.head()


def test_steps_return_public_values_only(workspace: Workspace) -> None:
    workspace.open_account()
    returned: list[Any] = []

    def watched(step: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            returned.append(step(*given))
            return returned[-1]

        return call

    watching = Steps(**{it.name: watched(getattr(PLAIN, it.name)) for it in fields(Steps)})
    with open_run(Synthesis(load_spec(workspace.spec), run_id="r1", resume=False)) as run_id:
        with pytest.raises(UsageError, match="sample before publishing"):
            steps.publish(run_id, Done())
        in_order(run_id, watching)
    assert {type(it) for it in returned} == {Reserved, Done, Learned, Selection, Measurement, Outcome}


def test_a_round_without_budget_passes_that_on(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.open_account()
    run = Synthesis(load_spec(workspace.spec), run_id="r1", resume=False)
    with open_run(run) as run_id:
        run.reserve()
        run.histogram(run.ingest())
        learned = steps.begin(run_id, Done())
        monkeypatch.setattr(run.curator, "exhausted", lambda *_, **__: True)
        selection = steps.select(run_id, 1, learned)
        assert selection == steps.measure(run_id, 1, selection) == Exhausted()
        assert steps.update(run_id, 1, Exhausted()) == Learned(next_round=0)


def test_what_a_run_has_reserved_already_counts_as_paid(workspace: Workspace) -> None:
    workspace.open_account(epsilon=1.2)
    declaration = load_spec(workspace.spec)
    run = Synthesis(declaration, run_id="first", resume=False)
    with open_run(run):
        run.reserve()
    steps.check_run(declaration, resume=None, run_id="first")
    with pytest.raises(BudgetRefused):
        steps.check_run(declaration, resume=None, run_id="second")
