"""`dpflow ledger show`: what each account has spent, what runs hold of it, and what is left."""

import argparse
from heapq import nlargest
from typing import Any

from dpcore.accounting import UNIT, Currency
from dpcore.cli.answer import Answer, table
from dpcore.cli.bar import bar, legend, rule
from dpcore.cli.ledger_runs import run_data, runs_text
from dpcore.ledger import Account, AccountState, Balance, BlockState, open_ledger
from dpcore.overview import AccountOverview, overview
from dpcore.wording import down, epsilon_in, step_of, up

MOST_SHOWN = 30
"""Blocks and runs of an account that are shown unless all are asked for."""
_WIDTH, _BAR = 100, 50


def show(arguments: argparse.Namespace) -> Answer:
    """Show one account, or all of them, and the chain's head."""
    with open_ledger() as ledger:
        found = overview(ledger, arguments.account)
    data = {"accounts": [_data(each) for each in found.accounts], "events": found.events, "head": found.head}
    most = None if arguments.all else MOST_SHOWN
    texts = [account_text(each, most=most) for each in found.accounts] or ["no account yet: dpflow ledger open"]
    return Answer(data, "\n\n\n".join([*texts, f"head {found.head} after {found.events:,} events"]))


def account_data(account: Account, balance: Balance) -> dict[str, Any]:
    """Return an account's terms and balance for programs: amounts in its currency, and in epsilon at its delta."""
    return {
        "account": account.name,
        "state": account.state.value,
        "currency": account.currency.value,
        "epsilon": account.epsilon,
        "delta": account.delta,
        "unit": account.unit,
        "neighbours": account.neighbours.value,
        "about": account.description,
        "blocks_by": account.blocks_by,
        "opened_at": account.opened_at,
        **_balance_data(account, balance),
    }


def account_text(each: AccountOverview, *, most: int | None) -> str:
    """Write all about an account, with at most so many of its blocks and runs."""
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
    return "\n".join(lines)


def _budget(each: AccountOverview) -> str:
    account, (block, balance) = each.account, each.most_used
    symbol, pure = account.currency.symbol, account.currency is Currency.PURE
    where = f"in block {block}, of which least is left" if account.blocks_by is not None and block else ""
    at = "" if pure else f"at delta {account.delta:g}"
    how = "" if pure else f"{symbol} adds up; an epsilon is what its {symbol} alone amounts to"
    rows: list[tuple[str, ...]] = [(" " * 10, "epsilon", symbol, "share", ", ".join(filter(None, (at, where))))]
    rows.append(("budget", up(account.epsilon), down(balance.cap / UNIT, places=6), "", how))
    for name, units, written in (
        ("spent", balance.spent, up),
        ("reserved", balance.reserved, up),
        ("remaining", balance.remaining, down),
    ):
        share = f"{100 * units / balance.cap:.1f} %"
        rows.append((name, written(epsilon_in(account, units)), written(units / UNIT, places=6), share, ""))
    if pure:
        rows = [(*row[:2], *row[3:]) for row in rows]
    drawn = bar(spent=balance.spent, reserved=balance.reserved, whole=balance.cap, width=_BAR)
    return f"{' ' * 12}{drawn}   {legend()}\n\n{table(rows, right={'epsilon', symbol, 'share'})}"


def _blocks(each: AccountOverview, *, most: int | None) -> str:
    account = each.account
    if account.blocks_by is None or not each.blocks:
        return ""
    chosen = {block.name for block, _ in nlargest(most or len(each.blocks), each.blocks, key=lambda pair: pair[1].used)}
    rows = [("block", "state", "spent", "reserved", "remaining", "in epsilon")] + [
        (
            block.name,
            block.state.value,
            up(epsilon_in(account, balance.spent)),
            up(epsilon_in(account, balance.reserved)),
            down(epsilon_in(account, balance.remaining)),
            bar(spent=balance.spent, reserved=balance.reserved, whole=balance.cap, width=30),
        )
        for block, balance in each.blocks
        if block.name in chosen
    ]
    left_out = len(each.blocks) - len(chosen)
    more = f"\n{left_out:,} blocks that have used less are not shown; --all shows them" if left_out else ""
    double = "\neach block pays double, as replacing one may touch two of them" if account.weight > 1 else ""
    several = ""
    if account.unit != "row":
        spent = up(epsilon_in(account, each.spent_by_all_runs))
        several = f"\nfor one {account.unit} with rows in all blocks, epsilon {spent} is spent at worst"
    return table(rows, right={"spent", "reserved", "remaining"}) + more + double + several


def across_data(each: AccountOverview) -> dict[str, Any] | None:
    """Return the cap across blocks and its balance for programs; None if the account has none."""
    balance = each.across
    if balance is None:
        return None
    return {"epsilon": each.account.across_epsilon, **_balance_data(each.account, balance)}


def _across(each: AccountOverview) -> str:
    account, balance = each.account, each.across
    if balance is None:
        return ""
    row = (
        up(account.across_epsilon or 0.0),
        up(epsilon_in(account, balance.spent)),
        up(epsilon_in(account, balance.reserved)),
        down(epsilon_in(account, balance.remaining)),
        bar(spent=balance.spent, reserved=balance.reserved, whole=balance.cap, width=30),
    )
    heading = ("across blocks", "epsilon", "spent", "reserved", "remaining", f"for one {account.unit} in many blocks")
    rows = [heading, ("all runs", *row)]
    return table(rows, right={"epsilon", "spent", "reserved", "remaining"})


def _allowances(each: AccountOverview) -> str:
    if not each.allowances:
        return ""
    rows = [("allowed to", "", "epsilon", "used", "remaining", "used of what is allowed")] + [
        (
            allowance.kind.value,
            allowance.name,
            up(allowance.epsilon),
            up(epsilon_in(each.account, allowance.used)),
            down(epsilon_in(each.account, allowance.remaining)),
            bar(spent=allowance.used, reserved=0, whole=allowance.cap, width=30),
        )
        for allowance in each.allowances
    ]
    return table(rows, right={"epsilon", "used", "remaining"})


def _data(each: AccountOverview) -> dict[str, Any]:
    account = each.account
    block, balance = each.most_used
    return {
        **account_data(account, balance),
        "most_used_block": block,
        "spent_by_all_runs": each.spent_by_all_runs / UNIT,
        "spent_by_all_runs_epsilon": epsilon_in(account, each.spent_by_all_runs),
        "across_blocks": across_data(each),
        "blocks": [
            {"block": block.name, "state": block.state.value, **_balance_data(account, balance)}
            for block, balance in each.blocks
        ],
        "allowances": [
            {
                "kind": allowance.kind.value,
                "name": allowance.name,
                "epsilon": allowance.epsilon,
                "cap": allowance.cap / UNIT,
                "used": allowance.used / UNIT,
                "remaining": allowance.remaining / UNIT,
                "remaining_epsilon": epsilon_in(account, allowance.remaining),
            }
            for allowance in each.allowances
        ],
        "runs": [run_data(each.account, run) for run in each.runs],
    }


def _balance_data(account: Account, balance: Balance) -> dict[str, float]:
    return {
        "cap": balance.cap / UNIT,
        "spent": balance.spent / UNIT,
        "reserved": balance.reserved / UNIT,
        "remaining": balance.remaining / UNIT,
        "spent_epsilon": epsilon_in(account, balance.spent),
        "reserved_epsilon": epsilon_in(account, balance.reserved),
        "remaining_epsilon": epsilon_in(account, balance.remaining),
    }
