"""Let workers die again and again under a burst of scheduled runs, and look for what is lost, doubled or unpaid in the end.

    python -m tests.faults.soak --json --runs 200 --kill-seconds 10 --workers 2

All runs are scheduled for the same moment. They are runs of one small spec that is registered under several names, because runs of
one deployment wait for each other and a dead one would hold up all others; they share one account, which can pay for three quarters
of them. The limit of one run at a time in the account's queue is lifted through the API: they are to fight for the ledger. Prefect's server and the ledger are on PostgreSQL, the workers are `dpflow serve`. Every few seconds, at any moment of its
runs' lives, a worker is killed by SIGKILL, in turn with all its runs and alone, and started again. Nobody looks after the runs but the automations that `dpflow serve`
makes; only their waits are shorter, see `soak_stack`. When hardly a run is left, the killing ends. Then every run has to come
to an end: completed, or refused because the account is empty. `soak_rules` says what must hold then.

The exit code is 1 if a rule is broken. `--planted` breaks one on purpose after the soak, to see that it is found.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

from tests.faults.soak_planted import PLANTED
from tests.faults.soak_rules import COMPLETED, REFUSED, Rule, Soaked, broken
from tests.faults.soak_stack import installed
from tests.faults.soak_storm import Storm, history
from tests.faults.soak_table import ACCOUNT, STORES, prepare

SHOWN = 20
"""Findings that are written out; the others are only counted."""


def main() -> None:
    """Soak, look, and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200, help="how many runs are scheduled (default: %(default)s)")
    parser.add_argument("--kill-seconds", type=float, default=10, help="a worker is killed this often")
    parser.add_argument("--kills", type=int, help="no more than so many kills; else until hardly a run is left")
    parser.add_argument("--life", type=float, help="how many seconds a run takes; else the first one tells")
    parser.add_argument("--by-hand", action="store_true", help="start dead runs again without the server's automations")
    parser.add_argument("--workers", type=int, default=2, help="how many workers there are (default: %(default)s)")
    parser.add_argument("--names", type=int, default=12, help="under how many names the spec is registered")
    parser.add_argument("--store", choices=STORES, default=STORES[0], help="where server and ledger keep everything")
    parser.add_argument("--minutes", type=float, default=40, help="what has not ended by then is lost")
    parser.add_argument("--planted", choices=PLANTED, help="break this after the soak")
    parser.add_argument("--keep", type=Path, help="a folder that is not there yet, in which everything is to be left")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupted)  # so that what was started is ended on the way out
    if arguments.keep:
        arguments.keep.mkdir(parents=True)
        result = soak(arguments.keep.resolve(), arguments)
    else:
        with tempfile.TemporaryDirectory(prefix="dpflow-soak-") as folder:
            result = soak(Path(folder), arguments)
    print(json.dumps(result) if arguments.json else _text(result))
    sys.exit(bool(result["broken"]))


def soak(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Soak an installation in a folder, and return counts and findings."""
    begin = time.monotonic()
    with installed(folder, store=arguments.store, workers=arguments.workers) as stack:
        os.environ.update({name: text for name, text in stack.environment.items() if name.startswith("DPFLOW_")})
        names = prepare(folder, runs=arguments.runs, names=min(arguments.names, arguments.runs))
        stack.start_server()
        if not arguments.by_hand:
            stack.deploy()
        storm = Storm(
            stack,
            names=names,
            kill_seconds=arguments.kill_seconds,
            most_kills=arguments.kills,
            life=arguments.life,
            by_hand=arguments.by_hand,
            deadline=begin + 60 * arguments.minutes,
        )
        storm.burst(arguments.runs)
        storm_began = time.monotonic()
        storm.rage()
        calm_began = time.monotonic()
        storm.calm()
        ended = time.monotonic()
        last = stack.runs()
        soaked = Soaked(
            releases=folder / "releases",
            ledger=os.environ["DPFLOW_LEDGER_URL"],
            account=ACCOUNT,
            ends={run["id"]: run["state_name"] for run in last},
            asked=arguments.runs,
        )
        words = {run["id"]: (run["state"] or {}).get("message") for run in last}
        past = history(stack, storm.runs)
        if arguments.planted:
            soaked = PLANTED[arguments.planted](soaked)
        findings = broken(soaked)
    ends = Counter(soaked.ends.values())
    return {
        "runs": arguments.runs,
        "completed": ends[COMPLETED],
        "refused": ends[REFUSED],
        "otherwise": {
            run: f"{end}: {words[run]}" for run, end in soaked.ends.items() if end not in {COMPLETED, REFUSED}
        },
        "kills": dict(storm.kills),
        "workers_that_ended_by_themselves": storm.died,
        **past,
        "seconds_of_a_run": storm.life and round(storm.life, 1),
        "retries_by_hand": storm.retries,
        "seconds": {
            "setup": round(storm_began - begin, 1),
            "storm": round(calm_began - storm_began, 1),
            "calm": round(ended - calm_began, 1),
            "rules": round(time.monotonic() - ended, 1),
        },
        "store": arguments.store,
        "broken": {rule: count for rule in Rule if (count := sum(it.rule is rule for it in findings))},
        "findings": [f"{finding.rule}: {finding.what}" for finding in findings[:SHOWN]],
    }


def _text(result: dict[str, Any]) -> str:
    lines = []
    for key, value in result.items():
        if key == "findings":
            continue
        shown = ", ".join(f"{name} {count}" for name, count in value.items()) if isinstance(value, dict) else value
        lines.append(f"{key.replace('_', ' '):34}{shown or 0}")
    return "\n".join([*lines, *(f"  {finding}" for finding in result["findings"])])


def _interrupted(*_: object) -> NoReturn:
    sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
