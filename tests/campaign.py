"""How often a test draws, kills or runs: a few times in `make test`, many times in `make campaign`.

A test that has a long version carries the marker `campaign`, and takes its number from `often`. Its short version is never skipped.
"""

import os
from typing import TypeVar

T = TypeVar("T")

CAMPAIGN = bool(os.environ.get("DPFLOW_CAMPAIGN"))


def often(short: T, *, campaign: T) -> T:
    """Return the number, or the list of cases, for this run of the tests."""
    return campaign if CAMPAIGN else short
