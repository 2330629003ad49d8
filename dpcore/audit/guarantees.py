"""What was audited, for people and for programs: a table for a terminal, a page for the documentation, an object for JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from typing import Any

from dpcore.audit.case import Audited, Case
from dpcore.audit.cases import CASES
from dpcore.audit.checks import MISS, Finding
from dpcore.audit.whole_run import RELEASES
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, epsilon_of
from dpcore.reporting.formatting import at_most, down

DELTA = 1e-6
"""The delta at which an amount of rho or mu^2 is shown as an epsilon."""

CONFIDENCE = f"1 - {MISS:.0e}".replace("e-0", "e-")

_MEASURED = " | measured "

_INTRODUCTION = """\
# Guarantees

Each mechanism: the theorem that its price comes from, what was charged, and what an audit of the installed code measured.

```
dpflow audit                                                # the same audit, here and now
dpflow audit --markdown docs/explanation/guarantees.md      # writes this page
```

A measured amount is a lower bound of the privacy that was lost on worst-case neighbours. It is below the true loss with a confidence of
{confidence} for each, so a whole audit accuses sound code less than once in a million runs. At or below the charge it speaks for the code;
above, it would prove a fault. One event shows at most 64 % of a small rho of Gaussian noise, so those bounds lie lower. Beside it the same
checks are run on planted bugs, each of which must be caught:

- *event*: an event, chosen on one half of the draws, whose probabilities on two neighbours, bounded on the other half (Clopper and Pearson
  1934), differ by more than the charge allows;
- *distribution*: a chi-square test of the outputs against their exact probabilities;
- *stream*: outputs that recorded words of the operating system's entropy do not decide;
- *one run*: canaries, of which too many are guessed from one run (Steinke, Nasr and Jagielski 2023);
- *charge*: random words that are taken while the ledger holds no charged operation.

Phi is the normal distribution function, D the sensitivity of a score or value, L1 and L2 those of a vector of counts.
"""

_OF_RELEASES = """\
# Complete releases under audit

Each kind of release: what its run reserves, which is what it promises, and what an audit shows of it from what was published.

```
dpflow audit --whole-run                                              # the same audit, here and now
dpflow audit --whole-run --markdown docs/explanation/whole-run.md     # writes this page
```

Thousands of canary persons are each put into a table, or left out, by a fair coin of its own. The table is written to a CSV file, and a
release is made of it as `dpflow run` makes one: with a spec, an account, a ledger, bounded persons, noise and a model. Whoever guesses the
coins sees the folder of the release and nothing else. The more guesses are right, the more privacy was lost. The bound is that of
Steinke, Nasr and Jagielski 2023, extended to the whole curve that an amount of rho or mu^2 promises, as Mahloujifar, Melis and Chaudhuri
2025 do (the proof is in `dpcore/audit/one_run_curves.py`). It is below the true loss with a confidence of {confidence} for each.
A release in rho or mu^2 is made several times with new coins: one run alone shows little of a promise that allows a larger loss with a
small probability.

Above the promise, a bound would prove a fault; below, it speaks for the code. What the promise rests on is proved in [proof.md](proof.md).
The same releases are made with planted bugs in reading, bounding, charging, drawing and publishing, each of which must be caught.
"""


def to_json(audited: Sequence[Audited]) -> dict[str, Any]:
    """Return all that was found."""
    return {
        "holds": all(one.holds for one in audited),
        "caught": all(one.caught for one in audited),
        "confidence": 1 - MISS,
        "mechanisms": [_mechanism(_case(one), one) for one in audited],
    }


def table_rows(audited: Sequence[Audited]) -> list[tuple[str, ...]]:
    """Return a row for each measured amount, with a heading; what has no amount is told with the first of its mechanism."""
    rows: list[tuple[str, ...]] = [
        ("mechanism", "setting", "currency", "charged", "epsilon", "at least", "holds", "bugs caught")
    ]
    for one in audited:
        measured = [finding for finding in one.findings if finding.measured is not None]
        others = [finding for finding in one.findings if finding.measured is None]
        for place, finding in enumerate(measured):
            sound = finding.sound and (place > 0 or all(other.sound for other in others))
            caught = sum(verdict.caught for verdict in one.verdicts)
            rows.append(
                (
                    one.case if place == 0 else "",
                    finding.setting,
                    _currency(finding),
                    at_most(finding.charged or 0.0),
                    _epsilon(finding),
                    down(finding.measured or 0.0),
                    "yes" if sound else "NO",
                    f"{caught} of {len(one.verdicts)}" if place == 0 else "",
                )
            )
    return rows


def faults(audited: Sequence[Audited]) -> list[str]:
    """Return a sentence for everything that is not as it should be."""
    return [
        f"{one.case}: {finding.setting}: {finding.check} check failed: {_measured(finding)}; do not use it, and report this"
        for one in audited
        for finding in one.findings
        if not finding.sound
    ] + [
        f"{one.case}: the planted bug '{verdict.bug}' was not caught: {_measured(verdict.finding)}; the audit proves nothing about it"
        for one in audited
        for verdict in one.verdicts
        if not verdict.caught
    ]


def page(audited: Sequence[Audited], *, day: date) -> str:
    """Return the page of guarantees, or of complete releases, in Markdown."""
    sections = ("\n".join(_section(_case(one), one)) for one in audited)
    introduction = _OF_RELEASES if all(one.case in RELEASES for one in audited) else _INTRODUCTION
    return "\n".join([introduction.format(confidence=CONFIDENCE), f"Measured on {day.isoformat()}.\n", *sections])


def lasting_part(text: str) -> str:
    """Return a page without what differs from run to run: the date, and what was measured."""
    return "\n".join(line.partition(_MEASURED)[0] for line in text.splitlines() if not line.startswith("Measured on "))


def _case(one: Audited) -> Case:
    return {**RELEASES, **CASES}[one.case]()


def _section(case: Case, one: Audited) -> list[str]:
    prices = "; ".join(f"{currency.symbol} = {formula}" for currency, formula in case.prices.items())
    lines = [f"## {case.name}", "", f"{case.theorem} ({case.reference})", "", f"Price: {prices}", ""]
    lines += ["| checked | charged | shown |", "|---|---|---|"]
    for finding in one.findings:
        charged = f"{finding.currency.symbol} {at_most(finding.charged or 0.0)}" if finding.currency else "-"
        lines.append(f"| {finding.check}: {finding.setting} | {charged}{_MEASURED}{_measured(finding)} |")
    lines += ["", "| planted bug | caught by | shown |", "|---|---|---|"]
    for verdict in one.verdicts:
        how = f"**{verdict.bug}**: {verdict.how}"
        said = _measured(verdict.finding) if verdict.caught else "NOT CAUGHT"
        lines.append(f"| {how} | {verdict.finding.check}{_MEASURED}{said} |")
    return [*lines, ""]


def _measured(finding: Finding) -> str:
    if finding.currency is None:
        return finding.shown
    over = "" if finding.sound else f", charged {at_most(finding.charged or 0.0)}"
    return f"{finding.currency.symbol} >= {down(finding.measured or 0.0)}{over}; {finding.shown}"


def _currency(finding: Finding) -> str:
    return "" if finding.currency is None else finding.currency.symbol


def _epsilon(finding: Finding) -> str:
    """Write a charge as an epsilon, at a delta where there is one."""
    if finding.currency is None or finding.charged is None:
        return ""
    if finding.currency is Currency.PURE:
        return at_most(finding.charged)
    return at_most(epsilon_of(round(finding.charged * AMOUNT_OF_ONE), currency=finding.currency, delta=DELTA))


def _mechanism(case: Case, one: Audited) -> dict[str, Any]:
    return {
        "name": case.name,
        "theorem": case.theorem,
        "reference": case.reference,
        "prices": {currency.value: formula for currency, formula in case.prices.items()},
        "holds": one.holds,
        "findings": [_finding(finding) for finding in one.findings],
        "bugs": [
            {"name": verdict.bug, "how": verdict.how, "caught": verdict.caught, "finding": _finding(verdict.finding)}
            for verdict in one.verdicts
        ],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    epsilon = _epsilon(finding)
    return asdict(finding) | {"epsilon": float(epsilon) if epsilon else None}
