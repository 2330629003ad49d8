"""Run flows from a command line without output from Prefect, on the configured server or on a temporary one."""

import importlib
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dpcore.errors import DpflowError, UsageError
from dpcore.places import set_variables
from flows.server.connection import (
    configured_url,
    homes,
    no_proxy,
    no_warnings,
    read_settings,
    server_answers,
    shown,
)
from flows.server.password import client_environment, password
from flows.server.running import running_url
from flows.server.settings import SAFE
from flows.server.temporary import server_home, temporary_server

# Defaults, which the user's own settings override. Prefect reads them on import, hence the late imports below.
ENVIRONMENT = SAFE | {
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    # The run's log still goes to the server; only the two handlers that write to the terminal are silenced.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_HANDLERS_DEBUG_LEVEL": "CRITICAL",
    # Waits of 2, 4 and 8 seconds bridge a short outage of the server. Prefect's default lets a user wait for minutes.
    "PREFECT_CLIENT_MAX_RETRIES": "3",
}


@contextmanager
def quiet() -> Iterator[str]:
    """Yield the URL of a Prefect server that answers, and keep Prefect's output off the terminal.

    The server is the one that `PREFECT_API_URL` or the Prefect profile names, or else the one that `dpflow ui` runs in this
    folder, or else a temporary one, which is stopped at the end.

    Raises:
        UsageError: The configured server does not answer. Nothing was done.
        DpflowError: A temporary server could not be started, or the server failed while it was in use.
    """
    with ExitStack() as stack:
        stack.callback(_read_logging_settings)
        stack.enter_context(
            set_variables({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
        )
        stack.enter_context(set_variables(homes()))
        stack.enter_context(_no_logging_errors())
        _read_logging_settings()
        configured, of_ui = configured_url(), running_url()
        url = configured or of_ui
        if url is None:
            url = stack.enter_context(_on_temporary_server())
        elif not server_answers(url, direct=not configured):
            remedy = _remedy() if configured else "run `dpflow ui --stop`"
            raise UsageError(
                f"the Prefect server at {shown(url)} does not answer; start it, or {remedy} to run on a temporary one"
            )
        elif not configured:
            stack.enter_context(_on(url, secret=password(), home=server_home()))
        stack.callback(_send_buffered)
        with _server_errors_in_one_line(url):
            yield url


@contextmanager
def _on_temporary_server() -> Iterator[str]:
    with temporary_server() as server, _on(server.url, secret=server.password, home=server.home):
        yield server.url


@contextmanager
def _on(url: str, *, secret: str, home: Path) -> Iterator[None]:
    """Make Prefect use a server of ours on this machine."""
    with ExitStack() as stack:
        stack.callback(read_settings)
        stack.enter_context(set_variables(client_environment(url, secret) | {"PREFECT_HOME": str(home)} | no_proxy()))
        read_settings()
        stack.enter_context(_no_heartbeats())
        yield


@contextmanager
def _no_heartbeats() -> Iterator[None]:
    """Turn off heartbeats, which nobody reads here. Otherwise every flow waits a second at its end for their thread."""
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings  # noqa: PLC0415

    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield


def _send_buffered() -> None:
    from flows.tasks.progress import send_buffered  # noqa: PLC0415

    send_buffered(within=5.0)


@contextmanager
def _server_errors_in_one_line(url: str) -> Iterator[None]:
    import httpx  # noqa: PLC0415

    failure = None
    try:
        yield
    except httpx.HTTPError as error:
        failure = type(error).__name__
    if failure:
        raise DpflowError(
            f"the Prefect server at {shown(url)} failed during the run ({failure}); its measurements are kept in the ledger: "
            "check that the server is running, then resume the run"
        ) from None


def _remedy() -> str:
    return "unset PREFECT_API_URL" if "PREFECT_API_URL" in os.environ else "run `prefect config unset PREFECT_API_URL`"


def _read_logging_settings() -> None:
    """Import Prefect or, if it was imported before, make it read its logging settings again."""
    if "prefect.main" in sys.modules:
        from flows.prefect_compat import setup_logging  # noqa: PLC0415

        setup_logging()
        return
    with no_warnings():
        importlib.import_module("prefect.main")


@contextmanager
def _no_logging_errors() -> Iterator[None]:
    """Drop a log line that cannot be sent, without a report on the terminal."""
    before = logging.raiseExceptions
    logging.raiseExceptions = False
    try:
        yield
    finally:
        logging.raiseExceptions = before
