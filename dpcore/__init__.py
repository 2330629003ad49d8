"""dpflow's core: declare, charge, measure, release, in that order.

The public API for notebooks and programs. Names are imported lazily, so that `import dpcore` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpcore.answers.answer import answer
    from dpcore.answers.release import open_release
    from dpcore.answers.sample import sample
    from dpcore.answers.series import open_series
    from dpcore.budget import Budget
    from dpcore.curator.ask import ask
    from dpcore.errors import DpflowError
    from dpcore.ledger import Account, Balance
    from dpcore.reporting.outcome import Outcome
    from dpcore.runs.steps import synthesize
    from dpcore.session.session import Session
    from dpcore.spec import json_schema, load_spec
    from dpcore.textbook.online.opening import open_online

__all__ = [
    "Account",
    "Balance",
    "Budget",
    "DpflowError",
    "Outcome",
    "Session",
    "answer",
    "ask",
    "json_schema",
    "load_spec",
    "open_online",
    "open_release",
    "open_series",
    "sample",
    "synthesize",
]

_MODULES = {
    "Account": "dpcore.ledger",
    "Balance": "dpcore.ledger",
    "Budget": "dpcore.budget",
    "DpflowError": "dpcore.errors",
    "Outcome": "dpcore.reporting.outcome",
    "Session": "dpcore.session.session",
    "answer": "dpcore.answers.answer",
    "ask": "dpcore.curator.ask",
    "json_schema": "dpcore.spec",
    "load_spec": "dpcore.spec",
    "open_online": "dpcore.textbook.online.opening",
    "open_release": "dpcore.answers.release",
    "open_series": "dpcore.answers.series",
    "sample": "dpcore.answers.sample",
    "synthesize": "dpcore.runs.steps",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a public name on first use."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value
