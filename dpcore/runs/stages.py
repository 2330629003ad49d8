"""The stages of a run: the declared plan, the granted plan, its plan with a chosen limit, after discovery, and after dependencies are learned."""

from dataclasses import dataclass
from typing import TypeVar

from dpcore.descent import Finding
from dpcore.errors import UsageError
from dpcore.ledger import Lease
from dpcore.release import ChosenLimit
from dpcore.runs.discovery import Count
from dpcore.runs.publication import Payer
from dpcore.runs.reading import Reading
from dpcore.runs.rounds import Plan
from dpcore.strategies import Given
from dpcore.universe.dependencies import LearnedFunction

S = TypeVar("S")

_UNRESERVED = "nothing is reserved yet; reserve first"


@dataclass(frozen=True)
class Granted:
    """The plan that a run was granted, including its blocks. `reading` is None if the run is settled and only replayed."""

    plan: Plan
    payer: Payer
    reading: Reading | None

    @property
    def lease(self) -> Lease | None:
        """The lease on the run; None if the run is settled and only replayed."""
        return None if self.reading is None else self.reading.lease

    def renew_lease(self) -> None:
        """Renew the lease, if there is one, during long work that changes nothing in the ledger."""
        if self.reading is not None:
            self.reading.renew()

    @property
    def count(self) -> Count | None:
        """Reads and counts the table; None if the run is settled and only replayed."""
        return None if self.reading is None else self.reading.count


@dataclass(frozen=True)
class Found:
    """The findings of discovery, and the plan that was made for them."""

    plan: Plan
    findings: tuple[Finding, ...]
    given: Given


class Stages:
    """The plans of a run: as declared, as granted, with a chosen limit, after discovery, and after dependencies are learned. No later plan overwrites an earlier one."""

    def __init__(self, declared: Plan) -> None:
        self.declared = declared
        self._granted: Granted | None = None
        self._limited: tuple[Granted, ChosenLimit] | None = None
        self._found: Found | None = None
        self._related: tuple[Plan, tuple[LearnedFunction, ...]] | None = None

    def grant(self, granted: Granted) -> None:
        """Continue with the granted plan."""
        self._granted = granted

    def limit(self, granted: Granted, chosen: ChosenLimit) -> None:
        """Continue with the granted plan under a chosen limit on the rows of a unit."""
        self._limited = granted, chosen

    def find(self, found: Found) -> None:
        """Continue with the plan after discovery."""
        self._found = found

    def relate(self, plan: Plan, functions: tuple[LearnedFunction, ...]) -> None:
        """Continue with the plan after the functions of dependencies are learned."""
        self._related = plan, functions

    @property
    def granted(self) -> Granted:
        """The granted plan, under the chosen limit once there is one.

        Raises:
            UsageError: If nothing is reserved yet.
        """
        return self._limited[0] if self._limited is not None else made(self._granted, _UNRESERVED)

    @property
    def chosen_limit(self) -> ChosenLimit | None:
        """The chosen limit on the rows of a unit; None if it was declared or is not chosen yet."""
        return None if self._limited is None else self._limited[1]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of discovery, column by column."""
        return () if self._found is None else self._found.findings

    @property
    def given(self) -> Given | None:
        """The counts that discovery has bought; None without discovery."""
        return None if self._found is None else self._found.given

    @property
    def functions(self) -> tuple[LearnedFunction, ...]:
        """The learned functions of dependencies."""
        return () if self._related is None else self._related[1]

    @property
    def plan(self) -> Plan:
        """The current plan."""
        if self._related is not None:
            return self._related[0]
        if self._found is not None:
            return self._found.plan
        return self.declared if self._granted is None else self.granted.plan


def made(stage: S | None, otherwise: str) -> S:
    """Return the result of an earlier step.

    Raises:
        UsageError: With `otherwise` as its message, if the step was not run yet.
    """
    if stage is None:
        raise UsageError(otherwise)
    return stage
