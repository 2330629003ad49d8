"""What can be told about privacy from outputs alone: lower bounds to hold against what was charged."""

from dpcore.auditing.one_run import least_epsilon

__all__ = ["least_epsilon"]
