"""The verb `dpflow serve`: deploy to the configured Prefect server, then execute the runs that are scheduled or submitted there.

Prefect reads its environment on import, so it is imported only after the verb has set that environment. The runs that the worker
starts inherit it.
"""

import argparse
import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from dpcore.cli.arguments import Subparsers, add_verb, argument
from dpcore.cli.output import Answer
from dpcore.errors import DpflowError, UsageError
from dpcore.places import current_places
from flows.server.background import end_with
from flows.server.connection import configured_url, homes, no_proxy, read_settings, server_answers, shown
from flows.server.password import client_environment, password
from flows.server.running import running
from flows.server.settings import HEARTBEAT_SECONDS, SAFE
from flows.verbs import VERBS
from flows.worker.shutdown import until_signalled

POOL = "dpflow"

progress = logging.getLogger("dpcore.progress")


def add_verbs(verbs: Subparsers) -> None:
    """Add the verb to the parser."""
    add_verb(
        verbs,
        "serve",
        VERBS["serve"].about,
        argument("--pool", default=POOL, help="the work pool, created if it does not exist (default: %(default)s)"),
        argument(
            "--notify",
            metavar="TYPE/NAME",
            type=_block_name,
            help="the Prefect notification block through which to report that an account passes 80 %% of its budget",
        ),
        argument(
            "--limit",
            metavar="N",
            type=_number,
            default=max(
                2, os.cpu_count() or 1
            ),  # even on one processor: a run may only be waiting for its ledger, or another worker
            help="how many runs the worker executes at a time (default: the number of processors, here %(default)s)",
        ),
        argument("--deploy-only", action="store_true", help="deploy without starting a worker"),
        argument(
            "--wait", metavar="SECONDS", type=float, default=0.0, help="how long to wait for a server that is starting"
        ),
        argument("--server-pid", type=int, help=argparse.SUPPRESS),  # passed by `dpflow ui`
        run=_serve,
    )


def worker_environment() -> dict[str, str]:
    """Return the environment variables that a worker and its runs get in addition to the inherited ones.

    The user can't override the safe settings here, because others see what a deployed run does.
    """
    chosen = {
        "PREFECT_WORKER_QUERY_SECONDS": "2",  # with Prefect's 10, a person waits up to 10 seconds for a run to start
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    }
    return {
        **{name: os.environ.get(name, value) for name, value in chosen.items()},
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_SECONDS),
        # A deployment's command is a bare `python3`. It must find the interpreter that runs this worker.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        **SAFE,
        **current_places().environment(),
    }


def worker_name(pid: int) -> str:
    """Return the name under which the worker of a process is listed in the Prefect UI."""
    return f"dpflow {socket.gethostname()} {pid}".translate({ord("/"): "-", ord("%"): "-"})


def _serve(arguments: argparse.Namespace) -> Answer:
    current_places().require_fixed()
    progress.info("ledger %s", current_places().ledger_shown)
    os.environ.update(worker_environment())
    url = _connect(wait=arguments.wait, server=arguments.server_pid)
    with _server_errors(url):
        deployed = _deploy(pool=arguments.pool, notify=arguments.notify, worker=not arguments.deploy_only)
        if not arguments.deploy_only:
            progress.info("worker running in pool %s; Ctrl-C stops it", arguments.pool)
            _work(arguments.pool, limit=arguments.limit)
    return Answer(
        {"url": url, "pool": arguments.pool, **deployed},
        f"deployed to {url}" if arguments.deploy_only else "the worker has stopped",
    )


def _connect(*, wait: float, server: int | None) -> str:
    """Return the URL of the server that is configured, or that `dpflow ui` runs in this folder, once it answers."""
    os.environ.update(homes())
    url = configured_url()
    if url is None and (ours := running()) and ours.server.alive:
        url, server = ours.url, ours.server.pid
        os.environ.update(client_environment(url, password()) | no_proxy())
        read_settings()
    if url is None:
        raise UsageError(
            "no Prefect server is configured; set PREFECT_API_URL, such as http://127.0.0.1:4200/api, or run `dpflow ui`"
        )
    if server is not None:
        # If the server ends, another account could take its port, receive the password, and submit or approve runs.
        end_with(
            server, words="the Prefect server of this folder has stopped, and this worker with it; run `dpflow ui`"
        )
    deadline = time.monotonic() + wait
    while not server_answers(url):
        if time.monotonic() > deadline:
            raise UsageError(
                f"the Prefect server at {shown(url)} does not answer; start it, or set PREFECT_API_URL to another"
            )
        time.sleep(0.5)
    return shown(url)


def _deploy(*, pool: str, notify: str | None, worker: bool) -> dict[str, list[str]]:
    from flows.deploy.automations import HOW_TO_NOTIFY, automate  # noqa: PLC0415  see the top of the file
    from flows.deploy.deployments import deploy  # noqa: PLC0415
    from flows.deploy.pool import ensure_pool  # noqa: PLC0415

    ensure_pool(pool, worker=worker)
    deployed = deploy(pool)
    for name in deployed.present:
        progress.info("deployed %s", name)
    for name in deployed.removed:
        progress.info("removed %s, which is no longer registered", name)
    if not automate(notify=notify):
        progress.info(HOW_TO_NOTIFY)
    return {"deployments": list(deployed.present), "removed": list(deployed.removed)}


def _work(pool: str, *, limit: int) -> None:
    """Run our worker until a signal ends it."""
    from flows.worker.worker import PrivateWorker  # noqa: PLC0415  see the top of the file

    async def work() -> frozenset[str]:
        name = worker_name(os.getpid())
        worker = PrivateWorker(work_pool_name=pool, name=name, create_pool_if_not_found=False, limit=limit)
        return await until_signalled(worker.start(printer=progress.info))

    _schedule_again(asyncio.run(work()))


def _schedule_again(interrupted: Iterable[str]) -> None:
    """Schedule the runs that ended with this worker again, for the next worker or one that already runs.

    An automation of the server does the same, but not if the server is stopped together with the worker before it has processed the
    runs' last events.
    """
    from prefect.client.orchestration import get_client  # noqa: PLC0415  see the top of the file
    from prefect.states import Scheduled  # noqa: PLC0415

    with get_client(sync_client=True) as client:
        for run_id in interrupted:
            state = client.read_flow_run(UUID(run_id)).state
            if state and (state.is_pending() or state.is_running() or state.is_crashed()):
                words = "Interrupted because its worker was stopped; continues from its transcript."
                client.set_flow_run_state(UUID(run_id), Scheduled(name="AwaitingRetry", message=words))
                progress.info("run %s was interrupted; the next worker continues it", run_id)


@contextmanager
def _server_errors(url: str) -> Iterator[None]:
    """Convert HTTP errors to errors of one line: the server rejected a request, or went away."""
    import httpx  # noqa: PLC0415  see the top of the file

    failure: DpflowError | None = None
    try:
        yield
    except httpx.HTTPStatusError as error:
        code = error.response.status_code
        if code in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}:
            failure = UsageError(
                f"the Prefect server at {url} asks for a password; set PREFECT_API_AUTH_STRING to USER:PASSWORD"
            )
        else:
            failure = DpflowError(
                f"the Prefect server at {url} rejected a request ({code}); check that it has the same Prefect version"
            )
    except httpx.HTTPError as error:
        failure = DpflowError(
            f"the Prefect server at {url} failed ({type(error).__name__}); check that it is running, then try again"
        )
    if failure:
        raise failure from None


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("must be a whole number of at least 1, such as 4")
    return int(text)


def _block_name(text: str) -> str:
    kind, separator, name = text.partition("/")
    if not (kind and separator and name):
        raise argparse.ArgumentTypeError("must be TYPE/NAME of a block, such as slack-webhook/steward")
    return text
