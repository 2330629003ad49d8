"""`dpflow ledger theorems`: what an account's operations amount to under each theorem so far, and what its cap promises.

Of the sums so far only that of pure epsilons holds for a ledger, whose prices are chosen on the way; see `accounting.history`.
"""

import argparse
import json
from collections import Counter
from contextlib import suppress
from fractions import Fraction
from typing import Any

from dpcore.accounting import (
    UNIT,
    Comparison,
    Currency,
    Finding,
    LossDistribution,
    Step,
    approximate_losses,
    compare_theorems,
    discrete_gaussian_losses,
)
from dpcore.cli.answer import Answer, table
from dpcore.errors import UsageError
from dpcore.ledger import Account, EventKind, Ledger, open_ledger
from dpcore.ledger.verification.bodies import read_body
from dpcore.mechanisms import DiscreteGaussian, DiscreteLaplace, Mechanism, from_description
from dpcore.wording import at_most, up

ABOUT = "what everything that was started amounts to under each theorem, what the cap promises, and the smallest that is valid"
_WIDEST = 1e5


def add_verb(steward: Any, common: argparse.ArgumentParser) -> None:
    """Add `theorems` to the verbs of `dpflow ledger`."""
    verb = steward.add_parser("theorems", parents=[common], help=ABOUT, description=ABOUT)
    verb.add_argument("account", metavar="ACCOUNT")
    verb.add_argument(
        "--delta", type=float, help="at which every theorem's epsilon is told; default: the account's own"
    )
    verb.set_defaults(verb=theorems)


def theorems(arguments: argparse.Namespace) -> Answer:
    """Price every operation of an account again, and compose the prices by every theorem."""
    with open_ledger() as ledger:
        account = ledger.account(arguments.account)
        if account.blocks_by is not None:
            raise UsageError(
                f"account '{account.name}' is kept by blocks, and each block has a history of its own; "
                "dpflow ledger show tells what each of them has spent"
            )
        counted = _operations(ledger, account)
    delta = account.delta if arguments.delta is None else arguments.delta
    if not counted:
        return Answer(
            {**_terms(account, delta), "operations": 0, "theorems": [], "promised": None, "smallest": None},
            "no operation was started yet",
        )
    steps = [_step(mechanism, count) for mechanism, count in counted.items()]
    # Runs spend shares of what earlier answers have left, so the parameters of a ledger's operations are chosen on the way.
    found = compare_theorems(steps, delta=delta, adaptive=True, cap=(account.currency, account.cap))
    return Answer(_data(account, found, delta, counted.total()), _text(account, found, delta, counted.total()))


def _operations(ledger: Ledger, account: Account) -> Counter[str]:
    """Count equal mechanisms, as canonical text, among all that was started: however many there are, each is held once."""
    counted: Counter[str] = Counter()
    for event in ledger.history(account.name):
        if event.kind is EventKind.STARTED:
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
        return Fraction(mechanism.charge(currency), UNIT)
    return None


def _losses(mechanism: Mechanism) -> LossDistribution | None:
    """Return the noise's own losses where they are known: if each count moves by at most 1, then at worst l1 of them do."""
    if isinstance(mechanism, DiscreteGaussian) and mechanism.sensitivity.linf == 1 and mechanism.sigma <= _WIDEST:
        return discrete_gaussian_losses(mechanism.sigma, shift=1).times(mechanism.sensitivity.l1)
    if isinstance(mechanism, DiscreteLaplace) and mechanism.sensitivity.linf == 1 < mechanism.sensitivity.l1:
        return approximate_losses(1 / Fraction(mechanism.scale), delta=0).times(mechanism.sensitivity.l1)
    return None


def _terms(account: Account, delta: float) -> dict[str, Any]:
    return {
        "account": account.name,
        "currency": account.currency.value,
        "cap": account.cap,
        "declared": {"epsilon": account.epsilon, "delta": account.delta},
        "delta": delta,
    }


def _data(account: Account, found: Comparison, delta: float, operations: int) -> dict[str, Any]:
    smallest, promised = found.smallest, found.promised
    return {
        **_terms(account, delta),
        "operations": operations,
        "theorems": [
            {
                "theorem": finding.theorem.value,
                "so_far": finding.epsilon,
                "so_far_valid": finding.valid,
                "because": finding.because,
            }
            for finding in found.findings
        ],
        "promised": None if promised is None else _told(promised),
        "smallest": None if smallest is None else _told(smallest),
    }


def _told(finding: Finding) -> dict[str, Any]:
    return {
        "theorem": finding.theorem.value,
        "epsilon": finding.epsilon,
        "valid": finding.valid,
        "because": finding.because,
    }


def _text(account: Account, found: Comparison, delta: float, operations: int) -> str:
    rows = [("theorem", "so far", "promised", "", "")] + [_row(finding, found.promised) for finding in found.findings]
    notes = [
        "so far: what the operations come to as epsilon",
        f"promised: what the whole cap in {account.currency.symbol} comes to, whatever is chosen on the way",
        _valid(found, delta),
    ]
    head = f"{operations:,} operations of {account.name}, at delta {delta:g}"
    return "\n".join([head, "", table(rows, right={"so far", "promised"}), "", *notes])


def _row(finding: Finding, promised: Finding | None) -> tuple[str, ...]:
    of_cap = promised.epsilon if promised is not None and promised.theorem is finding.theorem else None
    if of_cap is not None:
        standing = "both are valid" if finding.valid else "promised is valid"
    else:
        standing = "does not apply" if finding.epsilon is None else "so far is valid" if finding.valid else "not valid"
    return finding.theorem.value, _column(finding.epsilon), _column(of_cap), standing, finding.because


def _column(epsilon: float | None) -> str:
    return "-" if epsilon is None else up(epsilon)


def _valid(found: Comparison, delta: float) -> str:
    smallest = found.smallest
    if smallest is None or smallest.epsilon is None:
        why = "" if found.promised is None else f": {found.promised.because}"
        return f"nothing is valid for these operations at this delta{why}"
    whose = "promised" if smallest == found.promised else "so far"
    told = f"epsilon {at_most(smallest.epsilon)} at delta {delta:g}"
    return f"the smallest that is valid: {told}, {whose}, by {smallest.theorem.value}"
