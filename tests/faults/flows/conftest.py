"""Faults happen to flows, too: what the tests of flows share."""

from tests.flows.conftest import _clean_home, _served, prefect_server, steward, stored, workspace
from tests.flows.stack import pytest_runtest_setup, pytest_runtest_teardown, stack

__all__ = [
    "_clean_home",
    "_served",
    "prefect_server",
    "pytest_runtest_setup",
    "pytest_runtest_teardown",
    "stack",
    "steward",
    "stored",
    "workspace",
]
