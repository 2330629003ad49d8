"""State which blocks a release covers, and what that means for a unit with rows in several of them."""

from dataclasses import dataclass

from dpcore.ledger import Ledger, Run
from dpcore.reporting.formatting import pair, several_blocks
from dpcore.reporting.overview import overview
from dpcore.reporting.promises import AccountPromise
from dpcore.spec import Declaration

_LATER = "If the steward raises a cap later, the ledger states the new promise."


@dataclass(frozen=True)
class BlocksStatement:
    """The blocks a release covers, and the account's promise for everything it pays for, as of this release.

    Attributes:
        by: How the account's rows are divided into blocks.
        window: The window in the spec: all blocks, the new ones, or the last few periods.
        series: The series of releases that keeps track of these blocks, if there is one.
        number: The number of blocks.
        first: The earliest block.
        last: The latest block.
        names: All blocks.
        account: The promise of the account's caps. The run's own promise, for its release alone, is in the statement itself.
    """

    by: str
    window: str
    series: str | None
    number: int
    first: str
    last: str
    names: tuple[str, ...]
    account: AccountPromise

    @property
    def words(self) -> str:
        """Which blocks a release covers, as text.

        >>> from dpcore.privacy.accounting import Promise
        >>> promise = AccountPromise(Promise(1.0, 0.0), across=None, in_several=False, raised=False)
        >>> BlocksStatement("month of day", "new", "s", 2, "2026-01", "2026-02", ("2026-01", "2026-02"), promise).words
        '2 blocks, 2026-01 to 2026-02, by month of day; window: new'
        """
        which = f"block {self.first}" if self.number == 1 else f"{self.number:,} blocks, {self.first} to {self.last}"
        return f"{which}, by {self.by}; window: {self.window}"

    def consequences(self, *, unit: str, rows: int) -> str:
        """Describe the cost of this release to a unit, and the account's promise to it, by how many blocks the unit is in."""
        promise = self.account
        promised = pair(promise.one.epsilon, promise.one.delta)
        if not promise.in_several:
            return (
                f"Each row is in one block. Under the cap in force at publication, everything that the account pays for is "
                f"{promised}-differentially private for a row of any block. {_LATER}"
            )
        return (
            f"At most {rows:,} rows of one {unit} count in all these blocks together. However many blocks they lie in, this release "
            f"costs that {unit} its epsilon once. Under the caps in force at publication, everything that the account pays for is "
            f"{promised}-differentially private for a {unit} whose rows lie in one block. {several_blocks(unit, promise)} {_LATER}"
        )


def state_blocks(ledger: Ledger, declaration: Declaration, *, run: Run) -> BlocksStatement | None:
    """State which blocks a run has read and what their account promises. Return None if the whole table is one block.

    A run keeps at most k rows of a unit over all its blocks together. It therefore costs a unit its price once, however many blocks
    the unit has rows in. A unit with rows in a single block is affected by the runs that read that block, and a unit with rows in
    every block by all runs. Other runs may start from published releases of that block, which costs the unit nothing more.
    """
    calendar, blocks = declaration.calendar, declaration.spec.blocks
    if calendar is None or blocks is None:
        return None
    (account,) = overview(ledger, run.account).accounts
    names = ledger.blocks_of(run.id)
    return BlocksStatement(
        by=calendar.words,
        window=blocks.window,
        series=declaration.series,
        number=len(names),
        first=names[0],
        last=names[-1],
        names=names,
        account=account.promise(),
    )
