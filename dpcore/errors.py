"""The errors that users can meet, with one base class. Each message says what to do next.

Messages contain only public numbers and names: never a value of the data, and never another library's message, which may quote one.
"""

from functools import partial


class DpflowError(Exception):
    """The base class of all errors. Their messages are safe to show, log and store anywhere."""

    exit_code = 1


class SpecError(DpflowError):
    """The release spec, or the way a command was called, is invalid. Nothing was read or spent."""

    exit_code = 2


class UsageError(DpflowError):
    """The request is invalid, for example because it names an unknown account."""

    exit_code = 2


class NoLedger(UsageError):  # noqa: N818  names what was found
    """There is no ledger yet at the place where one was looked for."""


class RunHeld(UsageError):  # noqa: N818  names what was found
    """Another worker, which may be alive, holds the run. The message says when the run can be taken over."""


class BlocksCovered(UsageError):  # noqa: N818  names what was found
    """A run asked for blocks that are new to its series of releases, but another run of the series has covered one of them."""


class TableChanged(UsageError):  # noqa: N818  names what was found
    """The table is not the one that a session or an earlier release has read, although it should be."""


class ReleaseDamaged(UsageError):  # noqa: N818  names what was found
    """A release that something names is missing, or not what was published."""

    exit_code = 1


class BudgetRefused(DpflowError):  # noqa: N818  a refusal is the ledger doing its work
    """The budget does not cover the request. The ledger is unchanged."""

    exit_code = 3

    def __init__(self, message: str, *, requested: int, remaining: int) -> None:
        super().__init__(message)
        self.requested = requested
        self.remaining = remaining

    def __reduce__(self) -> tuple[partial["BudgetRefused"], tuple[object, ...]]:
        """Keep the numbers when the error is pickled."""
        return partial(BudgetRefused, requested=self.requested, remaining=self.remaining), self.args

    @property
    def difference(self) -> int:
        """The missing amount."""
        return self.requested - self.remaining


class LedgerDamaged(DpflowError):  # noqa: N818  names what was found
    """The ledger, or a release that it recorded, is unreadable, contradictory or an old copy."""

    exit_code = 4


class LedgerError(DpflowError):
    """The ledger cannot be used now: it is locked, read-only, unreachable, out of space, or of a newer version."""


class SourceError(DpflowError):
    """The raw data cannot be read as a table. The message names only the file and the declared columns."""


class SourceBroken(SourceError):  # noqa: N818  names what was found
    """Reading failed at a point that may depend on the values or the number of rows, so the reservation is not refunded automatically."""


class RowsUnexpected(DpflowError):  # noqa: N818  names what was found
    """The noisy total lies outside the range that the spec expects. The run is settled without a release, and paid only for the total."""


class OutputError(DpflowError):
    """The release cannot be written, or the store of releases cannot be read. Everything measured so far is stored in the ledger."""


class StepFailed(DpflowError):  # noqa: N818  names what was found
    """A private step failed. The message says only where; the details are in the steward's private log."""
