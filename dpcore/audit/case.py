"""The audit of one mechanism: its theorem, its prices, the checks that it must pass, and planted bugs that must fail."""

from collections.abc import Mapping
from dataclasses import dataclass

from dpcore.audit.checks import Check, Finding
from dpcore.privacy.accounting import Currency


@dataclass(frozen=True, kw_only=True)
class Bug:
    """A plausible implementation error, planted to test that a check catches it.

    Attributes:
        name: The bug's name.
        how: How the planted variant differs from the mechanism, as a sentence.
        check: The check of the planted variant, which must catch it.
    """

    name: str
    how: str
    check: Check


@dataclass(frozen=True, kw_only=True)
class Case:
    """One mechanism under audit.

    Attributes:
        name: The mechanism's name, as in its descriptions.
        theorem: The guarantee, in one sentence.
        reference: The source of the proof.
        prices: The formula of its price in each currency that it can be paid in.
        checks: The checks that it must pass.
        bugs: The planted bugs that must be caught.
        features: The features of the product that it covers, if it is about complete releases.
    """

    name: str
    theorem: str
    reference: str
    prices: Mapping[Currency, str]
    checks: tuple[Check, ...]
    bugs: tuple[Bug, ...]
    features: tuple[str, ...] = ()

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
    """The result for a planted bug."""

    bug: str
    how: str
    finding: Finding

    @property
    def caught(self) -> bool:
        """Whether the check found the fault."""
        return not self.finding.sound


@dataclass(frozen=True)
class Audited:
    """The results for one mechanism and its planted bugs."""

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
