"""The `dpflow ledger` verbs that change the ledger. Each checks all its arguments before it writes anything."""

import argparse
import logging
import re
from collections.abc import Sequence

from dpcore.cli.ledger_show import account_data, account_text, allowance_data
from dpcore.cli.output import Answer
from dpcore.errors import UsageError
from dpcore.ledger import Account, AccountState, AllowanceKind, Balance, Ledger, Run, RunState, open_ledger
from dpcore.ledger.checks import checked_text, require_across_applies
from dpcore.mechanisms.pricing import currency_for
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, budget_of
from dpcore.privacy.protection import Neighbours
from dpcore.reporting.formatting import askable, at_most, down, new_block_epsilon, next_epsilon, next_run, price, stated
from dpcore.reporting.overview import overview
from dpcore.spec.advice import budget_advice
from dpcore.spec.parts import NAME

progress = logging.getLogger("dpcore.progress")


def open_account(arguments: argparse.Namespace) -> Answer:
    """Open an account. Create the ledger first if there is none."""
    epsilon, delta, across_epsilon = arguments.epsilon, arguments.delta, arguments.across_blocks
    _checked(epsilon, option="--epsilon")
    if not 0 <= delta < 1:
        raise UsageError(
            "--delta must be at least 0 and below 1; a good choice is far below one over the number of people"
        )
    if not re.fullmatch(NAME, arguments.account):
        raise UsageError(
            "an account has the name of its specs' dataset: use the letters a to z and A to Z, digits, dots, dashes and underscores"
        )
    if arguments.currency == Currency.PURE and delta:
        raise UsageError("an account in pure epsilon has no delta: write --delta 0, or choose --currency zcdp or gdp")
    neighbours = Neighbours(arguments.neighbours)
    usual = currency_for(epsilon, delta=delta, unit=arguments.unit, neighbours=neighbours)
    currency, cap = budget_of(epsilon, delta=delta, currency=Currency(arguments.currency or usual))
    # The ledger checks these too, but only after an empty ledger has been created.
    for text, option in (
        (arguments.unit, "--unit"),
        (arguments.about or "-", "--about"),
        (arguments.blocks, "--blocks"),
    ):
        if text is not None:
            checked_text(text, what=option)
    across = None
    if across_epsilon is not None:
        require_across_applies(unit=arguments.unit, blocks_by=arguments.blocks)
        across = _cap(across_epsilon, delta=delta, currency=currency, option="--across-blocks")
    with open_ledger(create=True) as ledger:
        created = ledger.known_identity is None
        account = ledger.open_account(
            arguments.account,
            currency=currency,
            cap=cap,
            epsilon=epsilon,
            delta=delta,
            unit=arguments.unit,
            neighbours=neighbours,
            description=arguments.about,
            blocks_by=arguments.blocks,
            across=across,
            across_epsilon=across_epsilon,
        )
        (opened,) = overview(ledger, account.name).accounts
    hint = (
        f"\n\nruns open and seal the blocks that they read; to open blocks by hand: dpflow ledger block {account.name} NAME..."
        if account.blocks_by is not None
        else ""
    )
    warnings = list(budget_advice(epsilon=epsilon, delta=delta))
    for warning in warnings:
        progress.warning("warning: %s", warning)
    new = f"created a new ledger at {ledger.place}; budgets in other ledgers do not count here\n" if created else ""
    text = f"{new}opened account {account.name}\n\n{account_text(opened, most=None)}{hint}"
    return Answer(account_data(opened) | {"created_ledger": created, "warnings": warnings}, text)


def raise_cap(arguments: argparse.Namespace) -> Answer:
    """Raise an account's budget, or its cap across blocks, to a larger epsilon at the same delta."""
    if arguments.across_blocks is not None:
        return _raise_across(arguments)
    with open_ledger() as ledger:
        before = ledger.account(arguments.account)
        cap = _cap(arguments.epsilon, delta=before.delta, currency=before.currency)
        account = ledger.raise_cap(before.name, cap=cap, epsilon=arguments.epsilon, reason=arguments.reason)
        (raised,) = overview(ledger, account.name).accounts
    promise = raised.promise()
    how = ", which allows for the charges made before the raise" if promise.raised else ""
    text = (
        f"raised account {account.name} from epsilon {at_most(before.epsilon)} to {at_most(account.epsilon)}; "
        f"{_left(account, raised.most_used[1])}\nit now promises {stated(promise.one.epsilon, promise.one.delta)}{how}"
    )
    return Answer(account_data(raised), text)


def _raise_across(arguments: argparse.Namespace) -> Answer:
    epsilon: float = arguments.across_blocks
    with open_ledger() as ledger:
        before = ledger.account(arguments.account)
        cap = _cap(epsilon, delta=before.delta, currency=before.currency, option="--across-blocks")
        account = ledger.raise_across(before.name, cap=cap, epsilon=epsilon, reason=arguments.reason)
        (raised,) = overview(ledger, account.name).accounts
    left = down(askable(account, account.across_remaining or 0))
    text = (
        f"raised the cap across blocks of account {account.name} from epsilon {at_most(before.across_epsilon or 0)} to "
        f"{at_most(epsilon)}; all runs together can still ask for epsilon {left}"
    )
    if (across := raised.promise().across) is not None:
        text += f"\nit now promises {stated(across.epsilon, across.delta)} to one {account.unit} with rows in several blocks"
    return Answer(account_data(raised), text)


def close(arguments: argparse.Namespace) -> Answer:
    """Close an account to new runs."""
    with open_ledger() as ledger:
        before = ledger.account(arguments.account)
        account = ledger.close_account(before.name, reason=arguments.reason)
        (closed,) = overview(ledger, account.name).accounts
        unsettled = sum(run.state is RunState.OPEN for run in ledger.runs(account.name))
    if before.state is AccountState.CLOSED:
        text = f"account {account.name} was already closed"
    else:
        rest = f"; {unsettled} open runs may still finish" if unsettled else ""
        text = f"closed account {account.name}{rest}"
    return Answer(account_data(closed) | {"open_runs": unsettled}, text)


def accept_restoration(arguments: argparse.Namespace) -> Answer:
    """Continue with a restored older copy of the ledger."""
    with open_ledger() as ledger:
        lost, head = ledger.accept_restoration(reason=arguments.reason)
    data = {"lost": {"seq": lost.seq, "hash": lost.hash, "seen_at": lost.at}, "events": head.seq, "head": head.hash}
    text = (
        f"the ledger continues from event {head.seq:,}; the loss up to event {lost.seq:,}, seen on {lost.at[:19]}, is "
        "recorded in every account\nthe ledger no longer counts the charges in the lost events: lower the epsilon of the next "
        "runs by what you know was spent"
    )
    return Answer(data, text)


def allow(arguments: argparse.Namespace) -> Answer:
    """Limit how much of an account one analyst or one purpose may use."""
    kind = AllowanceKind.PURPOSE if arguments.analyst is None else AllowanceKind.ANALYST
    name = arguments.purpose if arguments.analyst is None else arguments.analyst
    if not re.fullmatch(NAME, name):
        raise UsageError(f"--{kind} takes a name as in a spec: letters, digits, dots, dashes and underscores")
    with open_ledger() as ledger:
        account = ledger.account(arguments.account)
        cap = _cap(arguments.epsilon, delta=account.delta, currency=account.currency)
        allowance = ledger.allow(
            account.name, kind=kind, name=name, cap=cap, epsilon=arguments.epsilon, reason=arguments.reason
        )
    remaining = askable(account, allowance.remaining)
    data = {"account": account.name, **allowance_data(account, allowance)}
    text = (
        f"{kind} {name} may use epsilon {at_most(allowance.epsilon)} of account {account.name}: "
        f"{price(allowance.used, account.currency)} is used, epsilon {down(remaining)} is left; every new run of the account must name its {kind}"
    )
    return Answer(data, text)


def block(arguments: argparse.Namespace) -> Answer:
    """Open blocks. With --seal, also seal them."""
    with open_ledger() as ledger:
        names = ledger.open_blocks(arguments.account, arguments.names)
        if arguments.seal:
            ledger.seal_blocks(arguments.account, names)
    later = f"; seal them when their data is complete: dpflow ledger seal {arguments.account} NAME..."
    hint = ", and sealed them" if arguments.seal else later
    return _blocks(arguments.account, names, state="sealed" if arguments.seal else "open", text=f"opened {{}}{hint}")


def seal(arguments: argparse.Namespace) -> Answer:
    """Declare that the data of blocks is complete."""
    with open_ledger() as ledger:
        names = ledger.seal_blocks(arguments.account, arguments.names)
    return _blocks(arguments.account, names, state="sealed", text="sealed {}: ready to be charged")


def refund(arguments: argparse.Namespace) -> Answer:
    """Refund a run's whole reservation."""
    with open_ledger() as ledger:
        before = ledger.run(arguments.run)
        return _ended(ledger, before, ledger.refund(before.id, lease=None))


def settle(arguments: argparse.Namespace) -> Answer:
    """End a run without a release."""
    with open_ledger() as ledger:
        before = ledger.run(arguments.run)
        return _ended(ledger, before, ledger.settle(before.id, release=None, lease=None))


def _checked(epsilon: float, *, option: str) -> float:
    if not 0 < epsilon < float("inf"):
        raise UsageError(f"{option} must be a number above 0, such as 10")
    return epsilon


def _cap(epsilon: float, *, delta: float, currency: Currency, option: str = "--epsilon") -> int:
    return budget_of(_checked(epsilon, option=option), delta=delta, currency=currency)[1]


def _left(account: Account, balance: Balance) -> str:
    at = f" at delta {at_most(account.delta)}" if account.delta else ""
    most, new_blocks = next_epsilon(account, balance.remaining), new_block_epsilon(account)
    return f"{next_run(most, new_blocks=new_blocks, block='its most used block')}{at}"


def _blocks(account: str, names: Sequence[str], *, state: str, text: str) -> Answer:
    count = "1 block" if len(names) == 1 else f"{len(names):,} blocks"
    return Answer(
        {"account": account, "blocks": list(names), "state": state}, text.format(f"{count} of account {account}")
    )


def _ended(ledger: Ledger, before: Run, after: Run) -> Answer:
    account, balance = ledger.account(after.account), ledger.balance(after.account)
    returned = after.reserved - after.spent if before.state is RunState.OPEN else 0
    data = {
        "run": after.id,
        "account": account.name,
        "state": after.state.value,
        "spent": after.spent / AMOUNT_OF_ONE,
        "returned": returned / AMOUNT_OF_ONE,
        "remaining": balance.remaining / AMOUNT_OF_ONE,
        "remaining_epsilon": next_epsilon(account, balance.remaining),
    }
    already = "" if before.state is RunState.OPEN else " already"
    text = (
        f"run {after.id} is {after.state}{already}: {price(after.spent, account.currency)} stays spent, "
        f"{price(returned, account.currency)} was refunded\n{_left(account, balance)} from account {account.name}"
    )
    return Answer(data, text)
