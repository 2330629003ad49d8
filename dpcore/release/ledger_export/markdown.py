"""The statement for people: one Markdown page with a section for each account."""

from collections.abc import Iterable, Sequence

from dpcore.release.ledger_export.statements import AccountStatement, GroupGuarantee
from dpcore.reporting.formatting import figure, pair

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
    heads = [f"1 {_plain(whom)}" if size == 1 else f"group of {size:,}" for size in sizes]
    terms = (
        f"Unit: {_plain(statement.unit)}. Neighbours: {statement.neighbours}. Accounting: {statement.accounting}. "
        "A promise is an epsilon, with its delta unless that is 0. A group's promise covers that many units changed at once."
    )
    parts = [
        f"## {_plain(statement.account)}",
        _plain(statement.about),
        f"**{_plain(statement.sentence)}**",
        terms,
        _table(["promise", *heads], _promises(statement)),
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
    where = f" in block {_plain(block)}, the most used one" if block else ""
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
            f"{_plain(statement.unit)} with rows in all blocks."
        )
    rows = [
        [_plain(block.block), figure(block.bookkeeping.spent), figure(block.bookkeeping.reserved)]
        for block in statement.blocks
    ]
    table = _table(["block (bookkeeping)", f"{counts} spent", f"{counts} reserved"], rows)
    return "\n\n".join([f"### By block: {_plain(statement.blocks_by)}", " ".join(why), table])


def _by_release(statement: AccountStatement, heads: Sequence[str]) -> str:
    rows = [
        [
            f"`{_plain(each.release)}`" if each.release else f"none ({each.state})",
            f"`{_plain(each.run)}`" + (f", made from {len(each.made_from):,} runs" if len(each.made_from) > 1 else ""),
            *_pairs(each.promise),
            figure(each.bookkeeping.spent),
        ]
        for each in statement.releases
    ]
    if not rows:
        return ""
    about = (
        "The promise of each release by itself follows from the reservations of its runs. It is stated here at the account's delta, and in the "
        "release's manifest at the delta of its spec. A run without a release still counts toward the total."
    )
    if any(len(each.made_from) > 1 for each in statement.releases):
        about += " A release that is made from several runs counts the reservations of all of them."
    spent = f"{statement.bookkeeping.counts} spent (bookkeeping)"
    return "\n\n".join(["### By release", about, _table(["release", "run", *heads, spent], rows)])


def _pairs(promise: Iterable[GroupGuarantee]) -> list[str]:
    return [pair(guarantee.epsilon, guarantee.delta) for guarantee in promise]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str) -> str:
    """Escape a text so that Markdown shows it literally."""
    return "".join(f"\\{mark}" if mark in "\\`*_|<[#" else mark for mark in text)
