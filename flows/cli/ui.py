"""The verb `dpflow ui`: run a Prefect server with its UI and a worker in the background, for this folder and machine only."""

import argparse
import fcntl
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from dpcore.cli.arguments import Subparsers, add_verb, argument
from dpcore.cli.output import Answer
from dpcore.errors import DpflowError, OutputError, UsageError
from dpcore.places import current_places
from dpcore.steward.registry import all_registered
from flows.cli.serve import POOL, worker_environment, worker_name
from flows.server import background
from flows.server.connection import homes, no_proxy, server_answers
from flows.server.gate import LOOPBACK
from flows.server.password import (
    LAST_PORT,
    authorization,
    client_environment,
    make_password,
    new_login_path,
    password,
    random_port,
)
from flows.server.running import Program, Running, forget, note_down, running, ui_folder
from flows.server.settings import SAFE, first_ui_only
from flows.server.temporary import BACKLOG, LOCK_NAME, RECORDER, START_SECONDS, server_home
from flows.verbs import VERBS

PORT_TRIES = 20
"""How many random ports are tried. Few, so that a program that occupies most ports can't determine the one that is left."""

STOP_SECONDS = 30.0
CANCELLING_SECONDS = 60
"""How long the server waits for a cancelled run to end. Far longer than a live one takes."""

SERVER_LOG, WORKER_LOG = "server.log", "worker.log"
CLIENT = "dpflow-ui"
"""The client name under which this command requests a CSRF token."""

# Variables for another server of the user: its address, its passwords and its profile.
OF_ANOTHER_SERVER = (
    "PREFECT_API_URL",
    "PREFECT_API_KEY",
    "PREFECT_API_AUTH_STRING",
    "PREFECT_SERVER_API_AUTH_STRING",
    "PREFECT_PROFILE",
)


def add_verbs(verbs: Subparsers) -> None:
    """Add the verb to the parser."""
    add_verb(
        verbs,
        "ui",
        VERBS["ui"].about,
        argument(
            "--port",
            type=_port,
            help="the server's port on 127.0.0.1 (default: a random one at every start; on a fixed port, a page that another account's "
            "program left in your browser could steal the password)",
        ),
        argument("--stop", action="store_true", help="stop the server and the worker of this folder"),
        run=lambda arguments: _stop() if arguments.stop else _start(arguments.port),
    )


def _start(port: int | None) -> Answer:
    current_places().require_fixed()
    all_registered()  # reports a damaged registry here, not in the worker's log
    with _alone():
        before = running()
        if before and before.server.alive and before.worker.alive:
            hint = "to deploy specs registered since then: dpflow serve --deploy-only"
            return _answer(before, "runs already", *_ignored(port, before), hint)
        alive = before if before and before.server.alive else None
        heard: list[int] = []

        def interrupt(number: int, _frame: object) -> None:
            heard.append(number)
            raise KeyboardInterrupt

        with _signals(interrupt):
            try:
                now = _with_new_worker(alive) if alive else _both(port)
                _wait_for_worker(now)
                if heard:  # Python drops an exception that is raised within a destructor or a callback
                    signal.raise_signal(heard[-1])
            except BaseException:  # including signals: leave nothing half started behind
                with _signals(signal.SIG_IGN):
                    _end_worker() if alive else _end_all()
                raise
        return _answer(now, "runs", *_ignored(port, now))


def _ignored(port: int | None, now: Running) -> list[str]:
    """Return a hint if a server already runs on another port than the requested one."""
    if port in {None, now.port}:
        return []
    return [
        f"--port {port} was ignored, because the server already runs on {now.port}; to change it, run `dpflow ui --stop` first"
    ]


def _stop() -> Answer:
    ended = False
    if ui_folder().is_dir():  # stopping creates no folder
        with _alone():
            ended = _end_all()
    return Answer({"stopped": ended}, "stopped" if ended else "nothing is running for this folder")


def _with_new_worker(before: Running) -> Running:
    now = replace(before, worker=_start_worker(before.port, server=before.server.pid))
    note_down(now)
    return now


def _both(port: int | None) -> Running:
    """Start server and worker together, so that they load at the same time. The worker waits for the server."""
    _end_all()
    with _listening(port) as listening:
        return _both_on(listening, int(listening.getsockname()[1]))


def _both_on(listening: socket.socket, port: int) -> Running:
    home = server_home()
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = (home / LOCK_NAME).open("wb")
    except OSError:
        raise OutputError(f"{home} can't be written; change to a folder of your own") from None
    # As for temporary servers: two servers can't create the same database at once.
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        arguments = ["-m", "flows.server.app", str(listening.fileno())]
        environment = _server_environment(port)
        keep = [listening.fileno()]
        pid = background.start(arguments, folder=ui_folder(), log=SERVER_LOG, environment=environment, keep=keep)
        listening.close()  # from now on only the server holds the port, which is free again when it ends
        now = Running(port, Program(pid, arguments), _start_worker(port, server=pid))
        note_down(now)
        _wait(
            lambda: server_answers(now.url, timeout=1.0, direct=True),
            program=now.server,
            log=SERVER_LOG,
            what="the Prefect server",
        )
    return now


def _start_worker(port: int, *, server: int) -> Program:
    arguments = ["-m", "flows", "serve", "--wait", str(START_SECONDS), "--server-pid", str(server)]
    client = client_environment(f"http://127.0.0.1:{port}/api", password())
    environment = _environment() | worker_environment() | client
    return Program(background.start(arguments, folder=ui_folder(), log=WORKER_LOG, environment=environment), arguments)


def _environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name not in OF_ANOTHER_SERVER}
    return own | homes() | {"PREFECT_HOME": str(server_home())} | no_proxy()


def _server_environment(port: int) -> dict[str, str]:
    page = f"http://127.0.0.1:{port}"
    pages = {
        "PREFECT_SERVER_UI_ENABLED": "true",
        "PREFECT_SERVER_UI_API_URL": f"{page}/api",
    }
    # Every account on this machine, and every page open in a browser on it, can send requests here. These are the names that Prefect
    # reads first, so that no alias in the user's environment overrides them.
    guarded = {
        "PREFECT_SERVER_API_AUTH_STRING": make_password(),
        "PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED": "true",
        "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": page,
    }
    turns = {
        # How often a waiting run checks whether the run before it has ended. Prefect's default is 30.
        "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "5",
        # On disk: leases in memory would be lost when the server restarts, and the runs that hold them cancelled.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
        "PREFECT_SERVER_EVENTS_CAUSAL_ORDERING": "flows.server.event_order",
        # How long a cancelled run whose process is dead, and reports nothing, holds up its account; Prefect's own choice is 300.
        "PREFECT_SERVER_SERVICES_CANCELLATION_CLEANUP_CANCELLING_TIMEOUT_SECONDS": str(CANCELLING_SECONDS),
    }
    return _environment() | SAFE | RECORDER | pages | guarded | turns | first_ui_only(server_home())


def _wait_for_worker(now: Running) -> None:
    """Wait until the worker is listed as online, which happens only after everything is deployed."""
    import httpx  # noqa: PLC0415  takes a while to load, and is not needed to stop

    def online() -> bool:
        try:
            token = client.get("/csrf-token", params={"client": CLIENT}).raise_for_status().json()["token"]
            proof = {"Prefect-Csrf-Client": CLIENT, "Prefect-Csrf-Token": token}
            listed = client.post(f"/work_pools/{POOL}/workers/filter", json={}, headers=proof).raise_for_status()
        except httpx.HTTPError:
            return False
        return any((it["name"], it["status"]) == (worker_name(now.worker.pid), "ONLINE") for it in listed.json())

    with httpx.Client(base_url=now.url, headers=authorization(password()), timeout=5, trust_env=False) as client:
        _wait(online, program=now.worker, log=WORKER_LOG, what="the worker")


def _wait(ready: Callable[[], bool], *, program: Program, log: str, what: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        if not program.alive or time.monotonic() > deadline:
            raise DpflowError(f"{what} did not start; {ui_folder() / log} says why")
        time.sleep(0.2)


def _listening(port: int | None) -> socket.socket:
    """Return a socket that listens on the port, so that no other program can take it before the server has loaded.

    Without a port, a random one is chosen that no other program could foresee. A program that had the port earlier, and was opened in
    the user's browser then, may have left pages, redirects or a service worker there for this address, which would get the password.
    """
    for tried in [port] if port else [random_port() for _ in range(PORT_TRIES)]:
        try:
            return socket.create_server((LOOPBACK, tried), backlog=BACKLOG)
        except OSError:
            continue
    if port:
        raise UsageError(f"port {port} is in use, or you may not use it; omit --port to use a free one")
    raise UsageError(f"all of {PORT_TRIES} random ports are in use; find the program that holds so many ports")


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= LAST_PORT:
        raise argparse.ArgumentTypeError("a port is a number from 1 to 65535")
    return int(text)


def _end_worker() -> None:
    """Stop the worker, which stops its runs first."""
    last = running()
    worker = [process for process in background.all_of(ui_folder()) if last and process.pid == last.worker.pid]
    background.end(worker, patience=STOP_SECONDS)


def _end_all() -> bool:
    """Stop worker, runs and server, in this order, so that each can still report how it ended. Return whether anything ran."""
    processes, last = background.all_of(ui_folder()), running()
    server = [process for process in processes if last and process.pid == last.server.pid]
    _end_worker()
    background.end([it for it in background.all_of(ui_folder()) if it not in server], patience=STOP_SECONDS / 2)
    background.end(background.all_of(ui_folder()), patience=STOP_SECONDS)  # with what the server has started meanwhile
    forget()
    return bool(processes)


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock that lets only one command at a time start or stop the programs of this folder."""
    folder = ui_folder()
    try:
        folder.parent.mkdir(mode=0o700, exist_ok=True)  # mkdir applies the mode only to the last folder of a path
        folder.mkdir(mode=0o700, exist_ok=True)
        lock = (folder / "lock").open("wb")
    except OSError:
        raise OutputError(f"{folder} can't be written; change to a folder of your own") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _signals(handler: Any) -> Iterator[None]:
    """Install a handler for the signals that end this command or its terminal. Ignored signals, as under nohup, stay ignored."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    handled = {number: usual for number, usual in before.items() if usual is not signal.SIG_IGN}
    for number in handled:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, usual in handled.items():
            signal.signal(number, usual)


def _answer(now: Running, state: str, *hints: str) -> Answer:
    ledger = current_places().ledger_shown
    login = f"{now.page}{new_login_path()}#{password()}"  # a browser sends the fragment after # to no server
    data: dict[str, Any] = {
        "page": login,
        "api": now.url,
        "state": state,
        "logs": str(ui_folder()),
        "ledger": ledger,
    }
    text = (
        f"Prefect UI  {login}  {state}\n"
        "            The address contains the password of this server: do not pass it on.\n"
        f"API         {now.url}\n"
        f"logs        {os.path.relpath(ui_folder())}\n"
        f"ledger      {ledger}\n"
        "stop it     dpflow ui --stop"
    )
    return Answer(data, "\n".join([text, *hints]))
