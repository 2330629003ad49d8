"""A run says what it does after its rounds, and about how long that takes."""

import logging

import pytest

from dpcore import load_spec, synthesize
from dpcore.runs import rounds as module
from dpcore.runs.planning.costs import START_SECONDS, WITHIN, costs_of
from dpcore.runs.rounds import Countdown
from tests.conftest import Workspace

pytestmark = pytest.mark.usefixtures("rough_models")


def test_the_seconds_left_are_those_of_the_steps_that_are_not_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    countdown = Countdown({"rounds": 50.0, "last fit": 2.0, "replicates": 4.0, "errors": 8.0})
    assert countdown.seconds == 14
    with caplog.at_level(logging.INFO, logger="dpcore.progress"):
        countdown.begin("last fit", "fitting")
        now += 20.0  # later than planned: that step is over, and says nothing of the others
        countdown.begin("replicates", "fitting replicates")
        now += 3.0
        countdown.part("fit", parts=4)
        countdown.part("fit", parts=4)
        now += 3.0
        countdown.part("fit", parts=4)
        countdown.begin("errors", "computing errors")
    assert [record.getMessage() for record in caplog.records] == [
        "fitting, about 14 s left",
        "fitting replicates, about 12 s left",
        "fit 1/4, about 17 s left",
        "fit 2/4, about 11 s left",
        "fit 3/4, about 10 s left",
        "computing errors, about 8 s left",
    ]


def test_a_log_of_parts_depends_on_their_number_and_not_on_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def logged(seconds: float) -> list[str]:
        now = 0.0
        monkeypatch.setattr(module.time, "monotonic", lambda: now)
        countdown = Countdown({"rounds": 1.0, "errors": 1.0})
        caplog.clear()
        countdown.begin("errors", "computing errors")
        for _ in range(10):
            now += seconds
            countdown.part("table", parts=10)
        return [record.getMessage().split(",")[0] for record in caplog.records]

    with caplog.at_level(logging.INFO, logger="dpcore.progress"):
        quick, slow = logged(0.001), logged(100.0)
    assert quick == slow == ["computing errors", "table 3/10", "table 5/10", "table 8/10", "table 10/10"]


def test_every_slow_step_after_the_rounds_is_logged_with_the_seconds_left(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    workspace.open_account()
    with caplog.at_level(logging.INFO, logger="dpcore.progress"):
        synthesize(workspace.spec)
    said = [record.getMessage() for record in caplog.records]
    last = max(place for place, each in enumerate(said) if each.startswith("round "))
    begun = ["fitting the model", "drawing", "fitting", "computing the errors"]
    later = [
        each for each in said[last + 1 :] if not each.startswith(("warning", "fit ")) and "never measured" not in each
    ]
    assert [each.startswith(words) for each, words in zip(later, begun, strict=True)] == [True] * len(begun)
    assert all(each.endswith(" s left") for each in [said[last], *later])


def test_the_steps_of_a_plan_add_up_to_its_duration(workspace: Workspace) -> None:
    costs = costs_of(load_spec(workspace.spec), rows=1000, rounds=4, cells=8)
    assert list(costs.steps) == ["reading", "rounds", "last fit", "rows", "replicates", "errors"]
    assert sum(costs.steps.values()) * WITHIN == pytest.approx(costs.most_seconds - START_SECONDS[1])
