"""Plan a run from its spec, without data: its noise and cost, and the epsilon needed for a given error."""

from dpcore.runs.planning.plan import Plan, plan_run
from dpcore.runs.planning.target import Target, epsilon_for

__all__ = ["Plan", "Target", "epsilon_for", "plan_run"]
