"""A series of releases: track which blocks its runs have covered, so that a run can ask for new ones only.

The series is the prefix of its runs' claims. It is therefore recorded in the chain, and a run, even when resumed, never changes
its series.
"""

from collections.abc import Collection

from dpcore.errors import BlocksCovered
from dpcore.ledger.refusals import known_event, listed
from dpcore.ledger.rows import Run, RunState
from dpcore.ledger.transaction import LedgerTransaction

_SEPARATOR = "/"


def claim_in(series: str | None, claim: str) -> str:
    """Return the claim of a run, prefixed with its series if it is in one.

    >>> claim_in("monthly", "9f86d081"), claim_in(None, "9f86d081")
    ('monthly/9f86d081', '9f86d081')
    """
    return claim if series is None else f"{series}{_SEPARATOR}{claim}"


def covered(rows: LedgerTransaction, account: str, series: str) -> dict[str, Run]:
    """Return the blocks that a series has covered, each with the run that covered it.

    A run covers its blocks if it is open or has led to a release. A run that was refunded or settled without a release covers
    nothing, whatever it spent.
    """
    by_block: dict[str, Run] = {}
    for run in rows.runs(account):
        may_cover = run.state is RunState.OPEN or (run.state is RunState.SETTLED and run.release is not None)
        if may_cover and run.claim.startswith(series + _SEPARATOR):
            by_block |= dict.fromkeys(known_event(rows, run.first).details.get("blocks") or (), run)
    return by_block


def refuse_if_covered(rows: LedgerTransaction, account: str, *, series: str, names: Collection[str]) -> None:
    """Raise if the series has already covered one of these blocks."""
    by_block = covered(rows, account, series)
    if both := [name for name in names if name in by_block]:
        raise BlocksCovered(
            f"block {listed(both)} is covered already by run '{by_block[both[0]].id}' of series {series}; "
            "start a new run, which will read only the blocks that are new by then"
        )
