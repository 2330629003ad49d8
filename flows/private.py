"""Prefect flows and tasks that give nothing private away, whatever happens inside them.

Prefect stores the text of an exception in five places, writes return values into its log when it is debugged, and walks
through arguments. So a private function gets its arguments and hands back its result in a sealed envelope, its warnings
go to the steward's log, and every error that leaves it is a new one that was made from public words only.
"""

import asyncio
import functools
import traceback
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import httpx
from prefect import Flow, Task
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import CancelledRun, ExternalSignal, PausedRun, PrefectSignal

import dpcore
from dpcore import stewardlog
from dpcore.errors import DpflowError, StepFailed
from flows.progress import progress_in_run_log

P = ParamSpec("P")
R = TypeVar("R")

# What ends or suspends a run from outside. Every other error, also one that is no Exception, such as the panic of a
# compiled library, is replaced.
CONTROL = (
    KeyboardInterrupt,
    SystemExit,
    GeneratorExit,
    asyncio.CancelledError,
    PrefectSignal,
    ExternalSignal,
    CancelledRun,
    PausedRun,
)

OUR_CODE = (Path(dpcore.__file__).parent, Path(__file__).parent)


class _Sealed:
    """An envelope with nothing to show or to walk through: a step's call on the way in, its result on the way out.

    It is opened once and is empty from then on, so that Prefect, which keeps the envelope for longer, keeps nothing private alive.
    """

    __slots__ = ("__weakref__", "_content", "name")

    def __init__(self, content: Any, *, name: str) -> None:
        self._content = content
        self.name = name

    def open(self) -> Any:
        """Take out what is inside."""
        content, self._content = self._content, None
        return content

    def __repr__(self) -> str:
        return f"<sealed: {self.name}>"


def step(name: str, function: Callable[P, R]) -> Callable[P, R]:
    """Return `function` as a step: a call of it is a Prefect task run with exactly this name.

    The last part of the name is the task's: `step("round-007/select", run.select)(7)` is a run of the task `select`.
    """
    task = private_task(name.rpartition("/")[2])

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        result: R = task(_Sealed(functools.partial(function, *args, **kwargs), name=name)).open()
        return result

    return call


@functools.cache
def private_task(kind: str) -> Task[[_Sealed], _Sealed]:
    """Return the one Prefect task for all steps of a kind: never cached, stored, printed or retried."""

    def run(call: _Sealed) -> _Sealed:
        return _Sealed(guarded(call.open(), where=call.name)(), name=call.name)

    run.__name__ = run.__qualname__ = kind
    return Task(
        run,
        name=kind,
        task_run_name=_run_name,  # type: ignore[arg-type]  # Prefect asks the function itself
        description=f"The step {kind} of a private run",
        cache_policy=NO_CACHE,
        persist_result=False,
        log_prints=False,
        retries=0,
    )


def _run_name(parameters: dict[str, _Sealed]) -> str:
    return parameters["call"].name


def private_flow(
    *, name: str, flow_run_name: str | Callable[[], str] | None = None
) -> Callable[[Callable[P, R]], Flow[P, R]]:
    """Make a flow of a function whose parameters are public: they are validated, shown and stored.

    While it runs, the lines that dpcore reports as its progress are in the log of the run.
    """

    def decorate(function: Callable[P, R]) -> Flow[P, R]:
        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            with progress_in_run_log():
                return guarded(function, where=name)(*args, **kwargs)

        return Flow(
            run,
            name=name,
            version=version("dpflow"),
            flow_run_name=flow_run_name,
            persist_result=False,
            log_prints=False,
            retries=0,
        )

    return decorate


def guarded(function: Callable[P, R], *, where: str) -> Callable[P, R]:
    """Return `function` with every error replaced by its public form, and every warning kept for the steward."""

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with warnings.catch_warnings(record=True) as seen:
            try:
                return function(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001  totality is the point; what must pass, passes as itself
                public = public_form(error, where=where)
            finally:
                if seen:
                    stewardlog.note("\n".join(map(str, seen)), where=f"warnings of {where}")
        # Only here, where no exception is being handled, does the new error get no context. The arguments leave its frame.
        del args, kwargs
        raise public from None

    return call


def public_form(error: BaseException, *, where: str) -> BaseException:
    """Return what may be shown, logged and stored of an error, without traceback, cause or context."""
    if isinstance(error, CONTROL):
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)
    if isinstance(error, DpflowError):
        if error.__cause__ or error.__context__:
            stewardlog.record(error, where=where)
        return _fresh(error)
    log = stewardlog.record(error, where=where)
    details = f"the details are in the steward's log {log.name}" if log else "the steward's log could not be written"
    kind = type(error).__name__
    if isinstance(error, httpx.HTTPError):  # dpcore knows no HTTP: this was a call to Prefect's own API
        return DpflowError(
            f"the Prefect server failed in {where} ({kind}); see that it runs, then resume the run; {details}"
        )
    return StepFailed(f"step {where} failed: {kind} at {_place(error.__traceback__)}; {details}")


def _fresh(error: DpflowError) -> DpflowError:
    """Return an equal error that was never raised. Notes stay behind: anybody may have added them."""
    fresh = type(error).__new__(type(error), *error.args)
    fresh.__dict__.update((name, value) for name, value in vars(error).items() if name != "__notes__")
    return fresh


def _place(trace: TracebackType | None) -> str:
    """Return file name and line of the innermost frame that is ours: how deep it went in a library may depend on the data."""
    frames = [(Path(frame.f_code.co_filename), line) for frame, line in traceback.walk_tb(trace)]
    called = frames[1:] or frames  # the first is the guard's own
    ours = [(file, line) for file, line in called if any(file.is_relative_to(root) for root in OUR_CODE)]
    file, line = ours[-1] if ours else called[0]
    return f"{file.name}:{line}"
