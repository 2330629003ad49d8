"""What a run asks for: the account that pays, and the whole amount, refused here if it would buy nothing or too little."""

import math

from dpcore import wording
from dpcore.accounting import Currency, budget_of, epsilon_of
from dpcore.curator import LEAST_UNITS
from dpcore.errors import BudgetRefused, UsageError
from dpcore.ledger import Account, Ledger, budget_refused
from dpcore.pricing import least_units
from dpcore.spec import Declaration
from dpcore.strategies import Strategy

TIMES = 2
"""So many times over a run can pay for its smallest measurement: a crash may make it pay for one twice."""


def paying_account(ledger: Ledger, declaration: Declaration) -> Account:
    """Find the account and refuse a spec that promises something else than the account protects."""
    spec = declaration.spec
    account = ledger.account(spec.dataset)
    for what, wanted, fixed in (
        ("unit", spec.privacy.unit, account.unit),
        ("neighbours", spec.privacy.neighbours.value, account.neighbours.value),
    ):
        if wanted != fixed:
            raise UsageError(
                f"the spec says `{what}: {wanted}`, account {account.name} was opened with {fixed}; make them agree"
            )
    pure = account.currency is Currency.PURE
    if pure != (spec.privacy.delta == 0):
        kind = "pure epsilon: write `delta: 0`" if pure else f"{account.currency}: write a `delta` above 0"
        raise UsageError(f"account {account.name} is kept in {kind} in the spec, or open another account")
    if account.blocks_by is not None:
        raise UsageError(
            f"account {account.name} is kept by block ({account.blocks_by}), and a spec reads the whole table; "
            "open an account without --blocks for it"
        )
    return account


def units_to_reserve(declaration: Declaration, strategy: Strategy, *, currency: Currency) -> int:
    """Return what a run may spend, in units of the currency; refuse an amount that is too small for what the strategy would measure."""
    privacy = declaration.spec.privacy
    epsilon = f"epsilon {privacy.epsilon:g}"
    shared = LEAST_UNITS * strategy.answers
    to_share = wording.at_most(epsilon_of(shared, currency=currency, delta=privacy.delta))
    try:
        _, units = budget_of(privacy.epsilon, delta=privacy.delta, currency=currency)
    except UsageError:
        if privacy.epsilon > 1:
            raise
        raise UsageError(f"{epsilon} is too small for any run; ask for epsilon {to_share}") from None
    if units < shared:
        raise UsageError(
            f"{epsilon} is too small to be shared by up to {strategy.answers} answers; ask for epsilon {to_share}, or for fewer `rounds`"
        )
    if not strategy.smallest_share:
        raise UsageError(
            "a column is so small beside the others that none of the budget would be left for it; declare coarser columns"
        )
    smallest, least = strategy.smallest_share, least_units(currency=currency, protection=declaration.protection)
    if units * smallest < TIMES * least:
        wanted = math.ceil(TIMES * least / smallest)
        enough = wording.at_most(epsilon_of(wanted, currency=currency, delta=privacy.delta))
        zcdp = ", or use an account in zcdp" if currency is Currency.GDP else ""
        raise UsageError(
            f"{epsilon} is too small for the smallest of {strategy.answers} answers: in {currency} its noise would be wider than any "
            f"that can be drawn; ask for epsilon {enough}, fewer `rounds`, or fewer rows per unit{zcdp}"
        )
    return units


def check_remaining(account: Account, declaration: Declaration, *, units: int, remaining: int) -> None:
    """Refuse a run that would reserve more than what remains of its account."""
    if units > remaining:
        payer, currency = f"account '{account.name}'", account.currency
        refused = budget_refused(payer, currency=currency, requested=units, remaining=remaining)
        raise in_epsilon(refused, declaration, currency=currency)


def in_epsilon(refused: BudgetRefused, declaration: Declaration, *, currency: Currency) -> BudgetRefused:
    """Return a refusal that also says what the spec's epsilon is compared with, where the account counts in something else."""
    if currency is Currency.PURE:
        return refused
    privacy = declaration.spec.privacy
    most = epsilon_of(refused.remaining, currency=currency, delta=privacy.delta)
    message = (
        f"{refused} (epsilon {privacy.epsilon:g} was asked for, at most {most:.4g} remains at delta {privacy.delta:g})"
    )
    return BudgetRefused(message, requested=refused.requested, remaining=refused.remaining)
