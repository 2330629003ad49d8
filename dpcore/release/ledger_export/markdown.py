"""The statement for people: one Markdown page with a section for each account."""

from collections.abc import Iterable, Sequence

from dpcore.release.ledger_export.statements import AccountStatement, GroupGuarantee
from dpcore.reporting.formatting import figure, pair
from dpcore.reporting.markdown import mono, plain, table

_DOUBLE = (
    "Replacing one can remove it from one block and add another to a second block. Each block is therefore charged double, so that "
    "both blocks together stay within one cap."
)
_PARALLEL = (
    "A row of one block is read only by the runs of that block. Other runs may start from their releases, which costs that row nothing "
    "more. So the promises of the blocks do not add up."
)
_RAISED = (
    "The budget was raised after the first charge. The promise also covers raises that were decided after seeing earlier releases. "
    "It is therefore slightly larger than the declared epsilon, or holds at a multiple of the declared delta."
)


def page(accounts: Iterable[AccountStatement], *, sizes: Sequence[int], head: str, events: int, made_at: str) -> str:
    """Return the page."""
    parts = [
        "# What is promised",
        f"As of event {events:,} of the ledger, whose head is `{head}`; written {made_at}.",
        *(_section(account, sizes) for account in accounts),
    ]
    return "\n\n".join(parts) + "\n"


def _section(statement: AccountStatement, sizes: Sequence[int]) -> str:
    whom = "row" if statement.unit == "row" else statement.unit
    heads = [f"1 {plain(whom)}" if size == 1 else f"group of {size:,}" for size in sizes]
    terms = (
        f"Unit: {plain(statement.unit)}. Neighbours: {statement.neighbours}. Accounting: {statement.accounting}. "
        "A promise is an epsilon, with its delta unless that is 0. A group's promise covers that many units changed at once."
    )
    parts = [
        f"## {plain(statement.account)}",
        plain(statement.about),
        f"**{plain(statement.sentence)}**",
        terms,
        table(["promise", *heads], _promises(statement), right=heads),
        _RAISED if statement.raised else "",
        _books(statement),
        _by_block(statement),
        _by_release(statement, heads),
    ]
    return "\n\n".join(part for part in parts if part)


def _promises(statement: AccountStatement) -> list[list[str]]:
    by_block = statement.blocks_by is not None
    several = by_block and statement.unit != "row"
    rows = [["with rows in one block" if several else "everything together", *_pairs(statement.promise)]]
    if several:
        none = ["no cap"] * len(statement.promise)
        across = none if statement.across_blocks is None else _pairs(statement.across_blocks)
        rows.append(["with rows in several blocks", *across])
    return rows


def _books(statement: AccountStatement) -> str:
    books, block = statement.bookkeeping, statement.most_used_block
    where = f" in block {plain(block)}, the most used one" if block else ""
    return (
        f"Spent so far (bookkeeping, not a promise): {books.counts} {figure(books.spent)} of {figure(books.cap)}{where}; "
        f"open runs hold {books.counts} {figure(books.reserved)} more."
    )


def _by_block(statement: AccountStatement) -> str:
    if statement.blocks_by is None:
        return ""
    why = [_DOUBLE if statement.neighbours == "replace-one" else _PARALLEL]
    counts = statement.bookkeeping.counts
    if statement.unit != "row":
        why.append(
            f"All runs together have spent {counts} {figure(statement.spent_by_all_runs)}, which is the cost to a "
            f"{plain(statement.unit)} with rows in all blocks."
        )
    rows = [
        [plain(block.block), figure(block.bookkeeping.spent), figure(block.bookkeeping.reserved)]
        for block in statement.blocks
    ]
    figures = [f"{counts} spent", f"{counts} reserved"]
    listed = table(["block (bookkeeping)", *figures], rows, right=figures)
    return "\n\n".join([f"### By block: {plain(statement.blocks_by)}", " ".join(why), listed])


def _by_release(statement: AccountStatement, heads: Sequence[str]) -> str:
    rows = [
        [
            mono(release.release) if release.release else f"none ({release.state})",
            mono(release.run) + (f", made from {len(release.made_from):,} runs" if len(release.made_from) > 1 else ""),
            *_pairs(release.promise),
            figure(release.bookkeeping.spent),
        ]
        for release in statement.releases
    ]
    if not rows:
        return ""
    about = (
        "The promise of each release by itself follows from the reservations of its runs. It is stated here at the account's delta, and in the "
        "release's manifest at the delta of its spec. A run without a release still counts toward the total."
    )
    if any(len(release.made_from) > 1 for release in statement.releases):
        about += " A release that is made from several runs counts the reservations of all of them."
    spent = f"{statement.bookkeeping.counts} spent (bookkeeping)"
    return "\n\n".join(["### By release", about, table(["release", "run", *heads, spent], rows, right=[*heads, spent])])


def _pairs(promise: Iterable[GroupGuarantee]) -> list[str]:
    return [pair(guarantee.epsilon, guarantee.delta) for guarantee in promise]
