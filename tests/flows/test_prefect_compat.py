"""What dpflow uses of Prefect beyond its documented API: it is there, it takes what we hand it, and one file alone knows of it."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flows
from flows import prefect_compat

ROOT = Path(flows.__file__).parent
COMPAT = Path(prefect_compat.__file__)

DOCUMENTED = {
    "prefect",
    "prefect.artifacts",
    "prefect.assets",
    "prefect.automations",
    "prefect.cache_policies",
    "prefect.client.orchestration",
    "prefect.client.schemas",
    "prefect.client.schemas.actions",
    "prefect.client.schemas.filters",
    "prefect.client.schemas.objects",
    "prefect.client.schemas.responses",
    "prefect.client.schemas.sorting",
    "prefect.context",
    "prefect.deployments.runner",
    "prefect.events",
    "prefect.exceptions",
    "prefect.main",
    "prefect.runtime",
    "prefect.schedules",
    "prefect.settings",
    "prefect.states",
    "prefect.variables",
    "prefect.workers.base",
    "prefect.workers.process",
}
"""The modules that any file of the flows may import from."""

SIGNATURES: dict[str, tuple[str, ...]] = {
    "configure_from_env": (),
    "handle_engine_signals": ("flow_run_id",),
    "run_flow": ("flow", "flow_run", "parameters", "return_type"),
    "load_logging_config": ("path",),
    "setup_logging": (),
    "EngineCommandStarter": ("command", "cwd", "control_channel"),
    "create_app": ("final",),
    "provide_database_interface": (),
    "get_dialect": ("obj",),
    "now": ("tz",),
    "parameter_schema": ("fn",),
    "command_to_string": ("command",),
}
"""The functions that are called, with the parameters that are used."""

MEMBERS: dict[str, tuple[str, ...]] = {
    "EventsWorker": ("drain_all", "instance", "wait_until_empty"),
    "APILogWorker": ("drain_all",),
    "APILogHandler": ("emit", "prepare"),
    "FlowRunExecutorContext": ("create_executor", "__aenter__"),
    "StateProposer": ("propose_crashed",),
    "AioSqliteConfiguration": ("begin_transaction",),
    "CausalOrdering": ("event_has_been_seen",),
    "ProfileSettingsTomlLoader": ("__init__",),
    "EntrypointType": ("MODULE_PATH",),
    "ParameterSchema": ("model_dump_for_openapi",),
    "PrefectDBInterface": ("session_context", "Event"),
}
"""The classes, with what is called or overridden of them."""


@pytest.mark.parametrize("name", prefect_compat.MODULES)
def test_prefect_still_has_the_name(name: str) -> None:
    assert getattr(prefect_compat, name) is not None


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_function_still_takes_what_it_is_called_with(name: str) -> None:
    taken = inspect.signature(getattr(prefect_compat, name)).parameters
    assert set(SIGNATURES[name]) <= taken.keys()
    needed = {
        it.name
        for it in taken.values()
        if it.default is it.empty and it.kind in {it.POSITIONAL_OR_KEYWORD, it.KEYWORD_ONLY}
    }
    assert needed <= set(SIGNATURES[name])


@pytest.mark.parametrize("name", MEMBERS)
def test_a_class_still_has_what_is_used_of_it(name: str) -> None:
    owner: Any = getattr(prefect_compat, name)
    assert [member for member in MEMBERS[name] if not hasattr(owner, member)] == []


def test_methods_that_are_overridden_still_have_their_parameters() -> None:
    begin = inspect.signature(prefect_compat.AioSqliteConfiguration.begin_transaction)
    assert list(begin.parameters) == ["self", "session", "with_for_update"]
    seen = inspect.signature(prefect_compat.CausalOrdering.event_has_been_seen)
    assert list(seen.parameters) == ["self", "event"]
    emit = inspect.signature(prefect_compat.APILogHandler.emit)
    assert list(emit.parameters) == ["self", "record"]
    executor = inspect.signature(prefect_compat.FlowRunExecutorContext.create_executor)
    assert {"hook_runner", "propose_submitting"} <= executor.parameters.keys()
    crashed = inspect.signature(prefect_compat.StateProposer.propose_crashed)
    assert list(crashed.parameters) == ["self", "flow_run", "message"]


def test_values_are_still_of_their_kind() -> None:
    assert "database_config" in prefect_compat.MODELS_DEPENDENCIES
    assert {"get", "set", "reset"} <= set(dir(prefect_compat.SQLITE_BEGIN_MODE))
    assert prefect_compat.DEFAULT_LOGGING_SETTINGS_PATH.is_file()


def test_a_name_that_prefect_has_no_more_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("prefect.gone", "prefect.states"):
        monkeypatch.setitem(prefect_compat.MODULES, "gone", module)
        with pytest.raises(ImportError, match=r"has no `gone` in prefect\.\w+; install the version"):
            prefect_compat.gone  # noqa: B018
    with pytest.raises(AttributeError):
        prefect_compat.never_named  # noqa: B018


def imported(source: str) -> Iterator[str]:
    """Yield the modules of Prefect that a file imports, at its top or later."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{it.name}" for it in node.names if node.module == "prefect"))
        elif isinstance(node, ast.Import):
            yield from (it.name for it in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            yield from (it.value for it in node.args if isinstance(it, ast.Constant))


def undocumented(source: str) -> list[str]:
    public = DOCUMENTED | {f"prefect.{name}" for name in ("Flow", "State", "Task", "get_client")}
    return [name for name in imported(source) if name.partition(".")[0] == "prefect" and name not in public]


@pytest.mark.parametrize("file", sorted(ROOT.rglob("*.py")), ids=lambda file: str(file.relative_to(ROOT)))
def test_no_other_file_imports_what_prefect_does_not_document(file: Path) -> None:
    found = undocumented(file.read_text(encoding="utf-8"))
    assert bool(found) is (file == COMPAT)


@pytest.mark.parametrize(
    "planted",
    [
        "from prefect.server.database import dependencies",
        "def later():\n    from prefect._internal import concurrency",
        "import prefect.logging.handlers",
        "from prefect import server",
        "import importlib\nimportlib.import_module('prefect.task_engine')",
    ],
)
def test_the_search_finds_one_that_is_planted(planted: str) -> None:
    assert undocumented(planted)


def test_both_lists_of_names_are_the_same() -> None:
    listed = {
        it.name: node.module
        for node in ast.walk(ast.parse(COMPAT.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("prefect")
        for it in node.names
    }
    assert listed == prefect_compat.MODULES
