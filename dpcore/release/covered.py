"""Which blocks a release covers, and what that means for somebody who is in several of them."""

from dataclasses import dataclass

from dpcore.ledger import Ledger, Run
from dpcore.overview import overview
from dpcore.spec import Declaration
from dpcore.wording import epsilon_in, pair


@dataclass(frozen=True)
class BlocksStatement:
    """The blocks of a release, and what the account's releases so far, this one among them, amount to.

    Attributes:
        by: What the account's blocks are.
        window: What the spec asked for: all blocks, the new ones, or the last few periods.
        series: The series of releases that remembers these blocks, if there is one.
        number: How many blocks it covers.
        first: The earliest.
        last: The latest.
        names: All of them.
        epsilon_in_one_block: For a unit whose rows lie in one block: what the block that has spent most has spent.
        epsilon_in_all_blocks: For a unit with rows in every block: what all runs have spent together. None where a unit is a row.
        delta: The delta of both.
    """

    by: str
    window: str
    series: str | None
    number: int
    first: str
    last: str
    names: tuple[str, ...]
    epsilon_in_one_block: float
    epsilon_in_all_blocks: float | None
    delta: float


def state_blocks(ledger: Ledger, declaration: Declaration, *, run: Run) -> BlocksStatement | None:
    """State which blocks a run has read, and what was spent on them so far; None if the whole table is one block.

    A run keeps k rows of a unit over all its blocks together, so that it costs a unit its price once, in however many of them the
    unit is. A unit whose rows lie in one block has met the runs that touched that block; one with rows in all of them, all runs.
    """
    calendar, blocks = declaration.calendar, declaration.spec.blocks
    if calendar is None or blocks is None:
        return None
    (found,) = overview(ledger, run.account).accounts
    names, account = ledger.blocks_of(run.id), found.account
    by_row = account.unit == "row"
    return BlocksStatement(
        by=calendar.words,
        window=blocks.window,
        series=declaration.series,
        number=len(names),
        first=names[0],
        last=names[-1],
        names=names,
        epsilon_in_one_block=epsilon_in(account, found.most_spent[1].spent),
        epsilon_in_all_blocks=None if by_row else epsilon_in(account, found.spent_by_all_runs),
        delta=account.delta,
    )


def coverage(blocks: BlocksStatement) -> str:
    """Say which blocks a release covers.

    >>> coverage(BlocksStatement("month of day", "new", "s", 2, "2026-01", "2026-02", ("2026-01", "2026-02"), 1.0, None, 0))
    '2 blocks, 2026-01 to 2026-02, by month of day; window: new'
    """
    which = (
        f"block {blocks.first}" if blocks.number == 1 else f"{blocks.number:,} blocks, {blocks.first} to {blocks.last}"
    )
    return f"{which}, by {blocks.by}; window: {blocks.window}"


def consequences(blocks: BlocksStatement, *, unit: str, rows: int) -> str:
    """Say what this release, and all of the account's so far, cost somebody, by how many blocks they are in."""
    one = pair(blocks.epsilon_in_one_block, blocks.delta)
    if blocks.epsilon_in_all_blocks is None:
        return f"Each row is in one block. All that the account has paid for so far is {one}-differentially private for a row of any block."
    return (
        f"Of one {unit}, at most {rows:,} rows count in all these blocks together: in however many of them there are some, this release "
        f"costs that {unit} its epsilon once. All that the account has paid for so far is {one}-differentially private for a {unit} whose "
        f"rows lie in one block, and at worst {pair(blocks.epsilon_in_all_blocks, blocks.delta)}-differentially private for one with rows "
        "in all blocks."
    )
