"""The way to a cluster: one that runs already, or one of processes on this machine for as long as it is needed."""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dpcore import private_log as stewardlog
from dpcore.errors import SourceError, UsageError
from dpcore.places import PRIVATE_VARIABLE
from dpcore.spec.engine import EngineSpec
from dpcore.tables.cluster.scratch import scratch_folder

if TYPE_CHECKING:
    from distributed import Client

Connect: TypeAlias = Callable[[EngineSpec], AbstractContextManager["Client"]]
"""How a run gets its cluster, which is closed, or left if it is not the run's own, with the context."""

WAIT_SECONDS = 60
LOGGERS = ("distributed", "tornado", "bokeh")
CONFIG = {
    # The pages and figures that scheduler and workers offer to browsers ask for no password: there are none.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,
    # A cluster on this machine gives a worker up that is not back within this time, and then waits for ever for one: a killed worker
    # is started again at once, but under load that may take long. Without any worker, tasks fail in the end.
    "distributed.deploy.lost-worker-timeout": "365 days",
    "distributed.scheduler.no-workers-timeout": "10 minutes",
    "dataframe.convert-string": False,  # there is no text among codes
    "distributed.admin.large-graph-warning-threshold": "1 GiB",  # a universe of many values goes with every piece
}


@contextmanager
def connected(engine: EngineSpec) -> Iterator["Client"]:
    """Yield a client of the cluster that a spec declares, without Prefect."""
    with private_connection() as folder, ExitStack() as opened:
        from distributed import Client, LocalCluster  # noqa: PLC0415  an extra

        def connect() -> Client:
            place = engine.scheduler or opened.enter_context(LocalCluster(**local_options(engine, folder=folder)))
            return opened.enter_context(Client(place, set_as_default=False))

        yield reached(connect, engine=engine)


def check_installed(*packages: str) -> None:
    """Refuse an engine without the packages that it needs."""
    if any(find_spec(package) is None for package in ("dask", "distributed", *packages)):
        raise UsageError(
            "the spec has an `engine`, which needs Dask: run `pip install -e '.[dask]'` in the folder of dpflow, or remove it"
        )


@contextmanager
def private_connection() -> Iterator[Path]:
    """Yield a folder for what workers on this machine put down; while this lasts, what Dask logs in this process is the steward's."""
    check_installed()
    import dask  # noqa: PLC0415  an extra

    with scratch_folder() as folder, _logs_taken(), dask.config.set(CONFIG | {"temporary-directory": str(folder)}):
        yield folder


def reached(connect: Callable[[], "Client"], *, engine: EngineSpec) -> "Client":
    """Return the client that was connected, once there is a worker to work for it.

    Raises:
        SourceError: If there is no such cluster. Nothing was read.
    """
    try:
        client = connect()
        client.wait_for_workers(1, timeout=WAIT_SECONDS)
    except Exception as error:  # noqa: BLE001  Dask, sockets and TLS have many ways of saying so
        stewardlog.record(error, where="cluster")
    else:
        return client
    if engine.scheduler is None:
        raise SourceError("no Dask cluster can be started on this machine; the steward's log says why")
    raise SourceError(
        f"the Dask cluster at {engine.scheduler} can't be reached from here, or has no workers; see that it runs, then run again"
    )


def local_options(engine: EngineSpec, *, folder: Path) -> dict[str, Any]:
    """Return what a `distributed.LocalCluster` of this run is made with.

    Whoever can talk to a scheduler can run code as its user. So everything listens on loopback only, and talks in TLS with
    certificates that are made for this cluster and exist in the memory of its processes alone: other users of the machine stay out.
    """
    return {
        "n_workers": engine.workers,
        "threads_per_worker": 1,
        "processes": True,
        "host": "127.0.0.1",
        "security": True,
        "dashboard_address": None,
        "scheduler_kwargs": {"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        "silence_logs": logging.WARNING,  # and what is logged goes to the steward
        "local_directory": str(folder),
        "env": {PRIVATE_VARIABLE: str(folder.parent)},
        "preload": ["dpcore.tables.cluster.worker_output"],
    }


class _StewardsHandler(logging.Handler):
    """Writes to the steward's folder, where the workers' output goes, too."""

    def emit(self, record: logging.LogRecord) -> None:
        stewardlog.note(self.format(record), where=record.name, name=stewardlog.OUTPUT_NAME)


@contextmanager
def _logs_taken() -> Iterator[None]:
    """Take what Dask logs in this process: the scheduler and the keepers of the workers may run in it."""
    import distributed  # noqa: F401, PLC0415  it gives its loggers their handlers

    known = [name for name in logging.Logger.manager.loggerDict if name.partition(".")[0] in LOGGERS]
    handler = _StewardsHandler(level=logging.WARNING)
    with ExitStack() as before:
        for logger in map(logging.getLogger, sorted({*known, *LOGGERS})):
            before.callback(setattr, logger, "handlers", logger.handlers)
            before.callback(setattr, logger, "propagate", logger.propagate)
            top = logger.name in LOGGERS
            logger.handlers = [handler] if top else []
            logger.propagate = not top
        yield
