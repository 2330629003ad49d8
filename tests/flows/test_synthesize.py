"""The flow on a real Prefect server: named steps, retries that replay, kills that lose nothing, and no private byte in Prefect."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from prefect import get_client
from prefect.flow_engine import run_flow
from prefect.states import Scheduled

from dpcore.errors import BudgetRefused
from dpcore.ledger import open_ledger
from flows.synthesize import synthesize
from tests.campaign import often
from tests.conftest import Workspace
from tests.faults.flows.canary_places import STEPS
from tests.flows.conftest import DATABASE, Search

pytestmark = pytest.mark.prefect


def test_every_step_is_a_task_run_of_its_own_name(workspace: Workspace, stored: Search) -> None:
    workspace.open_account()
    outcome = synthesize(str(workspace.spec))
    assert Path(outcome["release"], "manifest.json").exists()
    assert "log.message" in stored("round 4/4")
    with closing(sqlite3.connect(DATABASE, uri=True)) as database:
        query = "SELECT name FROM task_run WHERE flow_run_id = ? AND state_type = 'COMPLETED'"
        names = {name for (name,) in database.execute(query, (outcome["run"],))}
    rounds = {f"round-00{number}/{action}" for number in range(1, 5) for action in ("select", "measure", "update")}
    names = {name for name in names if not name.endswith("/last")}  # the search's own
    assert names == rounds | {step.replace("_", "-") for step in STEPS} - {"select", "measure", "update"}


def test_a_refusal_keeps_its_numbers_and_leaves_no_run(workspace: Workspace) -> None:
    workspace.open_account(epsilon=0.5)
    with pytest.raises(BudgetRefused) as caught:
        synthesize(str(workspace.spec))
    assert caught.value.difference == caught.value.requested - caught.value.remaining > 0
    with open_ledger() as ledger:
        assert ledger.runs("visits") == ()


def test_a_retry_of_a_completed_run_replays_it(workspace: Workspace) -> None:
    workspace.open_account()
    first = synthesize(str(workspace.spec))
    with open_ledger() as ledger:
        head = ledger.head()
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(first["run"], Scheduled(), force=True)
        again = run_flow(
            synthesize, flow_run=client.read_flow_run(first["run"]), parameters={"release": str(workspace.spec)}
        )
    assert again == first
    with open_ledger() as ledger:
        assert ledger.head() == head


def dpflow(*arguments: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from flows.cli.command import main; main()", *arguments],
        env=os.environ | {"PREFECT_API_URL": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


MOMENTS = ["round 3/"]
ALL_MOMENTS = ["reserved epsilon", "first model", "round 1/", "round 3/", "round 4/"]
RESULT = ["ledger", "release", "rows", "run", "promise", "spent", "remaining"]
PROGRESS = r"starting Prefect|run |warning: columns drawn |no column |first model|round |\d+ pairs |fitting |fit |drawing |computing "


@pytest.mark.campaign
@pytest.mark.parametrize("moment", often(MOMENTS, campaign=ALL_MOMENTS))
def test_a_killed_command_is_resumed_by_its_run_id_and_says_nothing_but_its_own(
    workspace: Workspace, prefect_server: str, moment: str
) -> None:
    workspace.open_account()
    run_id = ""
    with dpflow("run", str(workspace.spec), url=prefect_server) as killed:
        assert killed.stderr
        for line in killed.stderr:
            run_id = (re.findall(r"run (\S+): reserved", line) or [run_id])[0]
            if moment in line:
                killed.send_signal(signal.SIGKILL)
                break
    with open_ledger() as ledger:
        before = [(done.step, done.output) for done in ledger.transcript(run_id)]
    with dpflow("run", str(workspace.spec), "--resume", run_id, url=prefect_server) as resumed:
        out, errors = resumed.communicate()
    assert resumed.returncode == 0, errors
    assert [line.split()[0] for line in out.splitlines() if line] == RESULT
    assert [line for line in errors.splitlines() if not re.match(PROGRESS, line)] == []
    assert list(workspace.folder.glob("releases/visits/*/manifest.json"))
    with open_ledger() as ledger:
        run = ledger.run(run_id)
        after = [(done.step, done.output) for done in ledger.transcript(run_id)]
        paid = Counter(event.details["step"] for event in ledger.history("visits") if event.kind == "charged")
    assert after[: len(before)] == before
    assert sum(paid.values()) <= len(after) + 1
    assert run.spent <= run.reserved
