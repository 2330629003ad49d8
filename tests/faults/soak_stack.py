"""An installation to soak: Prefect's server, workers that are real `dpflow serve` processes, and one account that all its specs share."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from flows.server import background
from flows.server.connection import server_answers
from flows.server.settings import SAFE
from flows.server.temporary import RECORDER
from tests.faults.soak_table import clean_environment, databases
from tests.ports import free_port

KEEPER = Path(__file__).with_name("soak_keeper.py")
POOL = "dpflow"
RUN_ID = "PREFECT__FLOW_RUN_ID"
START_SECONDS = 180.0
POLL_SECONDS = 0.2
PAGE = 200

DEAD_SECONDS, LOST_SECONDS = 45, 60
"""How long a run may be silent, and how long on its way; a heartbeat comes every 30 seconds."""

SHORTER = {
    "dpflow: silent runs are dead": DEAD_SECONDS,
    "dpflow: lost runs are scheduled again": LOST_SECONDS,
}


@dataclass
class Stack:
    """A folder with everything in it, and what a soak does with it."""

    folder: Path
    environment: Mapping[str, str]
    port: int
    workers: int
    client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = httpx.Client(base_url=f"{self.url}/", trust_env=False, timeout=60)

    @property
    def url(self) -> str:
        """The address of the server's API."""
        return f"http://127.0.0.1:{self.port}/api"

    def marks(self) -> list[Path]:
        """Return the folders of all programs, in the order in which they are to be ended."""
        return [*map(self.mark, range(self.workers)), self.folder / "server"]

    def mark(self, worker: int) -> Path:
        """Return the folder of a worker: its log is there, and its processes are known by it."""
        return self.folder / f"worker-{worker + 1}"

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the server, again if it is only busy, and return what it answers."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                answer = self.client.request(method, path, json=body)
                answer.raise_for_status()
            except (httpx.TransportError, httpx.HTTPStatusError) as error:
                refused = isinstance(error, httpx.HTTPStatusError) and error.response.status_code < 500
                if refused or time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)
            else:
                return answer.json() if answer.content else None

    def start_server(self) -> None:
        """Start Prefect's server and wait until it answers."""
        arguments = ["-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(self.port)]
        server = self.folder / "server"
        pid = background.start(arguments, folder=server, log="log", environment=self.environment)
        until(
            lambda: server_answers(self.url, timeout=1, direct=True),
            "the Prefect server",
            alive=lambda: background.runs(pid, arguments, folder=server),
            log=server / "log",
        )

    def deploy(self) -> None:
        """Deploy as an operator does before the first worker is started, then shorten the waits of the automations.

        A worker that starts puts the automations of their names back as they are meant for production, but leaves them switched
        off: so those are switched off, and copies with shorter waits and other names take their place.
        """
        self.dpflow("serve", "--deploy-only")
        for automation in self.api("POST", "automations/filter", {}):
            if automation["name"] not in SHORTER:
                continue
            seconds = SHORTER[automation["name"]]
            trigger = {key: value for key, value in automation["trigger"].items() if key != "id"}
            copy = {
                "name": f"soak: {automation['name']}",
                "description": automation["description"],
                "enabled": True,
                "trigger": trigger | {"within": seconds},
                "actions": automation["actions"],
            }
            self.api("PATCH", f"automations/{automation['id']}", {"enabled": False})
            self.api("POST", "automations/", copy)

    def dpflow(self, *arguments: str) -> None:
        """Run the command to its end, which has to be a good one."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "flows", *arguments],
            cwd=self.folder,
            env=dict(self.environment),
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(
                f"dpflow {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            )

    def start_worker(self, worker: int) -> int:
        """Start a worker and return its process number."""
        arguments = ["-m", "flows", "serve", "--wait", str(START_SECONDS)]
        return background.start(arguments, folder=self.mark(worker), log="log", environment=self.environment)

    def online(self) -> int:
        """Return how many workers the server has heard of lately; none before the first has made the pool."""
        if not self.api("POST", "work_pools/filter", {"work_pools": {"name": {"any_": [POOL]}}}):
            return 0
        listed = self.api("POST", f"work_pools/{POOL}/workers/filter", {})
        return sum(worker["status"] == "ONLINE" for worker in listed)

    def processes(self, worker: int) -> list[psutil.Process]:
        """Return the processes of a worker: itself, and those of its runs."""
        return [process for process in background.all_of(self.mark(worker)) if process.is_running()]

    def alive(self, worker: int) -> set[str]:
        """Return the ids of the runs of a worker that have a living process."""
        found = set()
        for process in self.processes(worker):
            try:
                found.add(process.environ().get(RUN_ID))
            except psutil.Error:  # it has just ended
                continue
        return {run for run in found if run}

    def runs(self, *types: str) -> list[dict[str, Any]]:
        """Return all runs of the soak, or those in states of some types."""
        chosen: dict[str, Any] = {"tags": {"all_": ["soak"]}}
        if types:
            chosen["state"] = {"type": {"any_": list(types)}}
        found: list[dict[str, Any]] = []
        while page := self.api(
            "POST", "flow_runs/filter", {"flow_runs": chosen, "sort": "ID_DESC", "limit": PAGE, "offset": len(found)}
        ):
            found += page
            if len(page) < PAGE:
                break
        return found

    def states(self, run: str) -> list[dict[str, Any]]:
        """Return all states that a run was in, in order."""
        found = self.api("GET", f"flow_run_states/?flow_run_id={run}")
        return sorted(found, key=lambda state: str(state["timestamp"]))

    def limit(self, runs: int) -> None:
        """Let so many runs be taken by workers: of the pool, and of each account, of which it would be one at a time."""
        for queue in self.api("POST", f"work_pools/{POOL}/queues/filter", {}):
            self.api("PATCH", f"work_pools/{POOL}/queues/{queue['name']}", {"concurrency_limit": runs})
        self.api("PATCH", f"work_pools/{POOL}", {"concurrency_limit": runs})

    def retry(self, run: str) -> None:
        """Schedule a run again, as the button in the UI does."""
        state = {"type": "SCHEDULED", "name": "AwaitingRetry"}
        self.api("POST", f"flow_runs/{run}/set_state", {"state": state, "force": False})


@contextmanager
def installed(folder: Path, *, store: str, workers: int) -> Iterator[Stack]:
    """Set up databases and server in a folder; at the end, also if this process is killed, nothing of it runs any more."""
    with ExitStack() as opened:
        urls = opened.enter_context(databases(store, folder))
        environment = (
            clean_environment()
            | SAFE
            | RECORDER
            | {
                "PREFECT_HOME": str(folder / "prefect"),
                "PREFECT_SERVER_UI_ENABLED": "false",
                "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "5",
                "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
                "DPFLOW_REGISTRY": str(folder / "registry"),
                "DPFLOW_PRIVATE": str(folder / "private"),
            }
            | urls
        )
        port = free_port()
        stack = Stack(folder, environment | {"PREFECT_API_URL": f"http://127.0.0.1:{port}/api"}, port, workers)
        opened.callback(stack.client.close)
        for mark in stack.marks():
            mark.mkdir()
        keeper = subprocess.Popen(
            [sys.executable, "-P", KEEPER, *stack.marks()],
            stdin=subprocess.PIPE,
            start_new_session=True,  # a signal to this process group must not take the keeper
        )
        opened.callback(keeper.communicate)
        yield stack


def until(
    condition: Callable[[], bool],
    what: str,
    *,
    alive: Callable[[], bool] = lambda: True,
    log: Path | None = None,
    seconds: float = START_SECONDS,
) -> None:
    """Ask again and again until the answer is yes.

    Raises:
        RuntimeError: If that takes too long, or what should answer is not alive any more.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if not alive() or time.monotonic() > deadline:
            words = log.read_text(encoding="utf-8")[-3000:] if log else ""
            raise RuntimeError(f"waited in vain for {what}\n{words}")
        time.sleep(POLL_SECONDS)
