"""A temporary Prefect server for one run. Prefect's own temporary server writes to the terminal and can outlive the run.

The server stops when its standard input closes. However the process ends that holds the other end of this pipe, even by `kill -9`, nothing
is left running.
"""

import fcntl
import http.client
import os
import shutil
import socket
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

WHILE_INPUT_IS_OPEN = "--while-input-is-open"
"""The argument that makes a server stop when its standard input closes."""

BACKLOG = 2048
"""How many connections may wait while a server loads."""

START_SECONDS = 180
"""How long a server or a worker may take to start."""

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
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
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
                process, port = _start(home, password)
                stack.enter_context(process)
                stack.callback(_stop, process)
                _wait_until_up(port, home)
            yield TemporaryServer(url=f"http://127.0.0.1:{port}/api", password=password, home=home)
    finally:
        if deleted:
            shutil.rmtree(home, ignore_errors=True)


def _start(home: Path, password: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start the server's process, and return it with the port that it has from the first moment on."""
    own = {"PREFECT_HOME": str(home), "PREFECT_SERVER_API_AUTH_STRING": password}
    with socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as listening, (home / LOG_NAME).open("ab") as log:
        number = listening.fileno()
        process = subprocess.Popen(  # noqa: S603  our own module, by our own interpreter
            [sys.executable, "-P", "-m", "flows.server.app", str(number), WHILE_INPUT_IS_OPEN],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=os.environ | SERVER_ENVIRONMENT | own,
            pass_fds=[number],
            # Ctrl-C must only reach the run, which still has to report to the server how it ended.
            start_new_session=True,
        )
        return process, int(listening.getsockname()[1])


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


def _wait_until_up(port: int, home: Path) -> None:
    """Return once the server has answered a request, which it does as soon as it is up."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
    try:
        connection.request("GET", "/api/health")
        healthy = connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        healthy = False
    finally:
        connection.close()
    if not healthy:
        raise DpflowError(
            f"the temporary Prefect server did not start; {home / LOG_NAME} says why. The folder only contains the history of "
            "runs, so you can delete it and try again, or start a server yourself and set PREFECT_API_URL"
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin:
        process.stdin.close()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
