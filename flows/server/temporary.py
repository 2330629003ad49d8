"""A temporary Prefect server for one run. Prefect's own temporary server writes to the terminal and can outlive the run."""

import fcntl
import http.client
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from dpcore.errors import DpflowError
from dpcore.places import current_places
from flows.server.password import new_password

START_SECONDS = 180
STOP_SECONDS = 15
LOG_NAME = "server.log"
LOCK_NAME = "server.lock"

# By default, the recorder writes each state of each task separately, falls behind, and loses the rest at shutdown.
RECORDER = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "500",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
}

SERVER_ENVIRONMENT = {
    "PREFECT__SERVER_EPHEMERAL": "1",  # only the services that record runs
    "PREFECT__SERVER_FINAL": "1",
    "PREFECT_UI_ENABLED": "false",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING",
    **RECORDER,
}


@dataclass(frozen=True)
class TemporaryServer:
    """A running temporary server: its API URL, its `USER:PASSWORD`, and the folder with the history of its runs."""

    url: str
    password: str
    home: Path


@contextmanager
def temporary_server() -> Iterator[TemporaryServer]:
    """Start a server in a process of its own, wait until it answers, and stop it at the end.

    Its history is kept in `$PREFECT_HOME`, or else in `prefect` inside the `.dpflow` folder in use, where `prefect server start` can
    show it later. If that folder is not writable, the history goes to a temporary folder and is deleted at the end.
    """
    home, deleted = _home()
    password = new_password()
    try:
        with ExitStack() as stack:
            # One at a time: two servers can't create the same database at once. Once it exists, they can share it.
            with (home / LOCK_NAME).open("wb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                process = stack.enter_context(_child(home, password))
                stack.callback(_stop, process)
                port = _wait_until_up(process, home)
            yield TemporaryServer(url=f"http://127.0.0.1:{port}/api", password=password, home=home)
    finally:
        if deleted:
            shutil.rmtree(home, ignore_errors=True)


def _child(home: Path, password: str) -> subprocess.Popen[bytes]:
    own = {"PREFECT_HOME": str(home), "PREFECT_SERVER_API_AUTH_STRING": password}
    with (home / LOG_NAME).open("ab") as log:
        return subprocess.Popen(  # noqa: S603  our own file, by our own interpreter
            [sys.executable, "-P", str(Path(__file__).with_name("child.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=os.environ | SERVER_ENVIRONMENT | own,
            # Ctrl-C must only reach the run, which still has to report to the server how it ended.
            start_new_session=True,
        )


def own_home() -> Path:
    """Return the home folder that dpflow gives Prefect. `~/.prefect` may be read-only or belong to another Prefect version."""
    return current_places().home / "prefect"


def server_home() -> Path:
    """Return the folder in which our servers keep the history of runs: `$PREFECT_HOME`, or else our own."""
    chosen = os.environ.get("PREFECT_HOME")
    return Path(chosen).expanduser().absolute() if chosen else own_home()


def _home() -> tuple[Path, bool]:
    """Return the server's folder, and whether to delete it at the end."""
    home = server_home()
    try:
        home.mkdir(parents=True, exist_ok=True)
        with (home / LOG_NAME).open("ab"):
            return home, False
    except OSError:
        return Path(tempfile.mkdtemp(prefix="dpflow-prefect-")), True


def _wait_until_up(process: subprocess.Popen[bytes], home: Path) -> int:
    """Return the server's port once it has answered a request, which it does as soon as it is up."""
    connection = None
    try:
        port = int(process.stdout.readline()) if process.stdout else 0
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
        connection.request("GET", "/api/health")
        healthy = connection.getresponse().status == http.client.OK
    except (OSError, ValueError, http.client.HTTPException):
        healthy = False
    finally:
        if connection:
            connection.close()
    if not healthy:
        raise DpflowError(
            f"the temporary Prefect server did not start; {home / LOG_NAME} says why. The folder only contains the history of "
            "runs, so you can delete it and try again, or start a server yourself and set PREFECT_API_URL"
        )
    return port


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin:
        process.stdin.close()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
