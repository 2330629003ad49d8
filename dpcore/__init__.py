"""dpflow's core: declare, charge, measure, release, in that order.

The front door: what flows, notebooks and other programs use.
"""

from dpcore import cli
from dpcore.errors import DpflowError
from dpcore.spec import Declaration, json_schema, load_spec
from dpcore.strategies import step_name
from dpcore.synthesis import Outcome, Synthesis, check_run, synthesize

__all__ = [
    "Declaration",
    "DpflowError",
    "Outcome",
    "Synthesis",
    "check_run",
    "cli",
    "json_schema",
    "load_spec",
    "step_name",
    "synthesize",
]
