"""Measure what it costs that an account pays for a function: beside a bare function and task, and beside durable writes of this disk.

    python -m benchmarks.budgeted --json

Calls alternate in one process: a transaction that makes one row durable in a SQLite file of its own, twice, which is the least that a charge
before and a value after a body need; a function that an account pays for, and the same one without an account; a Prefect task with and without
an account. All times are wall time on SQLite. Each figure is a median over the rounds, in milliseconds.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.ledger_bare import BareSqlite
from benchmarks.ledger_places import Place, file_system
from dpcore import Budget
from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours

TASK_BAR = 12.0
"""The most milliseconds that an account may add to a task."""
WRITE_BAR = 1.0
"""The most that it may add to durable writes, outside Prefect."""
ROW_BYTES = 400
clinic = Budget("clinic")


def main() -> None:
    """Run the benchmark and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--folder", type=Path, help="the folder for the ledger; default: that of temporary files")
    parser.add_argument("--without-prefect", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="dpflow-budgeted-", dir=arguments.folder) as folder,
        contextlib.chdir(folder),
    ):
        result = {"file_system": file_system(Path(folder))} | measured(Path(folder), arguments)
    print(json.dumps(result) if arguments.json else _text(result))


def measured(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure in a new folder, which is also the working folder."""
    os.environ["DPFLOW_LEDGER_URL"] = f"sqlite:///{folder / 'ledger.sqlite'}"
    with open_ledger(create=True) as ledger:
        ledger.open_account(
            "clinic",
            currency=Currency.PURE,
            cap=10**5 * AMOUNT_OF_ONE,
            epsilon=1e5,
            delta=0.0,
            unit="patient_id",
            neighbours=Neighbours.ADD_REMOVE,
        )
    numbers = iter(range(10**9))
    paid = clinic.spends(unit="patient_id", epsilon=0.1)(_body)
    place = Place(url=f"sqlite:///{folder / 'bare.sqlite'}", folder=folder)
    bare = BareSqlite(place, row_bytes=ROW_BYTES)

    def two_writes() -> None:
        bare.charge()
        bare.charge()

    calls: dict[str, Callable[[], object]] = {
        "two_writes": two_writes,
        "function": lambda: _body(next(numbers)),
        "paid_function": lambda: paid(next(numbers)),
    }
    with contextlib.closing(bare):
        outside = _medians(calls, arguments.rounds)
        result: dict[str, Any] = {"milliseconds": outside, "outside": _compared(outside)}
        if not arguments.without_prefect:
            tasks = _tasks(paid, lambda: next(numbers), arguments.rounds)
            added = tasks["paid_task"] - tasks["task"]
            result["milliseconds"] = outside | tasks
            result["tasks"] = {
                "added": added,
                "ratio": tasks["paid_task"] / tasks["task"],
                "bar_met": added <= TASK_BAR,
            }
    return result


def _compared(outside: dict[str, float]) -> dict[str, Any]:
    added = outside["paid_function"] - outside["function"] - outside["two_writes"]
    return {"added": added, "ratio": outside["paid_function"] / outside["two_writes"], "bar_met": added <= WRITE_BAR}


def _tasks(paid: Callable[[int], int], number: Callable[[], int], rounds: int) -> dict[str, float]:
    from flows.cli.quiet import quiet  # noqa: PLC0415  importing Prefect takes seconds

    with quiet():
        from prefect import flow, task  # noqa: PLC0415  likewise, and it reads the settings of the server

        plain, budgeted = task(_body), task(paid)

        @flow
        def alternating() -> dict[str, float]:
            return _medians({"task": lambda: plain(number()), "paid_task": lambda: budgeted(number())}, rounds)

        return dict(alternating())


def _body(number: int) -> int:
    return number


def _medians(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Time the calls in turns; the first fifth only warms up."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + rounds // 5):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            times[name].append(1000 * (time.perf_counter() - begin))
    return {name: statistics.median(each[rounds // 5 :]) for name, each in times.items()}


def _text(result: dict[str, Any]) -> str:
    lines = [f"milliseconds on {result['file_system']}"]
    lines += [f"{name:16}{value:9.2f}" for name, value in result["milliseconds"].items()]
    for what, bar in (("outside", WRITE_BAR), ("tasks", TASK_BAR)):
        if figures := result.get(what):
            beside = "two durable writes" if what == "outside" else "a bare task"
            lines.append(
                f"{figures['added']:.2f} ms added to {beside}, {figures['ratio']:.1f} times; bar of {bar:g} ms met: {figures['bar_met']}"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # Prefect's threads may still wait for a server that is gone
