"""The form of one release: what its spec declares, what its account can still pay for, and when it is written again."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pytest
from prefect.utilities.schema_tools.validation import validate

from dpcore.ledger import Account, Balance
from dpcore.reporting import overview
from dpcore.steward.approvals import require_approval
from dpcore.steward.registry import Registered, register
from flows.form import AS_DECLARED, form_schema
from flows.pages import form
from flows.pages.form import filled, refresh_forms
from flows.synthesize import synthesize
from tests.conftest import Workspace

FIELDS = ("epsilon", "delta", "rows", "workload", "strategy")


def schema(entry: Registered, balance: tuple[Account, Balance] | None = None, base: Any = None) -> dict[str, Any]:
    return filled(base or form_schema(synthesize).model_dump(exclude_unset=True), entry, balance)


def defaults(found: dict[str, Any]) -> dict[str, Any]:
    return {name: found["properties"][name].get("default") for name in FIELDS}


def help_text(found: dict[str, Any], name: str) -> str:
    return str(found["properties"][name]["description"])


def balance() -> tuple[Account, Balance]:
    (each,) = overview.look("visits").accounts
    return each.account, each.most_used[1]


def edit(workspace: Workspace, old: str, new: str) -> Registered:
    text = workspace.spec.read_text(encoding="utf-8")
    assert old in text
    workspace.spec.write_text(text.replace(old, new), encoding="utf-8")
    return register(workspace.spec)


def test_the_declared_values_are_the_defaults_and_the_server_accepts_them(workspace: Workspace) -> None:
    found = schema(register(workspace.spec))
    values = {name: value for name, value in defaults(found).items() if value is not None}
    assert values == {"epsilon": 1.0, "delta": 1e-9, "workload": 2, "strategy": "mwem"}
    assert validate({"release": workspace.spec.stem, **values}, found) == []
    assert "The spec declares the noisy number of real rows." in help_text(found, "rows")


def test_a_default_does_not_outlive_the_declared_value(workspace: Workspace) -> None:
    before = schema(register(workspace.spec))
    after = schema(edit(workspace, "marginals: 2", "marginals: [[sex, age]]"), base=before)
    assert (defaults(before)["workload"], defaults(after)["workload"]) == (2, None)
    assert "a list of 1 marginals" in help_text(after, "workload")


def test_a_declared_epsilon_above_the_limit_of_the_form_is_left_out(workspace: Workspace) -> None:
    found = schema(edit(workspace, "epsilon: 1.0", "epsilon: 101.0"))
    assert (defaults(found)["epsilon"], defaults(found)["delta"]) == (None, None)


def test_a_form_is_for_its_own_release(workspace: Workspace) -> None:
    register(workspace.spec, name="other")
    found = schema(register(workspace.spec, name="mine"))
    assert found["properties"]["release"]["enum"] == ["mine"]
    assert validate({"release": "other"}, found)


def test_a_spec_that_was_edited_shows_no_values_and_says_what_to_do(workspace: Workspace) -> None:
    entry = register(workspace.spec)
    before = schema(entry)
    workspace.spec.write_text(workspace.spec.read_text(encoding="utf-8").replace("epsilon: 1.0", "epsilon: 2.0"))
    found = schema(entry, base=before)
    assert defaults(found) == dict.fromkeys(FIELDS) | {"strategy": AS_DECLARED}
    assert "Runs are refused until it is registered again." in help_text(found, "release")


def test_the_form_says_what_the_account_can_pay_for_and_as_of_when(workspace: Workspace) -> None:
    workspace.open_account(epsilon=3)
    entry, now = register(workspace.spec), datetime.now(UTC)
    words = help_text(schema(entry, balance()), "epsilon")
    dates = [f"as of {moment:%Y-%m-%d %H:%M} UTC" for moment in (now, datetime.now(UTC))]
    assert any(date in words for date in dates)
    assert "the next run can ask for epsilon 3.0000" in words
    again = help_text(schema(entry, balance(), base=schema(entry, balance())), "epsilon")
    assert again.count("can ask for") == 1
    assert "can ask for" not in help_text(schema(entry), "epsilon")
    assert "approval" not in words
    require_approval("visits", above=0.5, delta=1e-9, within_seconds=60)
    assert "A run above epsilon 0.5 waits for the steward's approval." in help_text(schema(entry), "epsilon")


class Server:
    """Stands for the server: it has one deployment, and perhaps a run that is about to start."""

    def __init__(self, deployed: dict[str, Any]) -> None:
        self.deployed = deployed
        self.due: list[datetime] = []
        self.patched = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def read_deployment_by_name(self, name: str) -> Any:
        assert name == "synthesize/visits"
        return type("Deployment", (), {"id": None, "parameter_openapi_schema": self.deployed})

    def request(self, _method: str, _path: str, *, json: dict[str, Any], **_: Any) -> None:
        self.patched += 1
        self.deployed = json["parameter_openapi_schema"]


@pytest.fixture
def server(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    workspace.open_account()
    it = Server(schema(register(workspace.spec, name="visits"), balance()))
    monkeypatch.setattr(form, "get_client", lambda **_: it)
    monkeypatch.setattr(form, "_is_due", lambda *_: bool(it.due))
    return it


def spend(account: Account, found: Balance) -> tuple[Account, Balance]:
    return account, Balance(found.cap, found.cap // 2, 0)


def test_a_form_is_written_again_only_if_something_but_its_date_has_changed(
    server: Server, workspace: Workspace
) -> None:
    old = "as of 2020-01-01 00:00 UTC"
    field = server.deployed["properties"]["epsilon"]
    field["description"] = form._AS_OF.sub(old, field["description"])
    refresh_forms(*balance())
    assert (server.patched, old in help_text(server.deployed, "epsilon")) == (0, True)
    refresh_forms(*spend(*balance()))
    assert (server.patched, old in help_text(server.deployed, "epsilon")) == (1, False)


def test_a_scheduled_run_that_is_about_to_start_is_not_disturbed(server: Server) -> None:
    server.due = [datetime.now(UTC) + timedelta(seconds=5)]
    refresh_forms(*spend(*balance()))
    assert server.patched == 0
    server.due = []
    refresh_forms(*spend(*balance()))
    assert server.patched == 1


def test_a_server_that_fails_loses_nothing(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    recorded: list[str] = []
    monkeypatch.setattr(form.stewardlog, "record", lambda _error, *, where: recorded.append(where))
    monkeypatch.setattr(server, "read_deployment_by_name", lambda _: 1 / 0)
    refresh_forms(*balance())
    assert recorded == ["the form of a release"]
