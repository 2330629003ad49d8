"""dpflow's core: declare, charge, measure, release, in that order.

The front door: what flows, notebooks and other programs use.
"""

from dpcore import cli
from dpcore.curator.ask import ask
from dpcore.errors import DpflowError
from dpcore.ledger import Account, Balance
from dpcore.reporting.outcome import Outcome, Report
from dpcore.runs.reservation import adopt_output
from dpcore.runs.steps import check_run, synthesize
from dpcore.runs.synthesis import Synthesis
from dpcore.spec import Changes, Declaration, changed, json_schema, load_spec
from dpcore.steward.approvals import Approval, approval_for, check_approved, require_approval, require_none
from dpcore.steward.registry import Registered, all_registered, declared, register, registered, registered_names
from dpcore.strategies import step_name

__all__ = [
    "Account",
    "Approval",
    "Balance",
    "Changes",
    "Declaration",
    "DpflowError",
    "Outcome",
    "Registered",
    "Report",
    "Synthesis",
    "adopt_output",
    "all_registered",
    "approval_for",
    "ask",
    "changed",
    "check_approved",
    "check_run",
    "cli",
    "declared",
    "json_schema",
    "load_spec",
    "register",
    "registered",
    "registered_names",
    "require_approval",
    "require_none",
    "step_name",
    "synthesize",
]
