"""The flow over blocks of time: the day that counts is the one that a run was scheduled for."""

from datetime import UTC, date, datetime
from typing import Any

import pytest
from prefect import get_client
from prefect.flow_engine import run_flow
from prefect.states import Scheduled

from dpcore.errors import UsageError
from dpcore.ledger import open_ledger
from dpcore.reporting.overview import look
from flows.pages.account import account_page
from flows.synthesize import synthesize
from tests.dpcore.runs.test_synthesis_blocks import Site, site, year_of_visits  # noqa: F401  a fixture
from tests.flows.conftest import Search

pytestmark = pytest.mark.prefect


def scheduled_for(moment: datetime, parameters: dict[str, Any]) -> Any:
    """Run the flow now, for a moment at which nobody was there to run it."""
    with get_client(sync_client=True) as client:
        flow_run = client.create_flow_run(synthesize, parameters=parameters, state=Scheduled(scheduled_time=moment))
        return run_flow(synthesize, flow_run=flow_run, parameters=parameters)


def test_a_run_that_starts_late_reads_what_it_was_scheduled_for(site: Site) -> None:  # noqa: F811  the fixture
    site.write(("start: 2024-01-01}", "window: new, start: 2024-01-01}"))
    site.open_account(times=1)
    parameters = {"release": str(site.spec)}
    first = scheduled_for(datetime(2024, 2, 29, 23, 30, tzinfo=UTC), parameters)
    assert first["blocks"] == ("2024-01",)
    second = scheduled_for(datetime(2024, 3, 1, 2, tzinfo=UTC), parameters)
    assert second["blocks"] == ("2024-02",)
    with pytest.raises(UsageError, match="there is no new block as of 2024-03-02"):
        scheduled_for(datetime(2024, 3, 2, 2, tzinfo=UTC), parameters)
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(first["run"], Scheduled(), force=True)
        again = run_flow(synthesize, flow_run=client.read_flow_run(first["run"]), parameters=parameters)
    assert again == first


def test_a_day_can_be_named_and_the_pages_say_what_was_covered(site: Site, stored: Search) -> None:  # noqa: F811  the fixture
    table = year_of_visits()
    site.fill(table.assign(person=[f"p{number % 10}" for number in range(len(table))]))
    site.write(("unit: row,", "unit: person, max_rows_per_unit: 2,"))
    site.open_account(unit="person")
    outcome = synthesize(str(site.spec), as_of=date(2024, 4, 1))
    assert outcome["blocks"] == ("2024-01", "2024-02", "2024-03")
    assert "artifact.data" in stored("3 blocks, 2024-01 to 2024-03, by month of day; window")
    assert "artifact.data" in stored("costs that person its epsilon once")
    assert "artifact.data" in stored("The figures are those of the most used of the 3 blocks that the run read")
    page = account_page(look("visits").accounts[0])
    assert "For one person with rows in several blocks, the losses of these blocks add up; no cap limits that" in page
    with open_ledger() as ledger:
        assert [block.name for block, _ in ledger.blocks("visits")] == ["2024-01", "2024-02", "2024-03"]
