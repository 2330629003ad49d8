"""`dpflow ledger show`: each account's promise and its bookkeeping: spent, reserved by runs, and remaining."""

import argparse
from dataclasses import asdict
from typing import Any

from dpcore.cli.ledger_runs import run_data, runs_text
from dpcore.cli.output import Answer, bar, legend, rule, table
from dpcore.ledger import Account, AccountState, Allowance, Balance, BlockState, open_ledger
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

_WIDTH = 100


def show(arguments: argparse.Namespace) -> Answer:
    """Show one account, or all of them, and the chain's head."""
    with open_ledger() as ledger:
        shown = overview(ledger, arguments.account)
    data = {"accounts": [_data(summary) for summary in shown.accounts], "events": shown.events, "head": shown.head}
    most = None if arguments.all else 30
    texts = [account_text(summary, most=most) for summary in shown.accounts]
    head = f"head {shown.head} after {shown.events:,} events"
    return Answer(data, "\n\n\n".join([*(texts or ["no account yet; open one: dpflow ledger open"]), head]))


def account_data(summary: AccountOverview) -> dict[str, Any]:
    """Return an account's terms, promise and bookkeeping as JSON data. `promise` is the guarantee; amounts are in the account's currency."""
    account, promise, (_, balance) = summary.account, summary.promise(), summary.most_used
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
        "across_blocks": _across_data(summary),
        **_balance_data(account, balance),
    }


def account_text(summary: AccountOverview, *, most: int | None) -> str:
    """Describe an account, with at most `most` of its blocks and runs."""
    parts = [_heading(summary), _budget(summary), _blocks(summary, most=most), _across(summary), _allowances(summary)]
    return "\n\n".join(part for part in [*parts, runs_text(summary, most=most)] if part)


def _heading(summary: AccountOverview) -> str:
    account = summary.account
    state = (
        f"open since {account.opened_at[:10]}" if account.state is AccountState.OPEN else "closed: takes no more runs"
    )
    lines = [f"{account.name}  {state.rjust(_WIDTH - len(account.name) - 2)}", rule(_WIDTH)]
    if account.description:
        lines.append(account.description)
    lines.append(f"neighbours  {step_of(account)}")
    if account.blocks_by is not None:
        growing = sum(block.state is BlockState.OPEN for block, _ in summary.blocks)
        lines.append(f"blocks      {account.blocks_by}: {len(summary.blocks):,}, of which {growing:,} may still grow")
    promise = summary.promise()
    how = ", raises included" if promise.raised else ""
    lines.append(f"promise     {stated(promise.one.epsilon, promise.one.delta)}, however runs use the budget{how}")
    if several := several_blocks(account.unit, promise):
        lines.append(f"{' ' * 12}{several[0].lower()}{several[1:].removesuffix('.')}")
    return "\n".join(lines)


def _budget(summary: AccountOverview) -> str:
    account, (block, balance) = summary.account, summary.most_used
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
    drawn = bar(spent=balance.spent, reserved=balance.reserved, whole=balance.cap, width=_WIDTH // 2)
    return f"{' ' * 12}{drawn}   {legend()}\n\n{table(rows, right={symbol, 'share'})}"


def _blocks(summary: AccountOverview, *, most: int | None) -> str:
    account = summary.account
    if account.blocks_by is None or not summary.blocks:
        return ""
    chosen = summary.most_used_blocks(most)
    rows = [("block", "state", "spent", "reserved", "remaining", f"bookkeeping in {account.currency.symbol}")] + [
        (block.name, block.state.value, *_balance_cells(balance)) for block, balance in chosen
    ]
    left_out = len(summary.blocks) - len(chosen)
    more = f"\n{left_out:,} less used blocks are not shown; --all shows them" if left_out else ""
    double = "\neach block pays double, because replacing a unit can change two blocks" if account.weight > 1 else ""
    several = ""
    if account.unit != "row":
        spent = booked(summary.spent_by_all_runs)
        several = f"\nall runs together, on any blocks, have spent {account.currency.symbol} {spent}"
    return table(rows, right={"spent", "reserved", "remaining"}) + more + double + several


def _across_data(summary: AccountOverview) -> dict[str, Any] | None:
    """Return the cap across blocks and its balance as JSON data, or None if the account has no such cap."""
    balance = summary.across_balance
    if balance is None:
        return None
    amounts = _balance_data(summary.account, balance) | {
        "remaining_epsilon": askable(summary.account, balance.remaining)
    }
    return {"epsilon": summary.account.across_epsilon, **amounts}


def _across(summary: AccountOverview) -> str:
    account, balance = summary.account, summary.across_balance
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
    row = ("all runs", at_most(account.across_epsilon or 0.0), *_balance_cells(balance))
    return table([heading, row], right={"epsilon", "spent", "reserved", "remaining"})


def _balance_cells(balance: Balance) -> tuple[str, ...]:
    drawn = bar(spent=balance.spent, reserved=balance.reserved, whole=balance.cap, width=30)
    return booked(balance.spent), booked(balance.reserved), left(balance.remaining), drawn


def _allowances(summary: AccountOverview) -> str:
    if not summary.allowances:
        return ""
    symbol = summary.account.currency.symbol
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
        for allowance in summary.allowances
    ]
    return table(rows, right={"epsilon", used, remaining})


def _data(summary: AccountOverview) -> dict[str, Any]:
    account = summary.account
    return {
        **account_data(summary),
        "most_used_block": summary.most_used[0],
        "spent_by_all_runs": summary.spent_by_all_runs / AMOUNT_OF_ONE,
        "blocks": [
            {"block": block.name, "state": block.state.value, **_balance_data(account, balance)}
            for block, balance in summary.blocks
        ],
        "allowances": [allowance_data(account, allowance) for allowance in summary.allowances],
        "runs": [run_data(summary.account, run) for run in summary.runs],
    }


def allowance_data(account: Account, allowance: Allowance) -> dict[str, Any]:
    """Return an allowance as JSON data."""
    return {
        "kind": allowance.kind.value,
        "name": allowance.name,
        "epsilon": allowance.epsilon,
        "cap": allowance.cap / AMOUNT_OF_ONE,
        "used": allowance.used / AMOUNT_OF_ONE,
        "remaining": allowance.remaining / AMOUNT_OF_ONE,
        "remaining_epsilon": askable(account, allowance.remaining),
    }


def _balance_data(account: Account, balance: Balance) -> dict[str, float]:
    return {
        "cap": balance.cap / AMOUNT_OF_ONE,
        "spent": balance.spent / AMOUNT_OF_ONE,
        "reserved": balance.reserved / AMOUNT_OF_ONE,
        "remaining": balance.remaining / AMOUNT_OF_ONE,
        "remaining_epsilon": next_epsilon(account, balance.remaining),
    }
