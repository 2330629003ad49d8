"""dpflow's core: declare, charge, measure, release, in that order.

The front door: what flows, notebooks and other programs use.
"""

from dpcore import cli
from dpcore.approvals import Approval, approval_for, check_approved, require_approval, require_none
from dpcore.asking import ask
from dpcore.errors import DpflowError
from dpcore.ledger import Account, Balance
from dpcore.registry import Registered, all_registered, declared, register, registered, registered_names
from dpcore.report import Outcome, Report
from dpcore.spec import Changes, Declaration, changed, json_schema, load_spec
from dpcore.strategies import step_name
from dpcore.synthesis import Synthesis, adopt_output, check_run, synthesize

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
