"""Measure whether a large ledger is slower than an empty one, and the cost of verifying it."""

import multiprocessing
import os
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.ledger_bulk import ACCOUNT, block_names, build, open_blocks
from benchmarks.ledger_charges import ANALYST, Charges, Slice, in_turns, median_ratio
from benchmarks.ledger_places import Place, Places
from benchmarks.ledger_scenario import price
from benchmarks.release_cost import peak_memory_mb
from dpcore.ledger import Ledger, open_ledger
from dpcore.ledger.verification import verify

TIMES = 10
"""Charges in a slice."""
SOME_BLOCKS = 50


def scale(made: Places, *, operations: int, blocks: int, rounds: int) -> dict[str, Any]:
    """Build a ledger of a tenth of the size and one of the full size, verify both, and charge the large one and an empty one."""
    tenth = _built(made, operations=operations // 10, blocks=blocks)[1]
    place, large = _built(made, operations=operations, blocks=blocks)
    empty = made.new()
    open_blocks(empty.url, blocks=SOME_BLOCKS)
    os.sync()  # so that bulk data is not flushed to disk during the charges
    with open_ledger(empty.url) as small, open_ledger(place.url) as big:
        slices = _slices(small, "empty", blocks=SOME_BLOCKS) | _slices(big, "large", blocks=blocks)
        taken = in_turns({name: slices[name] for name in sorted(slices)}, rounds=rounds)
    kinds = sorted({kind for kind, _ in taken})
    return {
        "operations": operations,
        "blocks": blocks,
        **large,
        "peak_memory_mb_of_a_tenth": tenth["peak_memory_mb"],
        "milliseconds": {
            size: {kind: 1_000 * statistics.median(taken[kind, size]) for kind in kinds} for size in ("empty", "large")
        },
        "analyst_to_plain_charge": median_ratio(taken["charge_an_analyst", "large"], taken["charge", "large"]),
        "cost_on_large": {kind: median_ratio(taken[kind, "large"], taken[kind, "empty"]) for kind in kinds},
    }


def _slices(ledger: Ledger, size: str, *, blocks: int) -> dict[tuple[str, str], Slice]:
    """Return a slice for each kind of transaction on one ledger, by its name and the ledger's size."""
    charges = Charges(ledger, account=ACCOUNT, blocks=block_names(blocks), times=TIMES)
    return {
        ("charge", size): charges.charges,
        ("charge_an_analyst", size): partial(charges.charges, ANALYST),
        ("charge_and_commit", size): charges.pairs,
        ("reserve_1_block", size): partial(charges.reservations, 1),
        ("reserve_50_blocks", size): partial(charges.reservations, SOME_BLOCKS),
        ("settle_1_block", size): partial(charges.settlements, 1),
        ("settle_50_blocks", size): partial(charges.settlements, SOME_BLOCKS),
    }


def _built(made: Places, *, operations: int, blocks: int) -> tuple[Place, dict[str, Any]]:
    """Build a ledger, and verify it in a separate process."""
    place = made.new()
    begin = time.perf_counter()
    build(place.url, operations=operations, blocks=blocks)
    seconds = time.perf_counter() - begin
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        verified = pool.apply(_verified, (place.url,))
    return place, {"megabytes": _bytes(place) / 1e6, "build_seconds": seconds, **verified}


def _verified(url: str) -> dict[str, float]:
    begin = time.perf_counter()
    with open_ledger(url) as ledger:
        events = verify(ledger, price=price, heads={}).events
    seconds = time.perf_counter() - begin
    return {
        "events": events,
        "verify_seconds": seconds,
        "verified_events_per_second": events / seconds,
        "peak_memory_mb": peak_memory_mb(),
    }


def _bytes(place: Place) -> int:
    if place.url.startswith("sqlite"):
        return Path(place.url.removeprefix("sqlite:///")).stat().st_size
    with psycopg.connect(place.url) as connection:
        ((size,),) = connection.execute("SELECT pg_database_size(current_database())").fetchall()
    return int(size)
