"""Every error a user can meet: one base class, each says what to do next.

Messages carry public numbers and names only: never a value of the data, never a text that another library wrote about one.
"""

from functools import partial


class DpflowError(Exception):
    """The base of all errors whose text is safe to show, log and store anywhere."""

    exit_code = 1


class SpecError(DpflowError):
    """The release spec, or the way a command was called, is wrong; nothing was read or spent."""

    exit_code = 2


class UsageError(DpflowError):
    """A request that cannot be carried out as it was made, such as an unknown account."""

    exit_code = 2


class RunHeld(UsageError):  # noqa: N818  names what was found
    """Another worker, which may be alive, is at work on the run; the message says when it can be taken over."""


class BlocksCovered(UsageError):  # noqa: N818  names what was found
    """A run asked for blocks that are new to its series of releases, and another run of the series has covered one of them."""


class BudgetRefused(DpflowError):  # noqa: N818  a refusal is the ledger doing its work
    """The account cannot pay for what was asked; the ledger is as it was before."""

    exit_code = 3

    def __init__(self, message: str, *, requested: int, remaining: int) -> None:
        super().__init__(message)
        self.requested = requested
        self.remaining = remaining

    def __reduce__(self) -> tuple[partial["BudgetRefused"], tuple[object, ...]]:
        """Let another process have it with its numbers."""
        return partial(BudgetRefused, requested=self.requested, remaining=self.remaining), self.args

    @property
    def difference(self) -> int:
        """The amount that is lacking."""
        return self.requested - self.remaining


class LedgerDamaged(DpflowError):  # noqa: N818  names what was found
    """The ledger's file does not read as a ledger or contradicts itself."""

    exit_code = 4


class LedgerError(DpflowError):
    """The ledger cannot be used as it is: locked, read-only, out of space, or of a newer version."""


class SourceError(DpflowError):
    """The raw data cannot be read as a table; the message names the file and the declared columns only."""


class SourceBroken(SourceError):  # noqa: N818  names what was found
    """Reading broke off where values, or how many rows there are, may have decided: no reservation comes back by itself."""


class RowsUnexpected(DpflowError):  # noqa: N818  names what was found
    """The noisy total lies outside of what the spec expects; the run is settled without a release, and only the total was paid for."""


class OutputError(DpflowError):
    """The release cannot be written; everything measured so far is kept in the ledger."""


class StepFailed(DpflowError):  # noqa: N818  names what was found
    """A private step broke; the text says only where, the details are in the steward's own log."""
