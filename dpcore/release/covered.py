"""Which blocks a release covers, and what that means for somebody who is in several of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpcore.ledger import Ledger, Run
from dpcore.privacy.accounting import Promise
from dpcore.reporting.formatting import pair, several_blocks
from dpcore.reporting.overview import overview
from dpcore.reporting.promises import AccountPromise
from dpcore.spec import Declaration


@dataclass(frozen=True)
class BlocksStatement:
    """The blocks of a release, and what its account promises for everything that it pays for, as of this release.

    Attributes:
        by: What the account's blocks are.
        window: What the spec asked for: all blocks, the new ones, or the last few periods.
        series: The series of releases that remembers these blocks, if there is one.
        number: How many blocks it covers.
        first: The earliest.
        last: The latest.
        names: All of them.
        account: What the account's caps promise. A run's own promise, which is for its release alone, is in the statement itself.
    """

    by: str
    window: str
    series: str | None
    number: int
    first: str
    last: str
    names: tuple[str, ...]
    account: AccountPromise


def state_blocks(ledger: Ledger, declaration: Declaration, *, run: Run) -> BlocksStatement | None:
    """State which blocks a run has read, and what their account promises; None if the whole table is one block.

    A run keeps k rows of a unit over all its blocks together, so that it costs a unit its price once, in however many of them the
    unit is. A unit whose rows lie in one block meets the runs that touch that block; one with rows in all of them, all runs.
    """
    calendar, blocks = declaration.calendar, declaration.spec.blocks
    if calendar is None or blocks is None:
        return None
    (found,) = overview(ledger, run.account).accounts
    names = ledger.blocks_of(run.id)
    return BlocksStatement(
        by=calendar.words,
        window=blocks.window,
        series=declaration.series,
        number=len(names),
        first=names[0],
        last=names[-1],
        names=names,
        account=found.promise(),
    )


def coverage(blocks: BlocksStatement) -> str:
    """Say which blocks a release covers.

    >>> promise = AccountPromise(Promise(1.0, 0.0), across=None, in_several=False, raised=False)
    >>> coverage(BlocksStatement("month of day", "new", "s", 2, "2026-01", "2026-02", ("2026-01", "2026-02"), promise))
    '2 blocks, 2026-01 to 2026-02, by month of day; window: new'
    """
    which = (
        f"block {blocks.first}" if blocks.number == 1 else f"{blocks.number:,} blocks, {blocks.first} to {blocks.last}"
    )
    return f"{which}, by {blocks.by}; window: {blocks.window}"


_LATER = "If the steward raises a cap, the ledger states what holds then."


def consequences(blocks: BlocksStatement, *, unit: str, rows: int) -> str:
    """Say what this release costs somebody, and what its account promises them, by how many blocks they are in."""
    promise = blocks.account
    one = pair(promise.one.epsilon, promise.one.delta)
    if not promise.in_several:
        return (
            f"Each row is in one block. By its cap when this was published, everything that the account pays for is {one}-differentially "
            f"private for a row of any block. {_LATER}"
        )
    return (
        f"Of one {unit}, at most {rows:,} rows count in all these blocks together: in however many of them there are some, this release "
        f"costs that {unit} its epsilon once. By its caps when this was published, everything that the account pays for is "
        f"{one}-differentially private for a {unit} whose rows lie in one block. {several_blocks(unit, promise)} {_LATER}"
    )


def read_blocks(stored: Mapping[str, Any]) -> BlocksStatement:
    """Read the statement of a manifest back."""
    promise = stored["account"]
    across = promise["across"]
    account = AccountPromise(
        one=Promise(**promise["one"]),
        across=None if across is None else Promise(**across),
        in_several=promise["in_several"],
        raised=promise["raised"],
    )
    return BlocksStatement(**{**stored, "account": account})
