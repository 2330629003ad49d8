"""What identifies a step: the flow run, the function and its arguments; or a name that the caller gives.

The flow run is Prefect's, if this process has imported Prefect. It stays the same when a run is retried or resumed. Outside any flow run, each
call is a step of its own.
"""

import inspect
import json
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from dpcore.budget.values import arguments_text
from dpcore.errors import UsageError
from dpcore.reporting.overview import TASK

_scope: ContextVar[str | None] = ContextVar("scope", default=None)
"""What stands for the flow run in a reserve outside any flow run."""


@dataclass(frozen=True)
class Step:
    """A step, as the ledger names it.

    Attributes:
        name: The name of its runs, up to the number of the attempt.
        claim: What its runs are for.
        scope: The flow run, in which it draws from a reserve; None outside.
    """

    name: str
    claim: str
    scope: str | None


def flow_run() -> str | None:
    """Return the id of the flow run that this code is in, or of a task run outside any flow; None if Prefect runs neither."""
    loaded = (sys.modules.get(f"prefect.runtime.{kind}_run") for kind in ("flow", "task"))
    found = (module.id for module in loaded if module is not None)
    return next((str(run) for run in found if run), _scope.get())


@contextmanager
def scoped() -> Iterator[str]:
    """Stand for a flow run, unless there is one. Yield its id."""
    run = flow_run()
    token = _scope.set(run or str(uuid.uuid4()))
    try:
        yield run or str(_scope.get())
    finally:
        _scope.reset(token)


def step_of_call(
    account: str, function: Callable[..., Any], *, name: str | None, arguments: tuple[tuple[Any, ...], dict[str, Any]]
) -> Step:
    """Return the step that a call of a function is."""
    bound = inspect.signature(function).bind(*arguments[0], **arguments[1])
    bound.apply_defaults()
    # The file and not the module: Prefect gives the module of a flow another name in each process.
    code = inspect.unwrap(function).__code__
    what = f"{Path(code.co_filename).name}:{function.__qualname__}"
    try:
        named = None if name is None else name.format(**bound.arguments)
    except (KeyError, IndexError, ValueError, AttributeError):
        raise UsageError(
            f"the name of step {function.__name__} must use its arguments only, as in 'mean-{{month}}'"
        ) from None
    return _step(account, function.__name__, what, name=named, text=arguments_text(dict(bound.arguments)))


def step_named(account: str, label: str, *, name: str | None) -> Step:
    """Return the step that a `with` statement is."""
    return _step(account, label, label, name=name, text="{}")


def _step(account: str, label: str, what: str, *, name: str | None, text: str) -> Step:
    scope = flow_run()
    place = f"name {name}" if name is not None else scope or str(uuid.uuid4())
    # With the flow run, which differs each time, so that equal arguments of two runs are not equal in the ledger.
    digest = digest_of([account, place, what, text])
    return Step(name if name is not None else f"{label}-{digest[:20]}", f"{TASK}{label} {digest}", scope)


def digest_of(parts: list[str]) -> str:
    """Return a hash of some texts."""
    return sha256(json.dumps(parts).encode()).hexdigest()
