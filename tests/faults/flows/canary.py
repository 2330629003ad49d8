"""Run the flows on a poisoned table with a failure forced in one place after the other; a program of its own, run by test_canary.

It works in its working folder on the Prefect server that the environment names, and prints what each run ended with.
"""

import importlib
import json
import sys
import time
import uuid
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pandas as pd
from prefect import flow, get_client, task
from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.filters import TaskRunFilter, TaskRunFilterName
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker

import tests.few_replicates  # noqa: F401  each of many releases is fitted again for its intervals
from flows.budget import budget
from flows.synthesize import synthesize
from flows.tasks.guard import private_task
from flows.verify import verify

SPEC, TABLE = "spec.yaml", "visits.csv"


def main() -> None:
    """Break each place in turn, run through once, leak on purpose, and wait until the server has recorded all of it."""
    planted, encoded, *places = sys.argv[1:]
    table = Path(TABLE).read_text(encoding="utf-8")
    ends = {place: _broken(place, table) for place in places}
    ends["nowhere"] = _end(lambda: synthesize(SPEC, note="canary"))
    ends["budget"], ends["verify"] = _end(budget), _end(verify)
    _leak(planted, encoded)
    _wait_until_recorded()
    print(json.dumps(ends))  # noqa: T201


def _broken(place: str, table: str) -> str:
    """Run with one function replaced by one that fails with the whole private table in its error."""
    module, _, attribute = place.partition(":")
    owner = importlib.import_module(module)
    *path, name = attribute.split(".")
    for part in path:
        owner = getattr(owner, part)

    def fail(*_arguments: object, **_options: object) -> None:
        print(table)  # noqa: T201  as careless as can be
        raise ValueError(table) from KeyError(pd.read_csv(TABLE, dtype=str).to_string())

    with patch.object(owner, name, fail):
        return _end(lambda: (synthesize(SPEC, note="canary"), budget(), verify()))


def _end(run: Callable[[], object]) -> str:
    try:
        run()
    except Exception as error:  # noqa: BLE001  how it ended is what is asked
        return type(error).__name__
    return "done"


def _leak(planted: str, encoded: str) -> None:
    @task
    def leaky() -> None:
        create_markdown_artifact(f"![a plot](data:image/png;base64,{b64encode(f'x{encoded}'.encode()).decode()})")
        raise ValueError(planted)

    @flow
    def careless() -> None:
        leaky()

    _end(careless)


def _wait_until_recorded() -> None:
    """Send one more task run and wait until the server knows its end: it records in order."""
    APILogWorker.drain_all(timeout=30)
    EventsWorker.drain_all(timeout=30)
    last = f"{uuid.uuid4()}/last"
    private_task(name="last", task_run_name=last)(lambda: None)()
    deadline = time.monotonic() + 60
    with get_client(sync_client=True) as client:
        wanted = TaskRunFilter(name=TaskRunFilterName(any_=[last]))
        while not any(run.state and run.state.is_completed() for run in client.read_task_runs(task_run_filter=wanted)):
            if time.monotonic() > deadline:
                sys.exit("the Prefect server has not recorded the last task within a minute")
            time.sleep(0.05)


if __name__ == "__main__":
    main()
