"""Report audit results as a terminal table, a documentation page or JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from typing import Any

from dpcore.audit.case import Audited, Case
from dpcore.audit.cases import CASES
from dpcore.audit.checks import MISS, Finding
from dpcore.audit.whole_run import RELEASES
from dpcore.audit.whole_run.features import UNREACHED
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, epsilon_of
from dpcore.reporting.formatting import at_most, down

DELTA = 1e-6
"""The delta at which rho and mu^2 are converted to epsilon."""

CONFIDENCE = f"1 - {MISS:.0e}".replace("e-0", "e-")

_INTRODUCTION = """\
# Guarantees

For each mechanism, this page states the theorem behind its price, the amount charged, and the privacy loss that an audit of the installed
code measured.

```
dpflow audit                                                # run the same audit
dpflow audit --markdown docs/explanation/guarantees.md      # write this page
```

A measured amount is a lower bound of the privacy lost on worst-case neighbours. Each bound is below the true loss with confidence
{confidence}, so a whole audit reports a fault in sound code less than once in a million runs. A bound at or below the charge is consistent
with the code being correct; a bound above it would prove a fault. A single event shows at most 64 % of a small rho of Gaussian noise, so
those bounds are lower. The same checks also run on planted bugs, each of which must be caught; `dpflow audit --json` describes them, and what each
check has seen. A row is a check of an event unless it says otherwise; the other kinds are made where they apply. A check of each kind fails on:

- *event*: an event whose probabilities on two neighbours differ by more than the charge allows. The event is chosen on one half of the
  draws, and its probabilities are bounded on the other half (Clopper and Pearson 1934);
- *distribution*: outputs that do not match their exact probabilities in a chi-square test;
- *stream*: outputs that are not determined by the recorded random words from the operating system;
- *one run*: canaries that are guessed too often from one run (Steinke, Nasr and Jagielski 2023);
- *charge*: random words that are drawn while the ledger holds no charged operation.

Phi is the normal distribution function. D is the sensitivity of a score or value; L1 and L2 are the sensitivities of a vector of counts.
"""

_OF_RELEASES = """\
# Complete releases under audit

For each kind of release, this page states the amount that its run reserves, which is its promise, and the privacy loss that an audit
measured from the published files.

```
dpflow audit --whole-run                                              # run the same audit
dpflow audit --whole-run --markdown docs/explanation/whole-run.md     # write this page
```

A fair coin for each of thousands of canaries, rows or persons, decides whether that canary is in the table. Each has a cell of its own. The
table is written to a file or a database, and published as `dpflow run`, a session or a question would do it: with a spec, an account, a ledger,
bounded rows per person, noise and a model. The guesser sees the folder of each release, the noisy answers that the ledger keeps, its export, and
the answers that an analyst was given. The more coins it guesses correctly, the more privacy was lost. The bound is that of Steinke, Nasr and
Jagielski 2023, extended to the whole trade-off curve of an amount of rho or mu^2, as in Mahloujifar, Melis and Chaudhuri 2025 (the proof is in
`dpcore/audit/one_run.py`). Each bound is below the true loss with confidence {confidence}. Releases in rho or mu^2 are made several
times with new coins, because these promises allow a larger loss with a small probability, and a single run shows little of that. The coins of
several releases in pure epsilon count together.

A bound above the promise would prove a fault; a bound below it is consistent with the code being correct. The promise itself is proved in
[proof.md](proof.md). The same releases are made with planted bugs, each of which must be caught.

Every key of a spec, and every verb that spends, is in the features of a setting, but for these:
{unreached}
"""

_UNREACHED = "".join(f"\n- `{feature}`: {why}" for feature, why in UNREACHED.items())


def to_json(audited: Sequence[Audited]) -> dict[str, Any]:
    """Return all results as JSON values."""
    return {
        "holds": all(result.holds for result in audited),
        "caught": all(result.caught for result in audited),
        "confidence": 1 - MISS,
        "mechanisms": [_mechanism(_case(result), result) for result in audited],
    }


def table_rows(audited: Sequence[Audited]) -> list[tuple[str, ...]]:
    """Return a heading and one row for each measured amount.

    Checks without an amount have no row of their own: if one fails, the first row of its mechanism says so.
    """
    rows: list[tuple[str, ...]] = [
        ("mechanism", "setting", "currency", "charged", "epsilon", "at least", "holds", "bugs caught", "features")
    ]
    shared = set.intersection(*(set(_case(result).features) for result in audited)) if len(audited) > 1 else set()
    for result in audited:
        own = (key.partition(":")[0].split(".")[:2] for key in _case(result).features if key not in shared)
        features = ", ".join(dict.fromkeys(map(".".join, own)))
        caught = f"{sum(verdict.caught for verdict in result.verdicts)} of {len(result.verdicts)}"
        unmeasured = all(finding.sound for finding in result.findings if finding.measured is None)
        measured = [finding for finding in result.findings if finding.measured is not None]
        for place, finding in enumerate(measured):
            name, bugs, covered = (result.case, caught, features) if place == 0 else ("", "", "")
            sound = finding.sound and (place > 0 or unmeasured)
            rows.append(
                (
                    name,
                    finding.setting,
                    "" if finding.currency is None else finding.currency.symbol,
                    at_most(finding.charged or 0.0),
                    _epsilon(finding),
                    down(finding.measured or 0.0),
                    "yes" if sound else "NO",
                    bugs,
                    covered,
                )
            )
    return rows if any(row[-1] for row in rows[1:]) else [row[:-1] for row in rows]


def faults(audited: Sequence[Audited]) -> list[str]:
    """Return one message for each failed check and for each planted bug that was not caught."""
    return [
        f"{result.case}: {finding.setting}: {finding.check} check failed: {_measured(finding)}; do not use it, and report this"
        for result in audited
        for finding in result.findings
        if not finding.sound
    ] + [
        f"{result.case}: the planted bug '{verdict.bug}' was not caught: {_measured(verdict.finding)}; the audit proves nothing about it"
        for result in audited
        for verdict in result.verdicts
        if not verdict.caught
    ]


def page(audited: Sequence[Audited], *, day: date) -> str:
    """Return the page of guarantees, or of complete releases, in Markdown."""
    sections = ("\n".join(_section(_case(result), result)) for result in audited)
    introduction = _OF_RELEASES if all(result.case in RELEASES for result in audited) else _INTRODUCTION
    return "\n".join(
        [
            introduction.format(confidence=CONFIDENCE, unreached=_UNREACHED),
            f"Measured on {day.isoformat()}.\n",
            *sections,
        ]
    )


def _case(result: Audited) -> Case:
    return {**RELEASES, **CASES}[result.case]()


def _section(case: Case, result: Audited) -> list[str]:
    formulas = dict.fromkeys(case.prices.values())
    prices = "; ".join(f"{currency.symbol} = {formula}" for currency, formula in case.prices.items())
    if len(formulas) == 1 < len(case.prices):
        (prices,) = formulas
    lines = [f"## {case.name}", "", f"{case.theorem} ({case.reference})", "", f"Price: {prices}", ""]
    lines += [f"Features: {'; '.join(case.features)}", ""] if case.features else []
    lines += ["| checked | charged | measured |", "|---|---|---|"]
    lines += [
        f"| {'' if finding.check == 'event' else f'{finding.check}: '}{finding.setting} | {finding.currency.symbol} {at_most(finding.charged or 0.0)}"
        f" | >= {down(finding.measured or 0.0)} |"
        for finding in result.findings
        if finding.currency is not None
    ]
    for title, caught in ("Planted and caught", True), ("Planted and NOT CAUGHT", False):
        bugs: dict[str, list[str]] = {}
        for verdict in result.verdicts:
            if verdict.caught is caught:
                bugs.setdefault(verdict.finding.check, []).append(verdict.bug)
        by_check = [f"{', '.join(names)} ({check})" for check, names in bugs.items()]
        lines += ["", f"{title}: {'; '.join(by_check)}"] if bugs else []
    return [*lines, ""]


def _measured(finding: Finding) -> str:
    if finding.currency is None:
        return finding.shown
    over = "" if finding.sound else f", charged {at_most(finding.charged or 0.0)}"
    return f"{finding.currency.symbol} >= {down(finding.measured or 0.0)}{over}; {finding.shown}"


def _epsilon(finding: Finding) -> str:
    """Format a charge as an epsilon. Convert rho and mu^2 at `DELTA`."""
    if finding.currency is None or finding.charged is None:
        return ""
    if finding.currency is Currency.PURE:
        return at_most(finding.charged)
    return at_most(epsilon_of(round(finding.charged * AMOUNT_OF_ONE), currency=finding.currency, delta=DELTA))


def _mechanism(case: Case, result: Audited) -> dict[str, Any]:
    return {
        "name": case.name,
        "theorem": case.theorem,
        "reference": case.reference,
        "features": list(case.features),
        "prices": {currency.value: formula for currency, formula in case.prices.items()},
        "holds": result.holds,
        "findings": [_finding(finding) for finding in result.findings],
        "bugs": [
            {"name": verdict.bug, "how": verdict.how, "caught": verdict.caught, "finding": _finding(verdict.finding)}
            for verdict in result.verdicts
        ],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    epsilon = _epsilon(finding)
    return asdict(finding) | {"epsilon": float(epsilon) if epsilon else None}
