"""What is audited of one mechanism: its theorem, its prices, the checks that it must pass, and bugs that must not."""

from collections.abc import Mapping
from dataclasses import dataclass

from dpcore.audit.checks import Check, Finding
from dpcore.privacy.accounting import Currency


@dataclass(frozen=True, kw_only=True)
class Bug:
    """A fault that somebody could make, planted to see that a check catches it.

    Attributes:
        name: What it is called.
        how: How the planted variant differs from the mechanism, as a sentence.
        check: The check that must catch it, made of the planted variant.
    """

    name: str
    how: str
    check: Check


@dataclass(frozen=True, kw_only=True)
class Case:
    """One mechanism under audit.

    Attributes:
        name: The mechanism's name, as its descriptions have it.
        theorem: What is guaranteed, in one sentence.
        reference: Who proved it.
        prices: The formula of its price in each currency that it can be paid in.
        checks: What it must pass.
        bugs: What must not pass.
    """

    name: str
    theorem: str
    reference: str
    prices: Mapping[Currency, str]
    checks: tuple[Check, ...]
    bugs: tuple[Bug, ...]

    def run(self, *, effort: float) -> "Audited":
        """Run every check, on the mechanism and on the planted bugs."""
        return Audited(
            case=self.name,
            findings=tuple(check.run(effort=effort) for check in self.checks),
            verdicts=tuple(
                Verdict(bug=bug.name, how=bug.how, finding=bug.check.run(effort=effort)) for bug in self.bugs
            ),
        )


@dataclass(frozen=True)
class Verdict:
    """What became of a planted bug."""

    bug: str
    how: str
    finding: Finding

    @property
    def caught(self) -> bool:
        """Whether the check found the fault."""
        return not self.finding.sound


@dataclass(frozen=True)
class Audited:
    """What was found about one mechanism."""

    case: str
    findings: tuple[Finding, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def holds(self) -> bool:
        """Whether the mechanism passed all of its checks."""
        return all(finding.sound for finding in self.findings)

    @property
    def caught(self) -> bool:
        """Whether all planted bugs were caught."""
        return all(verdict.caught for verdict in self.verdicts)
