"""A temporary account for audits on made-up data."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from dpcore.ledger import Lease, Ledger, open_ledger
from dpcore.places import LEDGER_VARIABLE, set_variables
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours, Protection

ROW = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
"""With one row per unit, no rows are dropped at random, so every random word belongs to the noise."""


ACCOUNT = RUN = "audit"


@contextmanager
def temporary_account(*, cap: int) -> Iterator[Ledger]:
    """Open the account in pure epsilon that protects `ROW`, in a temporary ledger, which is this process's ledger meanwhile."""
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'ledger.sqlite')}"
        with set_variables({LEDGER_VARIABLE: url}), open_ledger(url, create=True) as ledger:
            ledger.open_account(
                ACCOUNT,
                currency=Currency.PURE,
                cap=cap,
                epsilon=cap / AMOUNT_OF_ONE,
                delta=0.0,
                unit=ROW.unit,
                neighbours=ROW.neighbours,
            )
            yield ledger


@contextmanager
def temporary_run(*, cap: int) -> Iterator[tuple[Ledger, Lease]]:
    """Reserve all of a temporary account for a run, and give its ledger and the run's lease."""
    with temporary_account(cap=cap) as ledger:
        ledger.reserve(RUN, account=ACCOUNT, amount=cap, claim="audit")
        yield ledger, ledger.lease(RUN)


def under_way(ledger: Ledger) -> int:
    """Return the amount charged for operations that have no result yet."""
    runs = ledger.runs(ACCOUNT)
    return sum(run.spent for run in runs) - sum(
        operation.amount for run in runs for operation in ledger.transcript(run.id)
    )
