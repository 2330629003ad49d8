"""`dpflow ledger show`: each account's promise and its bookkeeping: spent, reserved by runs, and remaining."""

import argparse
from dataclasses import asdict
from heapq import nlargest
from typing import Any

from dpcore.cli.ledger_runs import run_data, runs_text
from dpcore.cli.output import Answer, bar, legend, rule, table
from dpcore.ledger import Account, AccountState, Balance, BlockState, open_ledger
from dpcore.privacy.accounting import AMOUNT_OF_ONE
from dpcore.reporting.formatting import (
    askable,
    at_most,
    booked,
    left,
    new_block_epsilon,
    next_epsilon,
    next_run,
    several_blocks,
    stated,
    step_of,
)
from dpcore.reporting.overview import AccountOverview, overview

MOST_SHOWN = 30
"""How many blocks and runs of an account are shown without --all."""
_WIDTH, _BAR = 100, 50


def show(arguments: argparse.Namespace) -> Answer:
    """Show one account, or all of them, and the chain's head."""
    with open_ledger() as ledger:
        found = overview(ledger, arguments.account)
    data = {"accounts": [_data(each) for each in found.accounts], "events": found.events, "head": found.head}
    most = None if arguments.all else MOST_SHOWN
    texts = [account_text(each, most=most) for each in found.accounts] or [
        "no account yet; open one: dpflow ledger open"
    ]
    return Answer(data, "\n\n\n".join([*texts, f"head {found.head} after {found.events:,} events"]))


def account_data(each: AccountOverview) -> dict[str, Any]:
    """Return an account's terms, promise and bookkeeping as JSON data. `promise` is the guarantee; amounts are in the account's currency."""
    account, promise, (_, balance) = each.account, each.promise(), each.most_used
    return {
        "account": account.name,
        "state": account.state.value,
        "currency": account.currency.value,
        "epsilon": account.epsilon,
        "delta": account.delta,
        "promise": asdict(promise.one),
        "promise_across_blocks": None if promise.across is None else asdict(promise.across),
        "raised": promise.raised,
        "unit": account.unit,
        "neighbours": account.neighbours.value,
        "about": account.description,
        "blocks_by": account.blocks_by,
        "opened_at": account.opened_at,
        "across_blocks": _across_data(each),
        **_balance_data(account, balance),
    }


def account_text(each: AccountOverview, *, most: int | None) -> str:
    """Describe an account, with at most `most` of its blocks and runs."""
    parts = [_heading(each), _budget(each), _blocks(each, most=most), _across(each), _allowances(each)]
    return "\n\n".join(part for part in [*parts, runs_text(each, most=most)] if part)


def _heading(each: AccountOverview) -> str:
    account = each.account
    state = (
        f"open since {account.opened_at[:10]}" if account.state is AccountState.OPEN else "closed: takes no more runs"
    )
    lines = [f"{account.name}  {state.rjust(_WIDTH - len(account.name) - 2)}", rule(_WIDTH)]
    if account.description:
        lines.append(account.description)
    lines.append(f"neighbours  {step_of(account)}")
    if account.blocks_by is not None:
        growing = sum(block.state is BlockState.OPEN for block, _ in each.blocks)
        lines.append(f"blocks      {account.blocks_by}: {len(each.blocks):,}, of which {growing:,} may still grow")
    promise = each.promise()
    how = ", raises included" if promise.raised else ""
    lines.append(f"promise     {stated(promise.one.epsilon, promise.one.delta)}, however runs use the budget{how}")
    if several := several_blocks(account.unit, promise):
        lines.append(f"{' ' * 12}{several[0].lower()}{several[1:].removesuffix('.')}")
    return "\n".join(lines)


def _budget(each: AccountOverview) -> str:
    account, (block, balance) = each.account, each.most_used
    symbol = account.currency.symbol
    where = f", in block {block}, which has least left" if account.blocks_by is not None and block else ""
    rows: list[tuple[str, ...]] = [(" " * 10, symbol, "share", f"bookkeeping{where}")]
    rows.append(("budget", booked(balance.cap), "", ""))
    following = next_run(
        next_epsilon(account, balance.remaining), new_blocks=new_block_epsilon(account) if block else None
    )
    for name, amount, written, more in (
        ("spent", balance.spent, booked, ""),
        ("reserved", balance.reserved, booked, ""),
        ("remaining", balance.remaining, left, following),
    ):
        rows.append((name, written(amount), f"{100 * amount / balance.cap:.1f} %", more))
    drawn = bar(spent=balance.spent, reserved=balance.reserved, whole=balance.cap, width=_BAR)
    return f"{' ' * 12}{drawn}   {legend()}\n\n{table(rows, right={symbol, 'share'})}"


def _blocks(each: AccountOverview, *, most: int | None) -> str:
    account = each.account
    if account.blocks_by is None or not each.blocks:
        return ""
    chosen = {block.name for block, _ in nlargest(most or len(each.blocks), each.blocks, key=lambda pair: pair[1].used)}
    rows = [("block", "state", "spent", "reserved", "remaining", f"bookkeeping in {account.currency.symbol}")] + [
        (
            block.name,
            block.state.value,
            booked(balance.spent),
            booked(balance.reserved),
            left(balance.remaining),
            bar(spent=balance.spent, reserved=balance.reserved, whole=balance.cap, width=30),
        )
        for block, balance in each.blocks
        if block.name in chosen
    ]
    left_out = len(each.blocks) - len(chosen)
    more = f"\n{left_out:,} less used blocks are not shown; --all shows them" if left_out else ""
    double = "\neach block pays double, because replacing a unit can change two blocks" if account.weight > 1 else ""
    several = ""
    if account.unit != "row":
        spent = booked(each.spent_by_all_runs)
        several = f"\nall runs together, on any blocks, have spent {account.currency.symbol} {spent}"
    return table(rows, right={"spent", "reserved", "remaining"}) + more + double + several


def _across_data(each: AccountOverview) -> dict[str, Any] | None:
    """Return the cap across blocks and its balance as JSON data, or None if the account has no such cap."""
    balance = each.across_balance
    if balance is None:
        return None
    amounts = _balance_data(each.account, balance) | {"remaining_epsilon": askable(each.account, balance.remaining)}
    return {"epsilon": each.account.across_epsilon, **amounts}


def _across(each: AccountOverview) -> str:
    account, balance = each.account, each.across_balance
    if balance is None:
        return ""
    heading = (
        "across blocks",
        "epsilon",
        "spent",
        "reserved",
        "remaining",
        f"bookkeeping in {account.currency.symbol}",
    )
    row = (
        "all runs",
        at_most(account.across_epsilon or 0.0),
        booked(balance.spent),
        booked(balance.reserved),
        left(balance.remaining),
        bar(spent=balance.spent, reserved=balance.reserved, whole=balance.cap, width=30),
    )
    return table([heading, row], right={"epsilon", "spent", "reserved", "remaining"})


def _allowances(each: AccountOverview) -> str:
    if not each.allowances:
        return ""
    symbol = each.account.currency.symbol
    used, remaining = f"{symbol} used", f"{symbol} left"
    rows = [("allowed to", "", "epsilon", used, remaining, "used")] + [
        (
            allowance.kind.value,
            allowance.name,
            at_most(allowance.epsilon),
            booked(allowance.used),
            left(allowance.remaining),
            bar(spent=allowance.used, reserved=0, whole=allowance.cap, width=30),
        )
        for allowance in each.allowances
    ]
    return table(rows, right={"epsilon", used, remaining})


def _data(each: AccountOverview) -> dict[str, Any]:
    account = each.account
    return {
        **account_data(each),
        "most_used_block": each.most_used[0],
        "spent_by_all_runs": each.spent_by_all_runs / AMOUNT_OF_ONE,
        "blocks": [
            {"block": block.name, "state": block.state.value, **_balance_data(account, balance)}
            for block, balance in each.blocks
        ],
        "allowances": [
            {
                "kind": allowance.kind.value,
                "name": allowance.name,
                "epsilon": allowance.epsilon,
                "cap": allowance.cap / AMOUNT_OF_ONE,
                "used": allowance.used / AMOUNT_OF_ONE,
                "remaining": allowance.remaining / AMOUNT_OF_ONE,
                "remaining_epsilon": askable(account, allowance.remaining),
            }
            for allowance in each.allowances
        ],
        "runs": [run_data(each.account, run) for run in each.runs],
    }


def _balance_data(account: Account, balance: Balance) -> dict[str, float]:
    return {
        "cap": balance.cap / AMOUNT_OF_ONE,
        "spent": balance.spent / AMOUNT_OF_ONE,
        "reserved": balance.reserved / AMOUNT_OF_ONE,
        "remaining": balance.remaining / AMOUNT_OF_ONE,
        "remaining_epsilon": next_epsilon(account, balance.remaining),
    }
