"""Flows whose tasks an account pays for, and a program that runs one of them as a given flow run, to be killed in it.

    python -m tests.flows.budgeted_visits FLOW_RUN_ID

Bodies note that they run in `notes.txt`. A body dies where the file `deadly` names it.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from uuid import UUID

from prefect import flow, get_client, task
from prefect.task_runners import ThreadPoolTaskRunner

from dpcore import Budget
from dpcore.errors import BudgetRefused

clinic = Budget("clinic")
NOTES, DEADLY = Path("notes.txt"), Path("deadly")


def note(what: str) -> None:
    """Note that a body runs, and die if it is the one."""
    with NOTES.open("a", encoding="ascii") as notes:
        notes.write(f"{what}\n")
    if DEADLY.exists() and DEADLY.read_text(encoding="ascii") == what:
        DEADLY.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def notes() -> list[str]:
    """Return which bodies ran, in order."""
    return NOTES.read_text(encoding="ascii").splitlines() if NOTES.exists() else []


@task
@clinic.spends(epsilon=0.1, unit="patient_id")
def mean(column: str) -> str:
    """Be any task."""
    note(column)
    return f"mean of {column}"


@task(retries=2)
@clinic.spends(epsilon=0.1, unit="patient_id")
def flaky(column: str) -> str:
    """Fail the first time."""
    note(column)
    if notes().count(column) == 1:
        raise RuntimeError("the user's own words")
    return f"flaky {column}"


@task
@clinic.spends(epsilon=0.1, unit="patient_id")
async def awaited(column: str) -> str:
    """Be any asynchronous task."""
    await asyncio.sleep(0)
    note(column)
    return f"awaited {column}"


@flow
def monthly() -> list[str]:
    """Pay for three steps."""
    return [mean("age"), mean("stay"), mean(column="cost")]


@flow
async def asynchronous() -> list[str]:
    """Pay for steps at once."""
    return list(await asyncio.gather(*(awaited(f"column {number}") for number in range(3))))


@flow(task_runner=ThreadPoolTaskRunner(max_workers=8))
def mapped(number: int) -> tuple[int, int]:
    """Map a task, and return how many were done and refused."""
    done = [future.result(raise_on_failure=False) for future in mean.map([f"column {each}" for each in range(number)])]
    return sum(isinstance(each, str) for each in done), sum(isinstance(each, BudgetRefused) for each in done)


@flow(task_runner=ThreadPoolTaskRunner(max_workers=4))
def reserved(epsilon: float, number: int) -> tuple[int, int]:
    """Do the same out of a reserve."""
    with clinic.reserve(epsilon=epsilon):
        note("reserved")
        done = [
            future.result(raise_on_failure=False) for future in mean.map([f"column {each}" for each in range(number)])
        ]
        return sum(isinstance(each, str) for each in done), sum(isinstance(each, BudgetRefused) for each in done)


if __name__ == "__main__":
    from flows.prefect_compat import run_flow

    with get_client(sync_client=True) as client:
        run_flow(monthly, flow_run=client.read_flow_run(UUID(sys.argv[1])))
