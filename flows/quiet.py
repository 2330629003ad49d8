"""Run flows from a command line without a word from Prefect: on the server that the user has, or on a temporary one."""

import importlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dpcore.errors import DpflowError, UsageError
from flows.temporary_server import own_home, temporary_server

ANSWER_SECONDS = 3.0
DRAIN_SECONDS = 5.0

# Defaults: what the user has set stays. They count from the moment that Prefect is imported, hence the late imports below.
ENVIRONMENT = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_V2_ENABLED": "false",  # its pages call an analytics host
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
    "PREFECT_LOGGING_LOG_PRINTS": "false",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    # The run's log is sent to the server as ever; only the two handlers that write to the terminal are closed.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_HANDLERS_DEBUG_LEVEL": "CRITICAL",
    # Waits of 2, 4 and 8 seconds bridge a short absence of the server; Prefect's default keeps a user waiting for minutes.
    "PREFECT_CLIENT_MAX_RETRIES": "3",
}


@contextmanager
def quiet() -> Iterator[str]:
    """Yield the URL of a Prefect server that answers, while nothing of Prefect's reaches the terminal.

    The server is the one that `PREFECT_API_URL` or the Prefect profile names, or else a temporary one that is stopped at the end.

    Raises:
        UsageError: The configured server does not answer. Nothing was done.
        DpflowError: A temporary server could not be started, or the server failed while it was in use.
    """
    with ExitStack() as stack:
        stack.callback(_read_logging_settings)
        stack.enter_context(
            _environment({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
        )
        stack.enter_context(_environment(_homes()))
        stack.enter_context(_no_logging_errors())
        _read_logging_settings()
        url = configured_url()
        if url is None:
            url = stack.enter_context(_on_temporary_server())
        elif not server_answers(url, timeout=ANSWER_SECONDS):
            raise UsageError(
                f"the Prefect server at {_shown(url)} does not answer; start it, or {_remedy()} to run on a temporary one"
            )
        stack.callback(_send_what_is_left)
        with _server_errors_in_one_line(url):
            yield url


def configured_url() -> str | None:
    """Return the API URL that the environment, the profile or a settings file names, if any."""
    from prefect.settings import get_current_settings  # noqa: PLC0415

    return get_current_settings().api.url or None


def server_answers(url: str, *, timeout: float) -> bool:
    """Tell whether a Prefect server answers at an API URL. One that asks for a password does."""
    import httpx  # noqa: PLC0415

    try:
        # No secret is sent, so that it does not matter here who answers; Prefect's own client checks certificates.
        answer = httpx.get(f"{url.rstrip('/')}/health", timeout=timeout, verify=False, follow_redirects=True)  # noqa: S501
    except (httpx.HTTPError, httpx.InvalidURL):
        return False
    return answer.status_code in {httpx.codes.OK, httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}


@contextmanager
def _on_temporary_server() -> Iterator[str]:
    with ExitStack() as stack:
        server = stack.enter_context(temporary_server())
        stack.callback(_read_settings)
        stack.enter_context(
            _environment({"PREFECT_API_URL": server.url, "PREFECT_HOME": str(server.home)} | _no_proxy())
        )
        _read_settings()
        stack.enter_context(_no_heartbeats())
        yield server.url


def _read_settings() -> None:
    """Make Prefect, also its threads, go by the environment as it is now."""
    from prefect.context import refresh_global_settings_context  # noqa: PLC0415

    with _no_warnings():
        refresh_global_settings_context()


@contextmanager
def _no_heartbeats() -> Iterator[None]:
    """Spare every flow the second at its end in which Prefect waits for the thread of its heartbeats; nobody listens to them here."""
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings  # noqa: PLC0415

    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield


def _send_what_is_left() -> None:
    """Send the log lines and task states that Prefect still holds back: a temporary server goes now, and no other need be waited for."""
    from prefect.events.worker import EventsWorker  # noqa: PLC0415
    from prefect.logging.handlers import APILogWorker  # noqa: PLC0415

    APILogWorker.drain_all(timeout=DRAIN_SECONDS)
    EventsWorker.drain_all(timeout=DRAIN_SECONDS)


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
            f"the Prefect server at {_shown(url)} failed during the run ({failure}); what was measured is kept in the ledger: "
            "see that the server runs, then resume the run"
        ) from None


def _remedy() -> str:
    return "unset PREFECT_API_URL" if "PREFECT_API_URL" in os.environ else "run `prefect config unset PREFECT_API_URL`"


def _shown(url: str) -> str:
    """Return a URL without the name and password it may hold."""
    import httpx  # noqa: PLC0415

    try:
        return str(httpx.URL(url).copy_with(username=None, password=None))
    except httpx.InvalidURL:
        return "PREFECT_API_URL"


def _read_logging_settings() -> None:
    """Import Prefect, or if that has happened before, make it read again which of its handlers may write to the terminal."""
    if "prefect.main" in sys.modules:
        from prefect.logging.configuration import setup_logging  # noqa: PLC0415

        setup_logging()
        return
    with _no_warnings():
        importlib.import_module("prefect.main")


def _homes() -> dict[str, str]:
    """Return the folders that Prefect is to take for homes: our own, unless it has one in which there is a profile to read."""
    own = str(own_home())
    try:
        profiles = Path.home() / ".prefect" / "profiles.toml"
    except RuntimeError:  # an account without a home folder, as containers have it; Prefect then fails to be imported
        return {"HOME": own, "PREFECT_HOME": os.environ.get("PREFECT_HOME", own)}
    if "PREFECT_HOME" in os.environ or os.access(profiles, os.R_OK):
        return {}
    return {"PREFECT_HOME": own}


def _no_proxy() -> dict[str, str]:
    """Return the variables that keep a proxy, if there is one, from being asked for the server on this machine."""
    direct = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    return dict.fromkeys(("no_proxy", "NO_PROXY"), f"{direct},127.0.0.1" if direct else "127.0.0.1")


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Keep Prefect from warning of a home folder that it cannot make: only a temporary server needs one, and looks after it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _no_logging_errors() -> Iterator[None]:
    """Let a log line that cannot be sent be lost without a report on the terminal."""
    before = logging.raiseExceptions
    logging.raiseExceptions = False
    try:
        yield
    finally:
        logging.raiseExceptions = before
