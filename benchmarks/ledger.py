"""Measure how many charges per second a ledger takes, relative to the limit of its store, and whether a large ledger is slower.

    python -m benchmarks.ledger --json

Speed: `charge`, and pairs of `charge` and `commit`, each a durable transaction. The baseline, measured in the same rounds, is the least that
any durable, shared and idempotent charge must do: a bare transaction with the same driver and settings that locks, reads and changes a
balance and adds one row of a charge's size under a unique key. Its rate is the limit of this disk and this driver; `share_of_bare` is the
share of it that the ledger reaches.

Scale: a ledger of many committed operations and blocks is written in bulk and verified in its own process. So is one of a tenth of its size,
to compare their memory. Then the same charges, some of them to the share of an analyst, are made alternately on the large ledger and on an
empty one.

All times are wall time, because a durable charge waits for the disk. Each figure is a median over the rounds.
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.ledger_bare import bare
from benchmarks.ledger_bulk import ACCOUNT, block_names, open_blocks
from benchmarks.ledger_charges import Charges, in_turns, median_ratio, timed
from benchmarks.ledger_places import STORES, Places, file_system, places
from benchmarks.ledger_scale import scale
from dpcore.ledger import open_ledger

SHARE_BAR = 0.4
"""The least share of the bare transaction's rate that a charge should reach."""
COST_BAR = 1.5
"""The largest cost of a charge on the large ledger, relative to the empty one."""
TIMES = 25
"""Charges in a slice."""
QUICK = {"operations": 10_000, "blocks": 1_000, "rounds": 10}


def main() -> None:
    """Run the benchmark and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", choices=STORES, action="append", help="measure only this store")
    parser.add_argument("--operations", type=int, default=1_000_000, help="in the large ledger")
    parser.add_argument("--blocks", type=int, default=10_000, help="in the large ledger")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--quick", action="store_true", help="finish in a minute: " + _options(QUICK))
    parser.add_argument("--folder", type=Path, help="the folder for the ledgers; default: that of temporary files")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.quick:
        vars(arguments).update(QUICK)
    begin = time.perf_counter()
    stores = {}
    for store in arguments.store or STORES:
        with places(store, folder=arguments.folder) as made:
            disk = file_system(made.root)
            size = {"blocks": arguments.blocks, "rounds": arguments.rounds}
            stores[store] = {
                "speed": speed(made, **size),
                "scale": scale(made, operations=arguments.operations, **size),
            }
    result = {
        "file_system": disk,
        "durable": True,
        "bars": {"share_of_bare": SHARE_BAR, "cost_on_large": COST_BAR},
        "stores": stores,
        "bars_met": {store: _bars_met(figures) for store, figures in stores.items()},
        "seconds": time.perf_counter() - begin,
    }
    print(json.dumps(result) if arguments.json else _text(result))


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


def _options(options: dict[str, int]) -> str:
    return " ".join(f"--{name} {value}" for name, value in options.items())


def _bars_met(figures: dict[str, Any]) -> dict[str, bool]:
    return {
        "share_of_bare": min(figures["speed"]["share_of_bare"].values()) >= SHARE_BAR,
        "cost_on_large": max(figures["scale"]["cost_on_large"].values()) <= COST_BAR,
    }


def _text(result: dict[str, Any]) -> str:
    lines = [f"durable, on {result['file_system']}"]
    for store, figures in result["stores"].items():
        lines += ["", *_speed_lines(store, figures["speed"]), *_scale_lines(figures["scale"])]
        lines += [f"  bar for {bar} met: {met}" for bar, met in result["bars_met"][store].items()]
    return "\n".join([*lines, "", f"{result['seconds']:.0f} s"])


def _speed_lines(store: str, figures: dict[str, Any]) -> list[str]:
    lines = [f"{store:34}{'per second':>12}{'of bare':>10}"]
    for name, rate in figures["transactions_per_second"].items():
        share = figures["share_of_bare"].get(name)
        label = f"bare transaction, {figures['row_bytes']} bytes" if share is None else f"{name} transactions"
        lines.append(f"  {label.replace('_', ' '):32}{rate:>12,.0f}" + (f"{share:>10.2f}" if share else ""))
    for name, rate in figures["reservations_per_second"].items():
        lines.append(f"  {'reserve in ' + name.replace('_', ' '):32}{rate:>12,.1f}")
    return lines


def _scale_lines(figures: dict[str, Any]) -> list[str]:
    counts = f"{figures['operations']:,} operations, {figures['events']:,} events, {figures['blocks']:,} blocks"
    pace = f"{figures['verify_seconds']:.0f} s, {figures['verified_events_per_second']:,.0f} events/s"
    memory = f"{figures['peak_memory_mb']:.0f} MB, and {figures['peak_memory_mb_of_a_tenth']:.0f} MB for a tenth of it"
    lines = [
        f"  {counts}: {figures['megabytes']:,.0f} MB, built in {figures['build_seconds']:.0f} s",
        f"  verified in {pace}, with {memory}",
        f"  {'ms per transaction':32}{'empty':>12}{'large':>10}{'cost':>8}",
    ]
    for kind, cost in figures["cost_on_large"].items():
        empty, large = (figures["milliseconds"][size][kind] for size in ("empty", "large"))
        lines.append(f"  {kind.replace('_', ' '):32}{empty:>12.3f}{large:>10.3f}{cost:>8.2f}")
    ratio = figures["analyst_to_plain_charge"]
    return [
        *lines,
        f"  on the large ledger, a charge to an analyst's share takes {ratio:.2f} times as long as a plain one",
    ]


if __name__ == "__main__":
    main()
