"""Kill whoever charges a ledger, and PostgreSQL itself, at every bad moment, and look for what is lost, unpaid or doubled.

    python -m tests.faults.ledger_faults --json

A process goes through every verb of the protocol on a fresh ledger and is ended by SIGKILL: once before and once after each
statement that it sends to the database (and each step by which a file comes into being), and at random moments from outside.
PostgreSQL is shut down at random moments while four processes charge it. After each death `verify` must pass, and the ledger must
agree with the journal that the dead kept elsewhere: what was drawn is spent, and every call that returned did what it said. Then a
second life takes the work up: each step ends up with one output, and at most the step in flight was paid twice.

The exit code is 1 if anything was found. `--planted` breaks the ledger on purpose, to see that it is.
"""

import argparse
import gc
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.ledger_places import STORES, Places, PostgresPlaces, file_system, places
from tests.faults.ledger_kills import Kills, Tally
from tests.faults.ledger_oracle import Fault
from tests.faults.ledger_planted import PLANTED, Opener, sound
from tests.faults.ledger_shutdowns import Shutdowns

SEED = 20261115
SMALL = {"sqlite": {"every": 101, "kills": 2}, "postgresql": {"every": 151, "kills": 2, "shutdowns": 1}}
"""What `--small` does to each store."""
SHOWN = 20
"""Findings that are written out; the others are only counted."""


def main() -> None:
    """Kill, look, and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", choices=STORES, action="append", help="only this one")
    parser.add_argument("--at", default="", help="kill only at boundaries like 'before COMMIT'")
    parser.add_argument("--every", type=int, default=1, help="kill at every n-th of these boundaries")
    parser.add_argument("--kills", type=int, default=300, help="kills at random moments, per store")
    parser.add_argument("--shutdowns", type=int, default=10, help="shutdowns of PostgreSQL under load")
    parser.add_argument("--small", action="store_true", help="only some of all, in a few seconds")
    parser.add_argument("--planted", choices=PLANTED, help="a ledger with this fault")
    parser.add_argument("--folder", type=Path, help="where to put the ledgers, instead of where temporary files go")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    gc.collect()
    gc.freeze()  # a forked process that never looks at what it inherited need not copy it
    begin = time.perf_counter()
    tallies = {}
    for store in arguments.store or STORES:
        with places(store, folder=arguments.folder) as made:
            disk = file_system(made.root)
            chosen = vars(arguments) | (SMALL[store] if arguments.small else {})
            tallies[store] = _tally(made, argparse.Namespace(**chosen))
    result = _result(tallies) | {"file_system": disk, "seed": SEED, "seconds": round(time.perf_counter() - begin, 1)}
    print(json.dumps(result) if arguments.json else _text(result))
    sys.exit(bool(result["findings"]))


def _tally(made: Places, arguments: argparse.Namespace) -> Tally:
    tally = Tally()
    opened: Opener = PLANTED[arguments.planted] if arguments.planted else sound
    kills = Kills(made, opened=opened, tally=tally)
    labels = kills.boundaries()
    tally.boundaries = len(labels)
    chosen = [(boundary, label) for boundary, label in enumerate(labels, start=1) if arguments.at in label]
    for boundary, label in chosen[:: arguments.every]:
        kills.kill_at(boundary, label=label)
    if arguments.kills:
        kills.kill_at_random(arguments.kills, seed=SEED)
    if isinstance(made, PostgresPlaces) and arguments.shutdowns:
        Shutdowns(made, times=arguments.shutdowns, tally=tally).shut_down(seed=SEED)
    return tally


def _result(tallies: dict[str, Tally]) -> dict[str, Any]:
    found = Counter(finding.fault for tally in tallies.values() for _, finding in tally.findings)
    shown = [
        f"{when}: {finding.fault}: {finding.what}" for tally in tallies.values() for when, finding in tally.findings
    ]
    totals = ("resumes", "verifications", "draws", "operations_committed")
    return {
        "kills": {store: dict(tally.kills) for store, tally in tallies.items()},
        "boundaries": {store: tally.boundaries for store, tally in tallies.items()},
        **{total: sum(getattr(tally, total) for tally in tallies.values()) for total in totals},
        **{fault: found[fault] for fault in Fault},
        "findings": shown[:SHOWN],
    }


def _text(result: dict[str, Any]) -> str:
    lines = [f"{'kills':24}{'boundary':>10}{'random':>10}{'shutdown':>10}"]
    for store, kills in result["kills"].items():
        lines.append(
            f"{store:24}" + "".join(f"{kills.get(kind, 0):>10}" for kind in ("boundary", "random", "shutdown"))
        )
    totals = ("resumes", "verifications", "draws", "operations_committed", *Fault)
    lines += [f"{total.replace('_', ' '):24}{result[total]:>10,}" for total in totals]
    lines += [f"  {finding}" for finding in result["findings"]]
    lines.append(f"{result['seconds']} s on {result['file_system']}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
