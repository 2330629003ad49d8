"""A whole installation for the tests: server with UI, worker and deployments as real processes, started by `dpflow ui`.

Each test process has one, which ends with it. A test leaves it as it was, but those of `cli/test_ui.py`: they kill its programs, and come
last. Every release that a test needs is registered before the start, so that nothing has to be deployed later.
"""

import fcntl
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from dpcore import cli
from flows.cli.run import run
from flows.server import background
from flows.server.password import authorization, new_login_path
from flows.verbs import VERBS
from tests.conftest import SPEC, visits
from tests.flows.connections import GATE, recording
from tests.flows.prefect_home import copy_home, used_home
from tests.ports import free_port

KEEPER = Path(__file__).with_name("stack_keeper.py")
RUN_SECONDS = 600.0
"""How long a test waits for a state: far longer than it takes on a machine that other processes keep busy."""
CLIENT = "tests"
POLL_SECONDS = 0.2  # a request takes the server about a hundredth of a second
FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
QUICK = {
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": "1",  # the tests search events, too
    "PREFECT_WORKER_QUERY_SECONDS": "1",
}

RELEASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "visits": ("100", ()),
    "clinic": ("2", ("--above", "0.8")),
    "late": ("100", ("--above", "0.5", "--within", "1s")),
    "patient": ("100", ("--above", "0.5", "--within", "24h")),
}
"""The registered releases: the epsilon of each one's account, and above which epsilon, and how long, its runs wait for approval."""


@dataclass(frozen=True)
class Stack:
    """A folder in which `dpflow ui` runs or can be started, and the actions of tests on it."""

    folder: Path
    port: int
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def gate(self) -> Path:
        """The folder of the gate at which runs stop, unless it contains a file `open`."""
        return self.folder / "gate"

    @property
    def page(self) -> str:
        """The address for a browser."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The address of the API."""
        return f"{self.page}/api"

    @property
    def password(self) -> str:
        """The server's password, as stored for the user who started it."""
        return (self.folder / ".dpflow" / "ui" / "password").read_text(encoding="ascii")

    @property
    def login(self) -> str:
        """A login address for a browser, as `dpflow ui` prints it."""
        return f"{self.page}{new_login_path()}#{self.password}"

    @property
    def database(self) -> Path:
        """The file in which the server stores everything."""
        return self.folder / ".dpflow" / "prefect" / "prefect.db"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of all its programs, without this process's own Prefect and dpflow settings."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "DPFLOW_"))}
        return own | QUICK | self.more

    def dpflow(self, *arguments: str, code: int = 0) -> str:
        """Run the command in the folder, expect the exit code `code`, and return its output."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "flows", *arguments],
            cwd=self.folder,
            env=self.environment,
            check=False,
            capture_output=True,
            text=True,
        )
        said = done.stdout + done.stderr
        assert done.returncode == code, f"dpflow {' '.join(arguments)}: {done.returncode}\n{said}\n{self.log()}"
        return said

    def here(self, *arguments: str, code: int = 0) -> str:
        """Do as `dpflow` does, but in this process, which has loaded everything: for commands that start nothing and ask no server."""
        said = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(said):
            patch.chdir(self.folder)
            patch.setattr(os, "environ", self.environment)
            try:
                done: object = cli.main(list(arguments), runner=run, more=VERBS)
            except SystemExit as stopped:  # the parser's
                done = stopped.code
        assert done == code, f"dpflow {' '.join(arguments)}: {done}\n{said.getvalue()}"
        return said.getvalue()

    def prepare(self) -> None:
        """Make the table, and register every release of `RELEASES` with an account of its own."""
        self.gate.mkdir(parents=True)
        (self.gate / "open").touch()
        visits(600, seed=1).to_csv(self.folder / "visits.csv", index=False)
        for name, (epsilon, approval) in RELEASES.items():
            text = SPEC.replace("dataset: visits", f"dataset: {name}")
            (self.folder / f"{name}.yaml").write_text(text, encoding="utf-8")
            terms = ("--epsilon", epsilon, "--delta", "1e-9", "--unit", "person", "--neighbours", "add-remove")
            self.here("ledger", "open", name, *terms)
            if approval:
                self.here("approval", name, *approval)
            self.here("register", f"{name}.yaml")

    def ui(self) -> str:
        """Start everything, and return once the worker is online."""
        return self.dpflow("ui", "--port", str(self.port))

    def stop(self) -> str:
        """Stop everything."""
        return self.here("ui", "--stop")

    def command_lines(self) -> list[str]:
        """Return the command lines of its programs, which every account on the machine can see."""
        return [" ".join(process.cmdline()) for process in background.all_of(self.folder / ".dpflow" / "ui")]

    def log(self) -> str:
        """Return the end of the server's and the worker's logs."""
        files = sorted(self.folder.glob(".dpflow/ui/*.log"))
        return "\n".join(f"{path.name}: {path.read_text(encoding='utf-8')[-3000:]}" for path in files)

    def api(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Send a request and return the answer, whatever it is. Retry while the server is only busy, as SQLite is under load.

        A busy server answers 503, or times out: a request waits up to a minute for the database, and longer behind one that waits too.
        After a timeout only a reading request is retried, since a changing one may have been executed.
        """
        reads = method == "GET" or path.endswith("/filter")

        def answered() -> httpx.Response | None:
            with self.client(timeout=60 if reads else RUN_SECONDS) as client:
                try:
                    answer = client.request(method, path.lstrip("/"), json=body, headers=self.proof(client, method))
                except httpx.ReadTimeout:
                    if not reads:
                        raise
                    return None
            return None if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE else answer

        # In a list, because the truth value of an error response is false.
        found = wait_for(
            lambda: [it] if (it := answered()) is not None else None, "a server that answers", tell=self.log
        )
        return found[0]

    def client(self, *, timeout: float) -> httpx.Client:
        """Return a client that is authenticated with the server's password."""
        return httpx.Client(
            base_url=f"{self.url}/",
            headers=authorization(self.password),
            trust_env=False,
            verify=False,  # noqa: S501  without TLS; avoids loading certificates for each request
            timeout=timeout,
        )

    def proof(self, client: httpx.Client, method: str) -> dict[str, str]:
        """Return the CSRF headers that a changing request needs."""
        if method == "GET":
            return {}
        token = client.get("csrf-token", params={"client": CLIENT})
        return {"Prefect-Csrf-Client": CLIENT, "Prefect-Csrf-Token": token.json()["token"]} if token.is_success else {}

    def read(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request, expect success, and return the JSON of the answer."""
        answer = self.api(method, path, body)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def deployment(self, name: str = "synthesize/visits") -> dict[str, Any]:
        """Return a deployment, by `flow/name`."""
        return self.read("GET", f"/deployments/name/{name}")

    def submit(
        self, parameters: Mapping[str, Any] | None = None, *, deployment: str = "synthesize/visits"
    ) -> httpx.Response:
        """Submit a run as the form does, and return the answer, which may be an error."""
        path = f"/deployments/{self.deployment(deployment)['id']}/create_flow_run"
        return self.api("POST", path, {"parameters": dict(parameters or {}), "state": {"type": "SCHEDULED"}})

    def start(self, parameters: Mapping[str, Any] | None = None, *, deployment: str = "synthesize/visits") -> str:
        """Start a run and return its id."""
        answer = self.submit(parameters, deployment=deployment)
        assert answer.is_success, answer.text
        return str(answer.json()["id"])

    def run(self, run_id: str) -> dict[str, Any]:
        """Return a run in its current state."""
        return self.read("GET", f"/flow_runs/{run_id}")

    def wait(self, run_id: str, *, until: Callable[[dict[str, Any]], bool] | None = None) -> dict[str, Any]:
        """Return a run once it has ended, or once the condition `until` holds."""
        reached = until or (lambda run: run["state_type"] in FINAL)

        def found() -> dict[str, Any] | None:
            run = self.run(run_id)
            return run if reached(run) else None

        return wait_for(found, f"the run {run_id}", tell=lambda: self.told(run_id))

    def told(self, run_id: str) -> str:
        """Return the states and log of a run, to show when a test fails."""
        states = [(state["timestamp"][11:23], state["name"], state["message"]) for state in self.states(run_id)]
        return "\n".join([*map(str, states), *self.logs(run_id)])

    def states(self, run_id: str) -> list[dict[str, Any]]:
        """Return all states that a run was in, in order."""
        return sorted(
            self.read("GET", f"/flow_run_states/?flow_run_id={run_id}"), key=lambda state: str(state["timestamp"])
        )

    def logs(self, run_id: str) -> list[str]:
        """Return the lines of a run's log, in order."""
        body = {"logs": {"flow_run_id": {"any_": [run_id]}}, "sort": "TIMESTAMP_ASC", "limit": 200}
        return [str(line["message"]) for line in self.read("POST", "/logs/filter", body)]

    def artifacts(self, run_id: str) -> dict[str, dict[str, Any]]:
        """Return the artifacts of a run, by key."""
        body = {"artifacts": {"flow_run_id": {"any_": [run_id]}}}
        return {str(it["key"]): it for it in self.read("POST", "/artifacts/filter", body)}

    def newest_artifact(self, key: str) -> dict[str, Any]:
        """Return the newest artifact of a key, of any run."""
        body = {"artifacts": {"key": {"any_": [key]}}, "sort": "CREATED_DESC", "limit": 1}
        (newest,) = self.read("POST", "/artifacts/filter", body)
        return dict(newest)

    def release(self, run_id: str) -> Path:
        """Return the folder of the release that a completed run has made."""
        found = [
            path
            for path in self.folder.glob("releases/*/*/manifest.json")
            if run_id in path.read_text(encoding="utf-8")
        ]
        assert len(found) == 1, found
        return found[0].parent


def wait_for(condition: Callable[[], Any], what: str, *, tell: Callable[[], str] = str) -> Any:
    """Poll a condition until it returns something true, and return that."""
    deadline = time.monotonic() + RUN_SECONDS
    while not (answer := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"waited {RUN_SECONDS:g} s for {what}\n{tell()}")
        time.sleep(POLL_SECONDS)
    return answer


@contextmanager
def started_stack(folder: Path, *, more: Mapping[str, str], home: Path | None = None) -> Iterator[Stack]:
    """Start a stack, and stop it at the end or when this process is killed.

    Args:
        folder: The folder of the stack.
        more: Additional environment variables.
        home: A used Prefect home to copy. Without it, the server creates its database itself, which takes longer than to start.
    """
    lock = folder.with_name(f"{folder.name}.lock")
    made = Stack(folder, free_port(), more)
    with lock.open("wb") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        keeper = _keep(made, lock)
        try:
            made.prepare()
            if home:
                copy_home(home, made.database.parent)
            made.ui()
            yield made
        finally:
            users.close()
            keeper.wait()


def _keep(made: Stack, lock: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", KEEPER, lock, made.folder],
        env=made.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # a signal to the tests' process group must not reach the keeper
    )


_SHARED = pytest.StashKey[Stack]()
_ASLEEP = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The installation that all tests of one test process share. Tests of another process can't disturb them.

    Several conftest files import this fixture, and pytest treats each import as a separate fixture. So the stash keeps the first one.
    """
    stash = request.config.stash
    with ExitStack() as opened:  # closed before pytest removes the folder, without which nothing can be stopped
        if _SHARED not in stash:
            folder = tmp_path_factory.getbasetemp() / "stack"
            more = recording(folder.with_name("stack.connections")) | {GATE: str(folder / "gate")}
            stack = started_stack(folder, more=more, home=used_home(tmp_path_factory))
            stash[_SHARED] = opened.enter_context(stack)
        yield stash[_SHARED]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start the shared installation again if a test needs it that was not expected any more."""
    if _uses_stack(item) and item.config.stash.get(_ASLEEP, False):
        item.config.stash[_ASLEEP] = False
        item.config.stash[_SHARED].ui()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop the shared installation after a file that used it, unless the next one does: idle, it takes a tenth of a processor."""
    if nextitem is None or nextitem.path == item.path or _SHARED not in item.config.stash:
        return
    following = (other for other in item.session.items if other.path == nextitem.path)
    if not item.config.stash.get(_ASLEEP, False) and not any(map(_uses_stack, following)):
        item.config.stash[_ASLEEP] = True
        item.config.stash[_SHARED].stop()


def _uses_stack(item: pytest.Item) -> bool:
    return "stack" in getattr(item, "fixturenames", ())
