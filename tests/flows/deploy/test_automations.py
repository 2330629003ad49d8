from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from prefect.automations import AutomationCore
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import get_client

from dpcore.errors import UsageError
from flows.cli.serve import worker_environment
from flows.deploy.automations import SILENCE_SECONDS, automate

pytestmark = pytest.mark.prefect
PASSED = "dpflow: an account passes 80 %"
NAMES = {
    "dpflow: silent runs are dead",
    "dpflow: dead runs are crashed",
    "dpflow: crashed runs go on",
    "dpflow: lost runs are scheduled again",
    PASSED,
}


@contextmanager
def client() -> Iterator[Any]:
    with get_client(sync_client=True) as found:
        yield found


@pytest.fixture(autouse=True)
def _none_left(prefect_server: str) -> Iterator[None]:
    yield
    with client() as api:
        for automation in api.read_automations():
            api.delete_automation(automation.id)


def automations() -> dict[str, Any]:
    with client() as api:
        found = api.read_automations()
    names = [automation.name for automation in found]
    assert len(names) == len(set(names)), names
    return {automation.name: automation for automation in found}


def save_block(name: str) -> str:
    block = CustomWebhookNotificationBlock(name=name, url="http://127.0.0.1:9/", method="POST")
    return str(block.save(name, overwrite=True))


def test_made_twice_each_is_there_once_and_as_it_was() -> None:
    automate(notify=None)
    first = automations()
    assert set(first) == NAMES
    automate(notify=None)
    assert automations() == first


def test_only_runs_with_our_tag_are_looked_at() -> None:
    automate(notify=None)
    found = automations()
    for name in NAMES - {PASSED}:
        tags = found[name].trigger.match_related.model_dump()
        assert tags == {"prefect.resource.id": "prefect.tag.dpflow", "prefect.resource.role": "tag"}, name


def test_a_changed_one_is_mended_and_one_that_is_switched_off_stays_off() -> None:
    automate(notify=None)
    before = automations()
    dead = before["dpflow: dead runs are crashed"]
    with client() as api:
        api.update_automation(dead.id, core(dead, description="changed", enabled=False))
        assert automations()[dead.name].description == "changed"
        api.delete_automation(before["dpflow: crashed runs go on"].id)
    automate(notify=None)
    after = automations()
    assert set(after) == NAMES
    assert after[dead.name] == dead.model_copy(update={"enabled": False})


def test_of_two_that_were_made_at_the_same_moment_one_goes() -> None:
    automate(notify=None)
    with client() as api:
        api.create_automation(core(automations()["dpflow: crashed runs go on"]))
    automate(notify=None)
    assert set(automations()) == NAMES


def core(automation: Any, **changes: Any) -> Any:
    return AutomationCore.model_validate(automation.model_dump(exclude={"id", "owner_resource"}) | changes)


def test_without_a_block_nobody_is_told() -> None:
    assert not automate(notify=None)
    assert [action.type for action in automations()[PASSED].actions] == ["do-nothing"]


def test_with_a_block_it_is_told_and_stays_so_when_made_again_without_one() -> None:
    block = save_block("steward")
    assert automate(notify="custom-webhook/steward")
    assert automate(notify=None)
    (action,) = automations()[PASSED].actions
    assert action.type == "send-notification"
    assert str(action.block_document_id) == block


def test_a_block_that_is_not_there_is_refused_before_anything_is_made() -> None:
    with pytest.raises(UsageError, match="no block custom-webhook/nobody; create it in the UI"):
        automate(notify="custom-webhook/nobody")
    assert automations() == {}


def test_a_run_that_was_never_started_or_was_so_too_often_does_not_go_on() -> None:
    automate(notify=None)
    counts = automations()["dpflow: crashed runs go on"].trigger.match.model_dump()["prefect.run-count"]
    assert counts == [str(count) for count in range(1, 10)]


def test_the_server_waits_for_four_heartbeats_of_a_worker_s_runs() -> None:
    assert 4 * int(worker_environment()["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"]) == SILENCE_SECONDS
