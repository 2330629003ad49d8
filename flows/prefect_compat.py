"""Every undocumented Prefect name that dpflow uses, in one place.

A new version of Prefect may move or change any of these without notice; `tests/flows/test_prefect_compat.py` reports which one. No
other file in `flows` imports them from Prefect. Each name is loaded on first use, so that a client does not pay for the import of
Prefect's server.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefect._internal.control_listener import configure_from_env as configure_from_env
    from prefect._internal.versioning import VersionType as VersionType
    from prefect.engine import handle_engine_signals as handle_engine_signals
    from prefect.events.worker import EventsWorker as EventsWorker
    from prefect.flow_engine import run_flow as run_flow
    from prefect.logging.configuration import DEFAULT_LOGGING_SETTINGS_PATH as DEFAULT_LOGGING_SETTINGS_PATH
    from prefect.logging.configuration import load_logging_config as load_logging_config
    from prefect.logging.configuration import setup_logging as setup_logging
    from prefect.logging.handlers import APILogHandler as APILogHandler
    from prefect.logging.handlers import APILogWorker as APILogWorker
    from prefect.runner._flow_run_executor import FlowRunExecutionResult as FlowRunExecutionResult
    from prefect.runner._flow_run_executor import FlowRunExecutorContext as FlowRunExecutorContext
    from prefect.runner._process_manager import ProcessHandle as ProcessHandle
    from prefect.runner._starter_engine import EngineCommandStarter as EngineCommandStarter
    from prefect.runner._state_proposer import StateProposer as StateProposer
    from prefect.server.api.server import create_app as create_app
    from prefect.server.database import PrefectDBInterface as PrefectDBInterface
    from prefect.server.database import provide_database_interface as provide_database_interface
    from prefect.server.database.configurations import SQLITE_BEGIN_MODE as SQLITE_BEGIN_MODE
    from prefect.server.database.configurations import AioSqliteConfiguration as AioSqliteConfiguration
    from prefect.server.database.dependencies import MODELS_DEPENDENCIES as MODELS_DEPENDENCIES
    from prefect.server.events.ordering.memory import CausalOrdering as CausalOrdering
    from prefect.server.events.schemas.events import Event as Event
    from prefect.server.utilities.database import get_dialect as get_dialect
    from prefect.settings.sources import ProfileSettingsTomlLoader as ProfileSettingsTomlLoader
    from prefect.types._datetime import now as now
    from prefect.types.entrypoint import EntrypointType as EntrypointType
    from prefect.utilities.callables import ParameterSchema as ParameterSchema
    from prefect.utilities.callables import parameter_schema as parameter_schema
    from prefect.utilities.processutils import command_to_string as command_to_string

MODULES = {
    "configure_from_env": "prefect._internal.control_listener",
    "VersionType": "prefect._internal.versioning",
    "handle_engine_signals": "prefect.engine",
    "EventsWorker": "prefect.events.worker",
    "run_flow": "prefect.flow_engine",
    "DEFAULT_LOGGING_SETTINGS_PATH": "prefect.logging.configuration",
    "load_logging_config": "prefect.logging.configuration",
    "setup_logging": "prefect.logging.configuration",
    "APILogHandler": "prefect.logging.handlers",
    "APILogWorker": "prefect.logging.handlers",
    "FlowRunExecutionResult": "prefect.runner._flow_run_executor",
    "FlowRunExecutorContext": "prefect.runner._flow_run_executor",
    "ProcessHandle": "prefect.runner._process_manager",
    "StateProposer": "prefect.runner._state_proposer",
    "EngineCommandStarter": "prefect.runner._starter_engine",
    "create_app": "prefect.server.api.server",
    "PrefectDBInterface": "prefect.server.database",
    "provide_database_interface": "prefect.server.database",
    "SQLITE_BEGIN_MODE": "prefect.server.database.configurations",
    "AioSqliteConfiguration": "prefect.server.database.configurations",
    "MODELS_DEPENDENCIES": "prefect.server.database.dependencies",
    "CausalOrdering": "prefect.server.events.ordering.memory",
    "Event": "prefect.server.events.schemas.events",
    "get_dialect": "prefect.server.utilities.database",
    "ProfileSettingsTomlLoader": "prefect.settings.sources",
    "now": "prefect.types._datetime",
    "EntrypointType": "prefect.types.entrypoint",
    "ParameterSchema": "prefect.utilities.callables",
    "parameter_schema": "prefect.utilities.callables",
    "command_to_string": "prefect.utilities.processutils",
}
"""Where each name comes from."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Load a name from Prefect.

        Raises:
            ImportError: This version of Prefect lacks the name. The message says what to do.
        """
        if name not in MODULES:
            raise AttributeError(name)
        try:
            return getattr(import_module(MODULES[name]), name)
        except (ImportError, AttributeError):
            pass
        raise ImportError(
            f"this Prefect has no `{name}` in {MODULES[name]}; install the version that dpflow requires (pip install -c constraints.txt)"
        )
