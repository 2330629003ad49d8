"""Run one spec with and without Prefect, and measure the cost."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import yaml

import dpcore
from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import budget_of
from dpcore.privacy.protection import Neighbours
from flows.server.password import authorization

ROOT = Path(__file__).parents[1]
ACCOUNT = "clinic-visits"
TABLE = f"{ACCOUNT}.csv"
EPSILON = 10_000  # enough for any number of runs

SIZES: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    # 540 cells
    "small": lambda universe: {name: universe[name] for name in ("sex", "age", "visit_type", "cost", "readmitted")},
    # 388,800 cells: the table and the spec that come with the project
    "sample": lambda universe: universe,
    # 4,665,600 cells
    "large": lambda universe: (
        universe | {"visit_date": universe["visit_date"] | {"every": "month"}, "age": universe["age"] | {"width": 5}}
    ),
}
"""Derives each universe from the sample's."""

STEPS_BESIDE_ROUNDS = 10
"""The tasks of a run with a column at full resolution, besides the three of each round."""

RECORDED_SECONDS = 60.0


class Bench:
    """A folder with the sample table, an account for it, and a spec for each size."""

    def __init__(self, folder: Path, *, rounds: int) -> None:
        self.folder = folder
        self.rounds = rounds
        made = [sys.executable, ROOT / "data" / "clinic_visits.py", "--out", folder / TABLE]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  our own script
        for size in SIZES:
            self._write_spec(size)
        currency, cap = budget_of(EPSILON, delta=1e-9)
        with open_ledger(create=True) as ledger:
            ledger.open_account(
                ACCOUNT,
                currency=currency,
                cap=cap,
                epsilon=EPSILON,
                delta=1e-9,
                unit="patient_id",
                neighbours=Neighbours.ADD_REMOVE,
            )
        self._last = ""

    def spec(self, size: str) -> str:
        """Return the path of a spec."""
        return str(self.folder / f"{size}.yaml")

    def warm_up(self) -> None:
        """Make one small run of each kind, so that one-time initialization is done."""
        self._without("small")
        self._with("small")

    def in_turns(self, size: str, repeats: int) -> dict[str, list[float]]:
        """Return the CPU seconds of each run. Both kinds alternate, so that other work on the machine affects them alike."""
        spent: dict[str, list[float]] = {"without": [], "with": []}
        for _ in range(repeats):
            for kind, run in (("without", self._without), ("with", self._with)):
                begin = cpu_seconds()
                run(size)
                spent[kind].append(cpu_seconds() - begin)
        return spent

    def cold(self, size: str, url: str) -> dict[str, float]:
        """Return the CPU seconds of whole processes, one of each kind."""
        plain = [sys.executable, "-c", "import dpcore, sys; dpcore.synthesize(sys.argv[1])", self.spec(size)]
        flow = [sys.executable, "-m", "flows", "run", self.spec(size), "--json"]
        without, through = (_cpu_of(command, {"PREFECT_API_URL": url}) for command in (plain, flow))
        return {"without_seconds": without, "with_seconds": through, "ratio": through / without}

    def tasks(self, url: str) -> int:
        """Return how many completed task runs the server has recorded for the last run with Prefect."""
        ended = partial(self._count, url, {"state": {"type": {"any_": ["COMPLETED"]}}})
        deadline = time.monotonic() + RECORDED_SECONDS
        # The server records task runs one after the other, in no fixed order, so only their number tells that none is missing.
        while (done := ended()) < 3 * self.rounds + STEPS_BESIDE_ROUNDS or done < self._count(url, {}):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the server has recorded only {done} task runs of the last run")
            time.sleep(0.1)
        return done

    def _count(self, url: str, wanted: dict[str, Any]) -> int:
        body = {"flow_runs": {"id": {"any_": [self._last]}}, "task_runs": wanted}
        secret = authorization(os.environ["PREFECT_API_AUTH_STRING"])
        with httpx.Client(headers=secret, trust_env=False, timeout=30) as client:
            return int(client.post(f"{url}/task_runs/count", json=body).json())

    def _without(self, size: str) -> None:
        dpcore.synthesize(self.spec(size))

    def _with(self, size: str) -> None:
        from prefect.events.worker import EventsWorker  # noqa: PLC0415  as late as can be: see `overhead`
        from prefect.logging.handlers import APILogWorker  # noqa: PLC0415

        from flows.synthesize import synthesize  # noqa: PLC0415

        self._last = synthesize(self.spec(size))["run"]
        EventsWorker.instance().wait_until_empty()
        APILogWorker.drain_all()  # it offers no way to wait; the next run pays for restarting it

    def _write_spec(self, size: str) -> None:
        spec = yaml.safe_load((ROOT / "data" / f"{ACCOUNT}.yaml").read_text(encoding="utf-8"))
        spec["universe"] = SIZES[size](spec["universe"])
        spec["strategy"] = {"name": "mwem", "rounds": self.rounds}
        spec["output"]["path"] = "releases"
        Path(self.spec(size)).write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")


def cpu_seconds() -> float:
    """Return the CPU seconds of this process, with all its threads, and of its ended children. The server has not ended."""
    return sum(os.times()[:4])


def _cpu_of(command: list[str], more: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | more)  # noqa: S603  our own
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
