"""`dpflow ledger theorems`: compose an account's operations under each theorem, and compare with what its cap promises.

The prices in a ledger are chosen adaptively. Of the sums over the operations so far, only the sum of pure epsilons is valid then; see
`textbook.theorems.history`.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from dpcore.cli.arguments import ACCOUNT, Subparsers, add_verb, argument
from dpcore.cli.output import Answer, table
from dpcore.errors import UsageError
from dpcore.ledger import Account, EventKind, Ledger, open_ledger
from dpcore.ledger.events import read_body
from dpcore.mechanisms import DiscreteGaussian, DiscreteLaplace, Mechanism, from_description
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Cap, Currency
from dpcore.reporting.formatting import at_most, several_blocks, stated, step_of, up
from dpcore.reporting.overview import AccountOverview, overview
from dpcore.textbook.theorems import (
    Comparison,
    Finding,
    Losses,
    Step,
    Theorem,
    approximate_losses,
    compare_theorems,
    discrete_gaussian_losses,
)

ABOUT = "compose everything charged so far under each theorem, and show what the cap promises and the smallest valid epsilon"


def add_verbs(steward: Subparsers) -> None:
    """Add `theorems` to the verbs of `dpflow ledger`."""
    add_verb(
        steward,
        "theorems",
        ABOUT,
        ACCOUNT,
        argument("--delta", type=float, help="the delta at which to state each epsilon; default: the account's"),
        run=theorems,
    )


def theorems(arguments: argparse.Namespace) -> Answer:
    """Price every operation of an account again, and compose the prices under each theorem."""
    with open_ledger() as ledger:
        (summary,) = overview(ledger, arguments.account).accounts
        account = summary.account
        counted = Counter[str]() if account.blocks_by is not None else _operations(ledger, account)
    delta = account.delta if arguments.delta is None else arguments.delta
    if not counted:
        return _promise_alone(summary, delta)
    steps = [_step(mechanism, count) for mechanism, count in counted.items()]
    # Runs spend shares of what earlier answers left over, so the parameters of a ledger's operations are chosen adaptively.
    cap = Cap(account.currency, account.cap, first=summary.first_cap)
    comparison = compare_theorems(steps, delta=delta, adaptive=True, cap=cap)
    return Answer(
        _data(summary, comparison, delta, counted.total()), _text(summary, comparison, delta, counted.total())
    )


def _promise_alone(summary: AccountOverview, delta: float) -> Answer:
    """State what the cap promises when there is no single history to compose: nothing was charged, or each block has its own."""
    account = summary.account
    pure = account.currency is Currency.PURE
    if not (0 <= delta < 1) or (delta == 0 and not pure):
        needed = "from 0" if pure else "above 0"
        raise UsageError(
            f"for account '{account.name}' delta must be {needed} and below 1; change --delta, or leave it out"
        )
    promise = summary.promise(delta=delta)
    if account.blocks_by is None:
        why, operations = "no operation was charged yet", 0
    else:
        why = f"account {account.name} has blocks: each block has its own history, so theorems are not compared"
        operations = None
    several = several_blocks(account.unit, promise)
    lines = [
        why,
        f"promised: {stated(promise.one.epsilon, promise.one.delta)}, for {step_of(account)}",
        *([several] if several else []),
    ]
    data = {
        **_terms(summary, delta),
        "operations": operations,
        "theorems": [],
        "promised": {
            "theorem": next(theorem.value for theorem in Theorem if theorem.filter_in is account.currency),
            **asdict(promise.one),
            "valid": True,
            "because": "the cap holds for adaptively chosen operations",
        },
        "promised_across_blocks": None if promise.across is None else asdict(promise.across),
        "smallest": None,
    }
    return Answer(data, "\n".join(lines))


def _operations(ledger: Ledger, account: Account) -> Counter[str]:
    """Count the charged operations by mechanism, as canonical JSON, so that equal mechanisms take memory only once."""
    counted: Counter[str] = Counter()
    for event in ledger.history(account.name):
        if event.kind is EventKind.CHARGED:
            counted[json.dumps(read_body(event)["mechanism"], sort_keys=True)] += 1
    return counted


def _step(description: str, count: int) -> Step:
    mechanism = from_description(json.loads(description))
    prices = {currency: _price(mechanism, currency) for currency in Currency}
    epsilon = prices[Currency.PURE]
    return Step(
        epsilon=epsilon,
        delta=None if epsilon is None else 0,
        rho=prices[Currency.ZCDP],
        mu_squared=prices[Currency.GDP],
        losses=_losses(mechanism),
        count=count,
    )


def _price(mechanism: Mechanism, currency: Currency) -> Fraction | None:
    with suppress(UsageError):  # it has no price in this currency
        return Fraction(mechanism.price(currency), AMOUNT_OF_ONE)
    return None


def _losses(mechanism: Mechanism) -> Losses | None:
    """Return the noise's own loss distribution where it is known: if no count moves by more than 1, at worst l1 counts move by 1."""
    if isinstance(mechanism, DiscreteGaussian) and mechanism.sensitivity.linf == 1 and mechanism.scale <= 1e5:
        return discrete_gaussian_losses(mechanism.scale, count=mechanism.sensitivity.l1)
    if isinstance(mechanism, DiscreteLaplace) and mechanism.sensitivity.linf == 1 < mechanism.sensitivity.l1:
        return approximate_losses(1 / Fraction(mechanism.scale), delta=0, count=mechanism.sensitivity.l1)
    return None


def _terms(summary: AccountOverview, delta: float) -> dict[str, Any]:
    account = summary.account
    return {
        "account": account.name,
        "currency": account.currency.value,
        "cap": account.cap / AMOUNT_OF_ONE,
        "cap_amount": account.cap,
        "declared": {"epsilon": account.epsilon, "delta": account.delta},
        "raised": summary.promise().raised,
        "delta": delta,
    }


def _data(summary: AccountOverview, comparison: Comparison, delta: float, operations: int) -> dict[str, Any]:
    smallest, promised = comparison.smallest, comparison.promised
    return {
        **_terms(summary, delta),
        "operations": operations,
        "theorems": [
            {
                "theorem": finding.theorem.value,
                "so_far": finding.epsilon,
                "so_far_valid": finding.valid,
                "because": finding.because,
            }
            for finding in comparison.findings
        ],
        "promised": None if promised is None else asdict(promised),
        "promised_across_blocks": None,
        "smallest": None if smallest is None else asdict(smallest),
    }


def _text(summary: AccountOverview, comparison: Comparison, delta: float, operations: int) -> str:
    account = summary.account
    rows = [("theorem", "so far", "promised", "", "")] + [
        _row(finding, comparison.promised) for finding in comparison.findings
    ]
    raised = ["the cap was raised after the first charge; the promise allows for that"]
    notes = [
        "so far: the epsilon of the operations charged so far",
        f"promised: the epsilon of the whole cap in {account.currency.symbol}, valid for adaptively chosen operations",
        *(raised if summary.promise().raised else []),
        _valid(comparison),
    ]
    head = f"{operations:,} operations of {account.name}, at delta {at_most(delta)}"
    return "\n".join([head, "", table(rows, right={"so far", "promised"}), "", *notes])


def _row(finding: Finding, promised: Finding | None) -> tuple[str, ...]:
    of_cap = promised.epsilon if promised is not None and promised.theorem is finding.theorem else None
    if of_cap is not None:
        standing = "both are valid" if finding.valid else "promised is valid"
    else:
        standing = "does not apply" if finding.epsilon is None else "so far is valid" if finding.valid else "not valid"
    return (
        finding.theorem.value,
        _column(finding.epsilon, written=up),
        _column(of_cap, written=at_most),
        standing,
        finding.because,
    )


def _column(epsilon: float | None, *, written: Callable[[float], str]) -> str:
    return "-" if epsilon is None else written(epsilon)


def _valid(comparison: Comparison) -> str:
    smallest = comparison.smallest
    if smallest is None or smallest.epsilon is None:
        why = "" if comparison.promised is None else f": {comparison.promised.because}"
        return f"no theorem is valid for these operations at this delta{why}"
    whose = "promised" if smallest == comparison.promised else "so far"
    bound = f"epsilon {at_most(smallest.epsilon)} at delta {at_most(smallest.delta)}"
    return f"smallest valid: {bound}, {whose}, by {smallest.theorem.value}"
