"""Prefect flows and tasks that leak nothing private, whatever happens inside them.

Prefect stores the text of an exception in five places, logs return values in debug mode, and walks through arguments. So a task takes
and returns public values only. Its warnings go to the steward's log, and every error that leaves it is a new one, made from public
words only.
"""

import asyncio
import functools
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from inspect import Parameter, signature
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

import httpx
from prefect import Flow, State, Task
from prefect.cache_policies import NO_CACHE
from prefect.context import TaskRunContext
from prefect.exceptions import (
    Abort,
    CancelledRun,
    ExternalSignal,
    Pause,
    PausedRun,
    PrefectSignal,
    TerminationSignal,
)

import dpcore
from dpcore import private_log as stewardlog
from dpcore.errors import DpflowError, StepFailed
from dpcore.version import installed_version
from flows.tasks.progress import progress_in_run_log
from flows.tasks.refusals import end_refused, ends_refused, refused_state

P = ParamSpec("P")
R = TypeVar("R")

# What ends or suspends a run from outside, each class after its subclasses. Every other error, also one that is no Exception,
# such as the panic of a compiled library, becomes a StepFailed.
CONTROL = (
    KeyboardInterrupt,
    SystemExit,
    GeneratorExit,
    asyncio.CancelledError,
    Abort,
    Pause,
    PrefectSignal,
    TerminationSignal,
    ExternalSignal,
    CancelledRun,
    PausedRun,
)

OUR_CODE = (Path(dpcore.__file__).parent, Path(__file__).parents[1])


class PrivateTask(Task[P, R]):
    """A Prefect task that ends in the state Refused if it was refused. For its caller, the refusal is raised like any other error."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:  # type: ignore[override]  # never called with return_state
        """Run the task in this thread and return its result."""
        result: Any = super().__call__(*args, **kwargs)
        if isinstance(result, State):
            raise cast("DpflowError", getattr(result.data, "result", result.data))  # Prefect has wrapped it in a record
        return cast("R", result)


def private_task(*, name: str, task_run_name: str | None = None) -> Callable[[Callable[P, R]], PrivateTask[P, R]]:
    """Make a function a task. Its arguments and result must be public: Prefect walks through both, although it stores neither.

    Nothing is cached or retried, no result is written to a store, and printed output is not logged. Prefect stores errors, whose text is public.

    Args:
        name: The task's name.
        task_run_name: The name of its runs, in which `{parameter}` stands for an argument. Default: the task's name.
    """

    def decorate(function: Callable[P, R]) -> PrivateTask[P, R]:
        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            current = TaskRunContext.get()
            try:
                return guarded(function, where=current.task_run.name if current else name)(*args, **kwargs)
            except DpflowError as error:
                if not ends_refused(error):
                    raise
                refusal = error
            return cast("R", refused_state(refusal, data=refusal))

        return PrivateTask(
            run,
            name=name,
            task_run_name=task_run_name or name,
            persist_result=False,
            cache_policy=NO_CACHE,
            cache_result_in_memory=False,
            log_prints=False,
            retries=0,
        )

    return decorate


def private_flow(
    *, name: str, flow_run_name: str | Callable[[], str] | None = None
) -> Callable[[Callable[P, R]], Flow[P, R]]:
    """Make a function a flow. Its parameters must be public: they are validated, shown and stored.

    Keyword-only parameters are options for callers in the same process. The form of a deployment does not have them.

    While the flow runs, dpcore's progress lines go to the run's log. A refusal ends a deployed run in the state Refused; for any other
    caller, it is raised like any other error.
    """

    def decorate(function: Callable[P, R]) -> Flow[P, R]:
        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            with progress_in_run_log():
                try:
                    return guarded(function, where=name)(*args, **kwargs)
                except DpflowError as error:
                    if not ends_refused(error):
                        raise
                    refusal = error
            return guarded(end_refused, where=name)(refusal)

        flow = Flow(
            run,
            name=name,
            version=installed_version(),
            flow_run_name=flow_run_name,
            persist_result=False,
            log_prints=False,
            retries=0,
        )
        form = [it for it in signature(function).parameters.values() if it.kind is not Parameter.KEYWORD_ONLY]
        # A deployment's form is made from this signature. A call is still bound to the function's own parameters.
        flow.__signature__ = signature(function).replace(parameters=form)  # type: ignore[attr-defined]
        return flow

    return decorate


def guarded(function: Callable[P, R], *, where: str) -> Callable[P, R]:
    """Wrap a function so that every error is replaced by its public form, and every warning goes to the steward's log."""

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        # A handler only assigns: Python delivers signals at calls, so none arrives in it with the private error as its context.
        private: BaseException | None = None
        late: BaseException | None = None
        seen: list[warnings.WarningMessage] | None = None
        try:
            with warnings.catch_warnings(record=True) as seen:
                try:
                    result = function(*args, **kwargs)
                except BaseException as error:  # noqa: BLE001  no error may escape; control signals keep their kind
                    private = error
            if seen:
                stewardlog.note("\n".join(map(str, seen)), where=f"warnings of {where}")
            if private is None:
                return result
            public = public_form(private, where=where)
        except BaseException as error:  # noqa: BLE001  a signal meanwhile
            late = error
        # What is private is deleted from this frame, which the new error refers to.
        del args, kwargs, seen, private
        if late is not None:
            public = _late_form(late, where=where)
        del late
        raise public from None  # outside of any handler, so that it gets no context

    return call


def public_form(error: BaseException, *, where: str) -> BaseException:
    """Return the form of an error that may be shown, logged and stored, without traceback, cause or context."""
    if isinstance(error, CONTROL):
        return _without_words(error)
    if isinstance(error, DpflowError):
        if error.__cause__ or error.__context__:
            stewardlog.record(error, where=where)
        return _fresh(error)
    log = stewardlog.record(error, where=where)
    details = f"the details are in the steward's log {log.name}" if log else "the steward's log could not be written"
    kind = _public_name(type(error))
    if isinstance(error, httpx.HTTPError):  # dpcore makes no HTTP calls, so this was one to Prefect's API
        return DpflowError(
            f"the Prefect server failed in {where} ({kind}); check that it is running, then resume the run; {details}"
        )
    return StepFailed(f"step {where} failed: {kind} at {_place(error.__traceback__)}; {details}")


def _late_form(error: BaseException, *, where: str) -> BaseException:
    """Return the public form of an error in the handling of another one. Nothing is logged, because that may be what failed."""
    if isinstance(error, CONTROL):
        return _without_words(error)
    return StepFailed(f"step {where} failed, and the details could not be recorded; resume the run")


def _without_words(error: BaseException) -> BaseException:
    """Return a new error of the same kind. It keeps only an exit code, a signal's number and the state that the server gave the run."""
    kind = next(kind for kind in CONTROL if isinstance(error, kind))
    fresh = kind.__new__(kind)  # not of a subclass, which may hold words or make some
    code, number, state = (getattr(error, name, None) for name in ("code", "signal", "state"))
    if isinstance(fresh, SystemExit):
        fresh.code = int(code) if isinstance(code, int) else 1
        fresh.args = (fresh.code,)
    elif isinstance(fresh, TerminationSignal):
        fresh.signal = int(number) if isinstance(number, int) else signal.SIGTERM
    elif isinstance(fresh, Abort | Pause | PausedRun):  # an Abort of ours has a state, too
        fresh.state = state if isinstance(state, State) else None  # type: ignore[union-attr]
    return fresh


def _fresh(error: DpflowError) -> DpflowError:
    """Return an equal error that was never raised. Notes are dropped, because any code may have added them."""
    fresh = type(error).__new__(type(error), *error.args)
    fresh.__dict__.update((name, value) for name, value in vars(error).items() if name != "__notes__")
    return fresh


def _public_name(kind: type[BaseException]) -> str:
    """Return the name of a class if it stands in a module. A class that is made at run time may be named after a value."""
    named: object = None
    with suppress(Exception):  # a class may state anything as its module, and a module may compute its attributes
        named = sys.modules.get(kind.__module__)
        for part in kind.__qualname__.split("."):
            named = getattr(named, part, None)
    return kind.__name__ if named is kind else "an error"


def _place(trace: TracebackType | None) -> str:
    """Return file name and line of our innermost frame. The position inside a library may depend on the data."""
    frames = [(Path(frame.f_code.co_filename), line) for frame, line in traceback.walk_tb(trace)]
    called = frames[1:] or frames  # the first frame is the guard's
    ours = [(file, line) for file, line in called if any(file.is_relative_to(root) for root in OUR_CODE)]
    file, line = ours[-1] if ours else called[0]
    return f"{file.name}:{line}"
