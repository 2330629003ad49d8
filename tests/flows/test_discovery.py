"""What is found in the data is a step of its own in Prefect, of which Prefect learns nothing but its name."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dpcore.ledger import open_ledger
from flows.synthesize import synthesize
from tests.conftest import Workspace
from tests.flows.conftest import DATABASE, Search

pytestmark = pytest.mark.prefect


def test_discovery_is_a_task_run_of_its_own_before_ingest(workspace: Workspace, stored: Search) -> None:
    workspace.open_account(epsilon=100)
    workspace.write_spec(
        ("epsilon: 1.0", "epsilon: 20"),
        ("values: [north, south, west]", "discover: {most: 5, length: 9, alphabet: abehlnorstuw, share: 0.2}"),
    )
    outcome = synthesize(str(workspace.spec))
    assert "log.message" in stored(" values in city")  # and by then all is recorded
    with closing(sqlite3.connect(DATABASE, uri=True)) as database:
        query = "SELECT name FROM task_run WHERE flow_run_id = ? AND state_type = 'COMPLETED' ORDER BY start_time"
        names = [name for (name,) in database.execute(query, (outcome["run"],))]
    assert names[:4] == ["reserve", "check-rows", "discover", "ingest"]
    manifest = json.loads(Path(outcome["release"], "manifest.json").read_text(encoding="utf-8"))
    (found,) = manifest["discovered"]
    assert {"north", "south", "west"} <= set(found["cells"])
    with open_ledger() as ledger:
        bought = [done.step for done in ledger.transcript(outcome["run"]) if done.step.startswith("discover/04-city/")]
    assert [level["step"] for level in found["levels"]] == bought
