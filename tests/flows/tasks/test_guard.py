import asyncio
import dis
import logging
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pydantic
import pytest
from prefect import flow, get_client, task
from prefect.exceptions import Abort, CancelledRun, Pause, PausedRun, TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Suspended

from dpcore.errors import BudgetRefused, DpflowError, SourceError, StepFailed
from flows.tasks.guard import PrivateTask, guarded, private_flow, private_task
from tests.flows.stack import wait_for

pytestmark = pytest.mark.prefect

MARKER = "Zq7_private%value"  # an underscore and a percent sign, because both are wildcards somewhere


class Panic(BaseException):
    """As compiled libraries raise it: no Exception, and with a text that quotes what it found."""


class Row(pydantic.BaseModel):
    age: int


def stumble() -> None:
    raise KeyError(MARKER)


def chained() -> None:
    try:
        stumble()
    except KeyError as error:
        raise ValueError(f"bad row {MARKER}") from error


def in_pandas() -> None:
    pd.Series([MARKER]).astype(float)


def in_pydantic() -> None:
    Row.model_validate({"age": MARKER})


def in_locals() -> None:
    value = MARKER
    del value[0]  # type: ignore[attr-defined]


def with_a_note() -> None:
    error = SourceError("the table cannot be read")
    error.add_note(MARKER)
    raise error


def public_over_private() -> None:
    try:
        stumble()
    except KeyError as error:
        raise SourceError("the table cannot be read") from error


def in_a_panic() -> None:
    raise Panic(MARKER)


def in_a_group() -> None:
    raise ExceptionGroup(MARKER, [ValueError(MARKER)])


def by_an_interrupt() -> None:
    try:
        stumble()
    except KeyError:
        raise KeyboardInterrupt  # noqa: B904  the context that comes by itself is what is tested


def step(name: str, function: Callable[..., Any]) -> PrivateTask[..., Any]:
    """Make a task whose runs have exactly this name, and which is named by its last part."""
    return private_task(name=name.rpartition("/")[2], task_run_name=name)(function)


FAILURES: list[Callable[[], None]] = [
    *(
        chained,
        in_pandas,
        in_pydantic,
        in_locals,
        with_a_note,
        public_over_private,
        in_a_panic,
        in_a_group,
        by_an_interrupt,
    )
]


@private_flow(name="failing")
def failing(number: int, *, inside: bool) -> None:
    function = FAILURES[number]
    step(f"round-001/{function.__name__}", function)() if inside else function()


@private_flow(name="speaking")
def speaking(rounds: int) -> list[str]:
    def say(number: int) -> str:
        logging.getLogger("dpcore.progress").info("round %d/%d", number, rounds)
        return str(flow_run.id)

    return [step(f"round-{number:03d}/say", say)(number) for number in range(1, rounds + 1)]


@pytest.fixture(scope="module")
def failed(
    prefect_server: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, bool], tuple[BaseException, str]]:
    """What every failure, in a step and in the flow itself, raised, and what the steward read about it."""
    outcomes = {}
    for number, function in enumerate(FAILURES):
        for inside in (True, False):
            folder = tmp_path_factory.mktemp("private")
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("DPFLOW_PRIVATE", str(folder))
                with pytest.raises((DpflowError, KeyboardInterrupt)) as caught:
                    failing(number, inside=inside)
            log = folder / "failures.log"
            outcomes[function.__name__, inside] = caught.value, log.read_text() if log.exists() else ""
    return outcomes


@pytest.mark.parametrize("inside", [True, False], ids=["step", "flow"])
@pytest.mark.parametrize("name", [function.__name__ for function in FAILURES])
def test_what_leaves_a_failing_run_holds_nothing_private(
    name: str, inside: bool, failed: dict[tuple[str, bool], tuple[BaseException, str]]
) -> None:
    error, log = failed[name, inside]
    assert MARKER not in "".join(traceback.format_exception(error))
    assert MARKER not in repr(vars(error))
    assert (error.__cause__, error.__context__) == (None, None)
    assert name not in {frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)}
    assert (MARKER in log) == (name not in {"with_a_note", "in_locals", "by_an_interrupt"})


def test_nothing_that_prefect_stored_of_all_these_runs_holds_the_marker(
    failed: dict[tuple[str, bool], tuple[BaseException, str]], stored: Callable[[str], list[str]]
) -> None:
    assert stored("round-001/in_pandas")  # these runs are what is searched
    assert stored("StepFailed")
    assert stored(MARKER) == []


def test_the_search_finds_a_marker_that_an_ordinary_task_gives_away(stored: Callable[[str], list[str]]) -> None:
    other = MARKER.replace("Z", "Y")

    @task
    def careless() -> None:
        raise ValueError(other)

    @flow
    def ordinary() -> None:
        careless()

    with pytest.raises(ValueError, match="Yq7"):
        ordinary()
    places = {"log.message", "task_run_state.message", "flow_run_state.message"}
    wait_for(lambda: places <= set(stored(other)), "the marker in every place", tell=lambda: str(stored(other)))


def test_an_unforeseen_error_is_named_by_type_and_place_only() -> None:
    with pytest.raises(StepFailed) as caught:
        step("round-007/measure", chained)()
    line = chained.__code__.co_firstlineno + 4  # where it says raise
    expected = f"step round-007/measure failed: ValueError at test_guard.py:{line}; the details are in the steward's log failures.log"
    assert str(caught.value) == expected


def test_without_a_steward_log_the_message_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DPFLOW_PRIVATE", str(tmp_path / "file" / "private"))
    with pytest.raises(StepFailed, match="the steward's log could not be written"):
        guarded(chained, where="a")()


def test_a_refusal_arrives_as_itself_with_its_numbers() -> None:
    def refuse() -> None:
        raise BudgetRefused("too dear", requested=3, remaining=2)

    @private_flow(name="refusing")
    def refusing() -> None:
        step("reserve", refuse)()

    with pytest.raises(BudgetRefused, match="too dear") as caught:
        refusing()
    assert (caught.value.requested, caught.value.remaining, caught.value.difference) == (3, 2, 1)


@pytest.mark.parametrize(
    "control",
    [
        KeyboardInterrupt(),
        SystemExit(3),
        asyncio.CancelledError(),
        Abort(),
        Pause(state=Suspended()),
        PausedRun(state=Suspended()),
        TerminationSignal(signal=15),
        CancelledRun("stop"),
    ],
)
def test_what_ends_or_suspends_a_run_from_outside_arrives_as_the_same_kind(control: BaseException) -> None:
    def interrupted() -> None:
        try:
            stumble()
        except KeyError:
            raise control  # noqa: B904  the context that comes by itself is what is tested

    with pytest.raises(type(control)) as caught:
        guarded(interrupted, where="a")()
    assert type(caught.value) is type(control)
    assert caught.value.__context__ is None
    for name in ("code", "signal", "state"):
        assert getattr(caught.value, name, None) == getattr(control, name, None)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, Pause, CancelledRun])
def test_what_ends_a_run_from_outside_carries_no_words(kind: type[BaseException]) -> None:
    def interrupted() -> None:
        control = kind(MARKER)
        control.add_note(MARKER)
        raise control

    with pytest.raises(kind) as caught:
        guarded(interrupted, where="a")()
    assert MARKER not in "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))


@pytest.mark.parametrize(
    "kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, Abort, Pause, TerminationSignal, CancelledRun]
)
def test_a_subclass_that_makes_its_own_words_of_what_ends_a_run_is_left_behind(kind: type[BaseException]) -> None:
    class Speaking(kind):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            self.code = self.signal = self.state = self.words = MARKER

        def __str__(self) -> str:
            return MARKER

    def interrupted() -> None:
        raise Speaking

    with pytest.raises(kind) as caught:
        guarded(interrupted, where="a")()
    assert type(caught.value) is kind
    assert MARKER not in "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
    assert getattr(caught.value, "code", 1) == 1
    assert getattr(caught.value, "signal", 15) == 15


def test_a_class_that_stands_in_no_module_is_not_named() -> None:
    def made_at_run_time() -> None:
        raise type(MARKER, (ValueError,), {"__module__": "builtins"})(MARKER)

    with pytest.raises(StepFailed, match="step a failed: an error at test_guard") as caught:
        guarded(made_at_run_time, where="a")()
    assert MARKER not in str(caught.value)


@pytest.mark.parametrize("module", [[MARKER], {}, None, 5])
def test_a_class_may_state_anything_as_its_module(module: object) -> None:
    def made_at_run_time() -> None:
        raise type(MARKER, (ValueError,), {"__module__": module})(MARKER)

    with pytest.raises(StepFailed, match="step a failed: an error at test_guard"):
        guarded(made_at_run_time, where="a")()


@pytest.mark.parametrize("late", [KeyboardInterrupt(MARKER), TerminationSignal(signal=15), ValueError(MARKER)])
@pytest.mark.parametrize("place", ["public_form", "stewardlog.record", "stewardlog.note", "_public_name"])
def test_a_signal_while_an_error_is_handled_brings_nothing_private(
    monkeypatch: pytest.MonkeyPatch, late: BaseException, place: str
) -> None:
    def warn_and_stumble() -> None:
        warnings.simplefilter("always")
        warnings.warn(MARKER, stacklevel=1)
        stumble()

    def interrupted(*_: object, **__: object) -> None:
        raise late

    monkeypatch.setattr(f"flows.tasks.guard.{place}", interrupted)
    with pytest.raises((type(late), StepFailed)) as caught:
        guarded(warn_and_stumble, where="a")()
    assert type(caught.value) is (StepFailed if isinstance(late, ValueError) else type(late))
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    assert MARKER not in "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))


@pytest.mark.parametrize("place", ["public_form", "stewardlog.record", "stewardlog.note", "_public_name"])
def test_a_second_signal_brings_nothing_private_either(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    def warn_and_stumble() -> None:
        warnings.simplefilter("always")
        warnings.warn(MARKER, stacklevel=1)
        stumble()

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"flows.tasks.guard.{place}", interrupted)
    monkeypatch.setattr("flows.tasks.guard._late_form", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        guarded(warn_and_stumble, where="a")()
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    assert MARKER not in "".join(traceback.format_exception(caught.value))


def test_a_handler_of_a_private_error_calls_nothing() -> None:
    """Python delivers signals at calls and at the end of loops, so that none arrives in a handler that does neither."""
    (call,) = (code for code in guarded.__code__.co_consts if isinstance(code, CodeType))
    handlers = {entry.target for entry in dis.Bytecode(call).exception_entries}
    steps = list(dis.Bytecode(call))
    bodies = []
    for number, it in enumerate(steps):
        if it.offset in handlers and steps[number + 1].opname == "LOAD_GLOBAL" and it.opname == "PUSH_EXC_INFO":
            ended = next(at for at in range(number, len(steps)) if steps[at].opname == "POP_EXCEPT")
            bodies.append({each.opname for each in steps[number:ended]})
    assert len(bodies) == 2
    assert not any(name.startswith(("CALL", "JUMP_BACKWARD")) for body in bodies for name in body)


def test_a_public_error_holds_no_warning_of_its_step() -> None:
    def warn_and_stumble() -> None:
        warnings.simplefilter("always")
        warnings.warn(MARKER, stacklevel=1)
        stumble()

    with pytest.raises(DpflowError) as caught:
        guarded(warn_and_stumble, where="a")()
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert not any("seen" in held for held in frames)


def test_a_steps_warnings_go_to_the_steward(steward: Path) -> None:
    def warn() -> int:
        warnings.simplefilter("always")
        warnings.warn(MARKER, stacklevel=1)
        return 5

    with warnings.catch_warnings(record=True) as seen:
        assert step("ingest", warn)() == 5
    assert not seen
    assert MARKER in steward.read_text()


def test_a_step_gets_the_very_objects_it_is_called_with_and_hands_back_the_very_result() -> None:
    array, table = np.zeros(3), {"list": [1, 2, 3]}

    def same(first: Any, *, second: Any) -> tuple[Any, Any]:
        return first, second

    first, second = step("ingest", same)(array, second=table)
    assert first is array
    assert second is table


def test_steps_and_progress_lines_are_recorded_without_an_echo(
    stored: Callable[[str], list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    speaking(11)
    wait_for(lambda: "task_run.name" in stored("round-011/say"), "the last step's record")
    assert stored("round 11/11") == ["log.message"]
    assert capfd.readouterr() == ("", "")


def test_every_step_knows_the_flow_run_it_belongs_to() -> None:
    (known,) = set(speaking(2))
    with get_client(sync_client=True) as client:
        assert client.read_flow_run(UUID(known)).state_name == "Completed"


def test_flow_parameters_are_validated() -> None:
    with pytest.raises(Exception, match="rounds"):
        speaking("many")  # type: ignore[arg-type]


def test_a_flow_can_be_found_by_its_module_and_name() -> None:
    assert speaking._entrypoint.endswith(":speaking")
    assert (speaking.retries, speaking.persist_result, speaking.log_prints, speaking.should_validate_parameters) == (
        0,
        False,
        False,
        True,
    )
