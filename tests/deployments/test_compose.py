"""compose.yaml keeps what it promises, and a change that breaks a promise is found."""

from copy import deepcopy
from typing import Any

import pytest
import yaml

from tests.deployments.compose_rules import RULES, Document, Rule
from tests.deployments.facts import DEPLOYMENTS

# Each change to a service, or to the whole document, and the rule that has to notice it.
BROKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "nobody_is_root": ("worker", {"user": "0:0"}),
    "nothing_is_writable_but_tmp_and_volumes": ("server", {"read_only": False}),
    "no_service_has_a_privilege": ("ledger-db", {"privileged": True}),
    "every_service_has_limits_and_does_not_swap": ("worker", {"mem_limit": None, "memswap_limit": None}),
    "images_are_pinned": ("prefect-db", {"image": "postgres:latest"}),
    "no_secret_is_in_the_environment": (
        "steward",
        {"environment": {"DPFLOW_LEDGER_URL": "postgresql://steward:pw@db/l"}},
    ),
    "secrets_are_files_that_git_ignores": ("", {"secrets": {"auth-string": {"environment": "AUTH"}}}),
    "every_secret_that_is_read_is_mounted_and_no_other": (
        "server",
        {"secrets": [{"source": "auth-string", "target": "PREFECT_SERVER_API_AUTH_STRING"}]},
    ),
    "ports_are_open_on_loopback_only": ("server", {"ports": ["4200:4200"]}),
    "the_server_sees_nothing_private": ("server", {"networks": ["prefect-db", "ledger"]}),
    "the_private_folder_is_the_workers_alone": ("steward", {"volumes": ["private:/private"]}),
    "raw_data_is_read_only_and_the_registry_is_the_stewards": ("worker", {"volumes": ["${DPFLOW_DATA:?words}:/data"]}),
    "nothing_reaches_the_internet": ("", {"networks": {"ledger": {}}}),
    "every_file_is_there": ("ledger-db", {"volumes": ["./roles.sql:/docker-entrypoint-initdb.d/1.sql:ro"]}),
    "every_variable_is_known": ("server", {"environment": {"PREFECT_SERVER_DATABASE_HOSTNAME": "prefect-db"}}),
    "no_service_loosens_what_the_image_sets": ("worker", {"environment": {"PREFECT_LOGGING_LOG_PRINTS": "true"}}),
    "what_runs_on_is_watched_and_restarted": ("worker", {"healthcheck": {}}),
    "each_command_uses_the_login_of_its_role": (
        "worker",
        {"environment": {"DPFLOW_LEDGER_URL": "postgresql://steward@ledger-db/ledger"}},
    ),
}


@pytest.fixture(scope="module")
def compose() -> Document:
    document: Document = yaml.safe_load((DEPLOYMENTS / "compose.yaml").read_text(encoding="utf-8"))
    return document


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_compose_file_keeps(rule: Rule, compose: Document) -> None:
    assert list(rule(compose)) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_broken_compose_file_is_noticed_by(rule: Rule, compose: Document) -> None:
    service, change = BROKEN[rule.__name__]
    broken = deepcopy(compose)
    (broken["services"][service] if service else broken).update(change)
    assert list(rule(broken))


def test_all_that_is_promised_is_about_every_service(compose: Document) -> None:
    assert set(compose["services"]) == {"prefect-db", "ledger-db", "server", "worker", "steward", "auditor"}
    for name in compose["services"]:
        changes: dict[str, dict[str, Any]] = {
            "nobody_is_root": {"user": "root"},
            "images_are_pinned": {"image": "dpflow"},
            "every_service_has_limits_and_does_not_swap": {"memswap_limit": -1},
        }
        for rule, change in changes.items():
            broken = deepcopy(compose)
            broken["services"][name].update(change)
            (found,) = next(it for it in RULES if it.__name__ == rule)(broken)
            assert found.startswith(name)
