"""A series of releases: which blocks its runs have covered, so that a run can ask for those that are new to it.

The series is the first part of what its runs claim. So it is in the chain, a run never changes its series, and a resumed run is
still the one of the series that it was.
"""

from collections.abc import Collection

from dpcore.errors import BlocksCovered
from dpcore.ledger.refusals import known_event, listed
from dpcore.ledger.rows import Run, RunState
from dpcore.ledger.transaction import LedgerTransaction

_SEPARATOR = "/"


def claim_in(series: str | None, claim: str) -> str:
    """Return what a run of a series claims; one that is in no series claims just that.

    >>> claim_in("monthly", "9f86d081"), claim_in(None, "9f86d081")
    ('monthly/9f86d081', '9f86d081')
    """
    return claim if series is None else f"{series}{_SEPARATOR}{claim}"


def covered(rows: LedgerTransaction, account: str, series: str) -> dict[str, Run]:
    """Return the blocks that a series has covered, each with the run that did: one that has led to a release, or still may.

    A run that was refunded or ended without a release has covered nothing, whatever it has spent.
    """
    found: dict[str, Run] = {}
    for run in rows.runs(account):
        may_cover = run.state is RunState.OPEN or (run.state is RunState.SETTLED and run.release is not None)
        if may_cover and run.claim.startswith(series + _SEPARATOR):
            found |= dict.fromkeys(known_event(rows, run.first).details.get("blocks") or (), run)
    return found


def refuse_if_covered(rows: LedgerTransaction, account: str, *, series: str, names: Collection[str]) -> None:
    """Refuse blocks of which a series has covered one already."""
    known = covered(rows, account, series)
    if both := [name for name in names if name in known]:
        raise BlocksCovered(
            f"block {listed(both)} is covered already by run '{known[both[0]].id}' of series {series}; "
            "start a new run, which reads what is new by then"
        )
