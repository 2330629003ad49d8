"""A statement for people: one Markdown page, a section for each account."""

from collections.abc import Iterable, Sequence

from dpcore.export.statements import AccountStatement, Spend
from dpcore.wording import at_most

_DOUBLE = (
    "To replace one is to take it from one block and to put another into a second, so that what two blocks have spent counts "
    "together: each block is charged double, and the figures here contain that."
)
_PARALLEL = (
    "A change within one block is seen only by the runs that touched that block, so that blocks do not add up: "
    "the worst of them stands for all."
)


def page(accounts: Iterable[AccountStatement], *, sizes: Sequence[int], head: str, events: int, made_at: str) -> str:
    """Write the page."""
    parts = [
        "# What was promised, and what it cost",
        f"As of event {events:,} of the ledger, whose head is `{head}`; written {made_at}.",
        *(_section(account, sizes) for account in accounts),
    ]
    return "\n\n".join(parts) + "\n"


def _section(statement: AccountStatement, sizes: Sequence[int]) -> str:
    whom = "row" if statement.unit == "row" else statement.unit
    heads = ["epsilon", *(f"1 {_plain(whom)}" if size == 1 else f"group of {size:,}" for size in sizes)]
    at = f" at delta {statement.delta:g}" if statement.delta else ""
    terms = (
        f"Unit: {_plain(statement.unit)}. Neighbours: {statement.neighbours}. Accounting: {statement.accounting}. "
        f"Every figure is an epsilon{at}; for a group it covers that many units changed at once."
    )
    parts = [
        f"## {_plain(statement.account)}",
        _plain(statement.about),
        f"**{_plain(statement.sentence)}**",
        terms,
        _table(heads, _totals(statement)),
        _by_block(statement, heads),
        _by_release(statement, heads),
    ]
    return "\n\n".join(part for part in parts if part)


def _totals(statement: AccountStatement) -> list[list[str]]:
    spent_in = f", in block {_plain(statement.spent_in)}" if statement.spent_in else ""
    at_most_in = f", in block {_plain(statement.at_most_in)}" if statement.at_most_in else ""
    across = []
    if statement.across is not None:
        whose = f"ever, for a {_plain(statement.unit)} with rows in several blocks, unless that cap is raised"
        across = [[whose, *_epsilons(statement.across)]]
    return [
        [f"spent so far{spent_in}", *_epsilons(statement.spent)],
        [f"at most, if open runs spend all they reserved{at_most_in}", *_epsilons(statement.at_most)],
        ["ever, unless the budget is raised", *_epsilons(statement.declared)],
        *across,
    ]


def _by_block(statement: AccountStatement, heads: Sequence[str]) -> str:
    if statement.blocks_by is None:
        return ""
    why = [_DOUBLE if statement.neighbours == "replace-one" else _PARALLEL]
    if statement.unit != "row":
        why.append(
            f"A {_plain(statement.unit)} with rows in several blocks has met the runs of each of them, each run once: with rows in all, "
            f"at worst epsilon {at_most(statement.spent_by_all_runs.epsilon)} is spent so far."
        )
    rows = [
        [_plain(block.block), *_epsilons(block.spent), at_most(block.at_most.epsilon)] for block in statement.blocks
    ]
    table = _table(["spent in block", *heads[1:], f"at most, {heads[1]}"], rows)
    return "\n\n".join([f"### By block: {_plain(statement.blocks_by)}", " ".join(why), table])


def _by_release(statement: AccountStatement, heads: Sequence[str]) -> str:
    rows = [
        [
            f"`{_plain(each.release)}`" if each.release else f"none ({each.state})",
            f"`{_plain(each.run)}`",
            *_epsilons(each.spent),
        ]
        for each in statement.releases
    ]
    if not rows:
        return ""
    about = "What each release gives by itself. A run that has spent and led to no release counts in the total all the same."
    return "\n\n".join(["### By release", about, _table(["release", "run", *heads[1:]], rows)])


def _epsilons(spend: Spend) -> list[str]:
    return [at_most(guarantee.epsilon) for guarantee in spend.guarantees]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str) -> str:
    """Return a name so that Markdown shows it as it is."""
    return "".join(f"\\{mark}" if mark in "\\`*_|<[#" else mark for mark in text)
