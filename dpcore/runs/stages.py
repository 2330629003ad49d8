"""The stages of a run: what it was granted, what was found in the data, and how a step gets what an earlier one has made."""

from dataclasses import dataclass
from typing import TypeVar

from dpcore.descent import Finding
from dpcore.errors import UsageError
from dpcore.ledger import Lease
from dpcore.runs.discovery import Count
from dpcore.runs.publication import Payer
from dpcore.runs.reading import Reading
from dpcore.runs.rounds import Plan

S = TypeVar("S")


@dataclass(frozen=True)
class Granted:
    """What a run was granted: its blocks are part of the plan. `reading` is None if the run is settled, and only replayed."""

    plan: Plan
    payer: Payer
    reading: Reading | None

    @property
    def lease(self) -> Lease | None:
        """The right to work on the run; None: the run is settled, and only replayed."""
        return None if self.reading is None else self.reading.lease

    @property
    def count(self) -> Count | None:
        """How to read and count the table; None: the run is settled, and only replayed."""
        return None if self.reading is None else self.reading.count


@dataclass(frozen=True)
class Found:
    """What was found in the data, and the plan that was made for it."""

    plan: Plan
    findings: tuple[Finding, ...]


class Stages:
    """The plans of a run: as declared, then as granted, then with what was found. None takes the place of an earlier one."""

    def __init__(self, declared: Plan) -> None:
        self.declared = declared
        self._granted: Granted | None = None
        self._found: Found | None = None

    def grant(self, granted: Granted) -> None:
        """Go on with what the run was granted."""
        self._granted = granted

    def find(self, found: Found) -> None:
        """Go on with what was found."""
        self._found = found

    @property
    def granted(self) -> Granted:
        """What the run was granted.

        Raises:
            UsageError: Nothing is reserved yet.
        """
        return made(self._granted, "nothing is reserved yet; reserve first")

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found in the data, column by column."""
        return () if self._found is None else self._found.findings

    @property
    def plan(self) -> Plan:
        """What the run works by at present."""
        if self._found is not None:
            return self._found.plan
        return self.declared if self._granted is None else self._granted.plan


def made(stage: S | None, otherwise: str) -> S:
    """Return what a step has made.

    Raises:
        UsageError: The step was not done yet.
    """
    if stage is None:
        raise UsageError(otherwise)
    return stage
