"""Measure how many charges per second a ledger takes, relative to the bare transaction of its store."""

import statistics
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any

from benchmarks.ledger_bare import bare
from benchmarks.ledger_bulk import ACCOUNT, block_names, open_blocks
from benchmarks.ledger_charges import Charges, in_turns, median_ratio, timed
from benchmarks.ledger_places import Places
from dpcore.ledger import open_ledger

TIMES = 25
"""Charges in a slice."""


def speed(made: Places, *, blocks: int, rounds: int) -> dict[str, Any]:
    """Measure a ledger that contains only an account with the given number of blocks."""
    place = made.new()
    open_blocks(place.url, blocks=blocks)
    with open_ledger(place.url) as ledger:
        charges = Charges(ledger, account=ACCOUNT, blocks=block_names(blocks), times=TIMES)
        row_bytes = charges.bytes_of_a_charge()
        with closing(bare(made.new(), row_bytes=row_bytes)) as limit:
            slices = {
                "bare": lambda: timed(lambda: [limit.charge() for _ in range(TIMES)], transactions=TIMES),
                "charge": charges.charges,
                "charge_and_commit": charges.pairs,
            }
            taken = in_turns(slices, rounds=rounds)
        few = {count: partial(charges.reservations, count) for count in sorted({1, min(50, blocks)})}
        all_of_them = {blocks: partial(charges.reservations, blocks, times=1)}
        reserving = in_turns(few, rounds=rounds) | in_turns(all_of_them, rounds=max(rounds // 4, 3))
    return {
        "row_bytes": row_bytes,
        "transactions_per_second": {name: _rate(seconds) for name, seconds in taken.items()},
        "share_of_bare": {name: median_ratio(taken["bare"], taken[name]) for name in ("charge", "charge_and_commit")},
        "reservations_per_second": {f"{count}_blocks": _rate(seconds) for count, seconds in reserving.items()},
    }


def _rate(seconds: Sequence[float]) -> float:
    return 1 / statistics.median(seconds)
