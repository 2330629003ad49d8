"""Prefect tasks that an account pays for: retries, resumed flow runs, mapped and asynchronous tasks, and reserves, on a real server."""

import asyncio
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from prefect import flow, get_client
from prefect.states import Pending

from dpcore.errors import BudgetRefused
from flows.prefect_compat import run_flow
from tests.campaign import often
from tests.conftest import Workspace
from tests.dpcore.budget.accounts import opened, remaining, runs, spent
from tests.flows.budgeted_visits import DEADLY, asynchronous, flaky, mapped, mean, monthly, note, notes, reserved

ROOT = Path(__file__).parents[2]
TENTH = Fraction(1, 10)
THREE = ["mean of age", "mean of stay", "mean of cost"]


@pytest.fixture(autouse=True)
def _account(workspace: Workspace) -> None:
    opened(epsilon=1.0)


@pytest.mark.prefect
def test_a_task_that_is_retried_pays_for_each_body_and_one_that_is_done_for_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    attempts: list[int] = []

    @flow(retries=1)
    def fragile() -> str:
        result = flaky("age") + mean("stay") + mean("stay")
        attempts.append(1)
        if len(attempts) == 1:
            raise RuntimeError("after all tasks")
        return result

    assert fragile() == "flaky agemean of staymean of stay"
    assert attempts == [1, 1]
    assert notes() == ["age", "age", "stay"]
    assert spent() == 3 * TENTH


@pytest.mark.prefect
def test_a_flow_run_that_was_killed_goes_on_where_it_was(prefect_server: str) -> None:
    with get_client(sync_client=True) as client:
        run = client.create_flow_run(monthly, state=Pending())
    DEADLY.write_text("stay", encoding="ascii")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PREFECT_API_URL": prefect_server}
    program = [sys.executable, "-m", "tests.flows.budgeted_visits", str(run.id)]
    assert subprocess.run(program, env=environment, capture_output=True, check=False).returncode == -9
    assert (notes(), spent()) == (["age", "stay"], 2 * TENTH)

    assert run_flow(monthly, flow_run=run) == THREE
    assert notes() == ["age", "stay", "stay", "cost"]
    assert spent() == 4 * TENTH
    assert run_flow(monthly, flow_run=run) == THREE  # a run that is complete, and retried in the UI
    assert monthly() == THREE  # another run
    assert notes()[4:] == ["age", "stay", "cost"]
    assert spent() == 7 * TENTH


@pytest.mark.prefect
def test_mapped_tasks_run_as_often_as_the_account_can_pay(workspace: Workspace) -> None:
    number = often(14, campaign=200)
    assert mapped(number) == (10, number - 10)
    assert len(set(notes())) == len(notes()) == 10
    assert spent() == 1


@pytest.mark.prefect
def test_asynchronous_tasks_are_paid_for() -> None:
    assert asyncio.run(asynchronous()) == [f"awaited column {number}" for number in range(3)]
    assert spent() == 3 * TENTH


@pytest.mark.prefect
def test_a_flow_is_refused_at_its_start_and_its_tasks_draw_from_its_reserve() -> None:
    with pytest.raises(BudgetRefused, match="account 'clinic' cannot pay"):
        reserved(1.1, 1)
    assert notes() == []
    assert reserved(0.4, 6) == (4, 2)
    assert notes()[0] == "reserved"
    assert (spent(), remaining()) == (4 * TENTH, 6 * TENTH)
    assert reserved(0.6, 1) == (1, 0)
    assert (spent(), remaining()) == (5 * TENTH, 5 * TENTH)
    names = [run.id.rpartition("-")[0] for run in runs() if run.spent]
    assert names == ["mean"] * 5


@pytest.mark.prefect
def test_prefect_stores_neither_the_value_nor_the_arguments(stored: Any) -> None:
    @flow
    def secretive() -> None:
        mean("zebra-stripes-4711")

    secretive()
    assert stored("zebra-stripes-4711") == []
    note("the note itself is no column of Prefect")
