"""The flow `answer` on a real server: answers and prices are a table there, and Parquet files where the releases are."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from prefect import Task, get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

from dpcore import Session
from dpcore.answers.sql.errors import QueryError
from dpcore.errors import BudgetRefused
from dpcore.ledger import open_ledger
from dpcore.session.dashboard import Priced
from flows.answer import Asked, Published, answer
from flows.worker.execute import execute
from tests.conftest import Workspace
from tests.dpcore.session.conftest import GROUPED, copied, narrower, opened  # noqa: F401  fixtures
from tests.flows.conftest import Search
from tests.flows.deployed import Deployed, deploy
from tests.flows.tasks.test_private_task import edges, passed  # noqa: F401  a fixture

pytestmark = pytest.mark.prefect
ALL = "select count(*) as n from release"


@pytest.fixture
def within(copied: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> str:  # noqa: F811
    """A folder with an open session, to work in, and an accuracy for which `GROUPED` must be bought and `ALL` need not."""
    monkeypatch.delenv("DPFLOW_PRIVATE")  # the session has its own
    copied()
    with Session.join("spec.yaml") as session:
        return f"{narrower(session, GROUPED, 0.8):.6g}"


def spent() -> int:
    with open_ledger() as ledger:
        return ledger.run("s").spent


def shown(key: str) -> Any:
    with get_client(sync_client=True) as client:
        (found,) = client.read_artifacts(artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[key])), limit=1)
    return found


def test_answers_and_prices_are_published_once_paid_and_free_the_next_time(
    within: str,
    passed: list[Any],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = answer("spec.yaml", [GROUPED, ALL], within, name="first-board")
    assert {type(value) for value in passed} == {str, int, type(None), Priced, Asked, Published, dict}
    assert first["paid"] * 1e12 == pytest.approx(spent())
    assert spent() > 0
    assert first["wider"] == []
    page = shown("answers-first-board")
    assert page.type == "table"
    rows = json.loads(page.data)
    assert {row["group"] for row in rows if row["query"] == 1} >= {"city = north", "city = south"}
    assert {row["answer"] for row in rows if row["query"] == 1} == {"bought"}
    assert re.search(r"; paid epsilon \S+ \(\S+ rho\), epsilon \S+ \(\S+ rho\) left in the session\.", page.description)
    folder = Path(first["answers"])
    listed = pd.read_parquet(folder / "answers.parquet")
    assert listed["sql"].to_list() == [GROUPED, ALL]
    table = pd.read_parquet(folder / listed["file"][0])
    assert list(table.columns) == ["city", "n", "n_low", "n_high", "n_basis"]

    before = spent()
    called: list[str] = []
    call = Task.__call__
    monkeypatch.setattr(Task, "__call__", lambda self, *args: called.append(self.name) or call(self, *args))
    again = answer("spec.yaml", [GROUPED, ALL], within, name="first-board")
    assert (again["paid"], spent()) == (0, before)
    assert called == ["price", "publish", "report"]
    pd.testing.assert_frame_equal(pd.read_parquet(folder / listed["file"][0]), table)


def test_a_dry_run_tells_prices_and_neither_buys_nor_writes(within: str) -> None:
    found = answer("spec.yaml", [GROUPED], within, name="dry", dry_run=True)
    assert (found["paid"], found["answers"], found["wider"]) == (0, "", [1])
    assert "the wanted accuracy would cost" in shown("answers-dry").description
    assert spent() == 0
    assert not list(Path.cwd().rglob("query-*.parquet"))


@pytest.fixture
def deployed(within: str, prefect_server: str) -> Deployed:
    """A deployment of the flow, on the session's spec."""
    return deploy(Workspace(Path.cwd(), Path("spec.yaml")), prefect_server, answer, entrypoint="flows.answer.answer")


def test_a_deployed_run_asks_a_registered_spec_and_draws_its_steps_in_order(
    deployed: Deployed, within: str, stored: Search
) -> None:
    run = deployed.start(queries=[GROUPED], within=within)
    assert execute(run) == 0
    assert deployed.state(run).name == "Completed"
    stored("all is recorded by then")
    assert set(edges(str(run))) == {
        ("price", "query-001/buy"),
        ("query-001/buy", "price"),
        ("price", "publish"),
        ("publish", "report"),
    }
    assert spent() > 0


@pytest.mark.parametrize(
    ("queries", "words"),
    [
        ([GROUPED, "select count(*) from nowhere"], "query 2: line 1, column 22: there is no table 'nowhere'"),
        ([{"$ref": "x"}], "the parameter queries is neither a number nor text, nor a list of texts"),
        ([], "queries: List should have at least 1 item"),
        ([GROUPED, "x" * 10_001], "String should have at most 10000 characters"),
    ],
    ids=["mistake", "reference", "none", "long"],
)
def test_a_run_with_bad_queries_is_refused_and_costs_nothing(
    deployed: Deployed, within: str, queries: list[Any], words: str
) -> None:
    with get_client(sync_client=True) as client:
        client.request(
            "PATCH", "/deployments/{id}", path_params={"id": deployed.id}, json={"enforce_parameter_schema": False}
        )
    run = deployed.start(queries=queries, within=within)
    assert execute(run) == 0
    assert deployed.state(run).name == "Refused"
    assert words in (deployed.state(run).message or "")
    assert spent() == 0


def test_called_in_a_program_it_raises_what_is_wrong(within: str) -> None:
    with pytest.raises(QueryError, match="query 1: line 1"):
        answer("spec.yaml", ["select"], within)
    with pytest.raises(BudgetRefused, match="1 of 1 answers must be bought"):
        answer("spec.yaml", [GROUPED], "1.5")
    assert spent() == 0
