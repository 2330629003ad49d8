"""The page of an account in Markdown: state, terms, spent and remaining budget, blocks, allowances and runs."""

import re
import shlex

from dpcore.reporting.formatting import askable, at_most, booked, down, left, several_blocks, stated, step_of, up
from dpcore.reporting.markdown import code, facts, image, mono, page, plain, table
from dpcore.reporting.overview import AccountOverview, RunOverview
from dpcore.reporting.plots import Bar, budget_plot, budget_words, percent
from flows.pages.run import balance_table

MOST_LISTED = 20
"""How many blocks and runs are listed."""


def account_page(summary: AccountOverview) -> str:
    """Return the page. It stays the same until something happens to the account."""
    account, (block, balance) = summary.account, summary.most_used
    bars = [Bar("now", balance.spent, 0, balance.reserved, balance.cap)]
    where = f"Block {plain(block)}, the most used one:" if account.blocks_by is not None and block else ""
    state = "open" if account.state == "open" else "closed: it takes no more runs"
    return page(
        f"# {plain(account.name)}",
        plain(account.description),
        f"**The account is {state}.** {percent(balance.used / balance.cap)} of its budget is used.",
        where,
        image(budget_plot(bars), budget_words(bars)),
        balance_table(account, balance),
        "## Terms",
        _terms(summary),
        _blocks(summary),
        _allowances(summary),
        _open_runs(summary),
        _runs(summary),
    )


def _terms(summary: AccountOverview) -> str:
    account, promise = summary.account, summary.promise()
    raised = ", as the budget was raised after the first charge" if promise.raised else ""
    rows = [
        ["budget", f"{stated(account.epsilon, account.delta)}, over all releases together"],
        ["promise", f"{stated(promise.one.epsilon, promise.one.delta)}{raised}"],
        ["one step of the guarantee", plain(step_of(account))],
        ["counts in", f"{account.currency.symbol} ({account.currency.value})"],
        ["opened", f"{account.opened_at[:16].replace('T', ' ')} UTC"],
    ]
    if account.blocks_by is not None:
        rows.append(["blocks", f"{plain(account.blocks_by)}: {len(summary.blocks):,}"])
        if several := several_blocks(account.unit, promise):
            rows.append(["rows in several blocks", plain(several)])
    if account.across_epsilon is not None and account.across_remaining is not None:
        rest = down(askable(account, account.across_remaining))
        rows.append(
            ["cap across blocks", f"epsilon {at_most(account.across_epsilon)} for all runs together; {rest} is left"]
        )
    return facts(rows)


def _blocks(summary: AccountOverview) -> str:
    account = summary.account
    if account.blocks_by is None or not summary.blocks:
        return ""
    rows = [
        [
            plain(block.name),
            block.state.value,
            booked(balance.spent),
            booked(balance.reserved),
            left(balance.remaining),
            percent(balance.used / balance.cap),
        ]
        for block, balance in summary.most_used_blocks(MOST_LISTED)
    ]
    figures = [f"{account.currency.symbol} spent", "reserved", "left", "used"]
    left_out = len(summary.blocks) - len(rows)
    more = f"{left_out:,} blocks that have used less are not shown here." if left_out else ""
    return page("## Blocks", table(["block", "state", *figures], rows, right=figures), more).strip()


def _allowances(summary: AccountOverview) -> str:
    rows = [
        [
            f"{allowance.kind.value} {plain(allowance.name)}",
            up(allowance.epsilon),
            booked(allowance.used),
            left(allowance.remaining),
            percent(allowance.used / allowance.cap),
        ]
        for allowance in summary.allowances
    ]
    symbol = summary.account.currency.symbol
    figures = ["epsilon", f"{symbol} used", f"{symbol} left", "share used"]
    return page("## Allowances", table(["allowed to", *figures], rows, right=figures)).strip() if rows else ""


def _open_runs(summary: AccountOverview) -> str:
    runs = [item for item in summary.runs if item.touched is not None]
    if not runs:
        return ""
    about = (
        "These runs hold a part of the budget: they are running, or were interrupted. To continue an interrupted run without charging or "
        "drawing anything twice, retry its flow run here, or call the first command below it with the release's registered name for "
        "NAME. The last command ends the run for good and returns its unspent budget to the account."
    )
    return page("## Open runs", about, *(_open_run(summary, item) for item in runs)).strip()


def _open_run(summary: AccountOverview, item: RunOverview) -> str:
    run, name = item.run, shlex.quote(item.run.id)
    ending = "settle" if run.spent else "refund"
    spent, reserved = (booked(amount) for amount in (run.spent, run.reserved))
    return page(
        f"Run {plain(run.id)}: {summary.account.currency.symbol} {spent} of {reserved} is spent.",
        code((f"dpflow run NAME --resume {name}\n" if item.of_a_spec else "") + f"dpflow ledger {ending} {name}"),
    ).strip()


def _runs(summary: AccountOverview) -> str:
    if not summary.runs:
        return "No run yet."
    latest = summary.runs[: -MOST_LISTED - 1 : -1]
    named = [name for name in ("analyst", "purpose") if any(getattr(item.run, name) for item in latest)]
    rows = [
        [
            plain(_short(item.run.id)),
            f"{item.run.opened_at[:16].replace('T', ' ')}",
            item.run.state.value,
            at_most(item.promise(summary.account).epsilon),
            booked(item.run.spent),
            mono(item.run.release) if item.run.release else "none",
            *(plain(getattr(item.run, name) or "") for name in named),
        ]
        for item in latest
    ]
    heading = "## Runs" if len(rows) == len(summary.runs) else f"## The last {len(rows)} of {len(summary.runs):,} runs"
    figures = ["epsilon promised", f"{summary.account.currency.symbol} spent"]
    heads = ["run", "opened (UTC)", "state", *figures, "release", *named]
    several = [f"{_short(item.run.id)} from {len(item.made_from):,} runs" for item in latest if len(item.made_from) > 1]
    about = f"Some are made from several runs, and promise the epsilon of all their reservations: {plain('; '.join(several))}."
    return page(heading, table(heads, rows, right=figures), about if several else "").strip()


def _short(run: str) -> str:
    """Shorten an id that Prefect made to its first part, so that a row fits the page."""
    return run[:8] if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", run) else run
