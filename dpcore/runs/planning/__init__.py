"""What a run would do and cost, and which epsilon an error asks for: from the spec alone, without data."""

from dpcore.runs.planning.plan import Plan, plan_run
from dpcore.runs.planning.target import Target, epsilon_for

__all__ = ["Plan", "Target", "epsilon_for", "plan_run"]
