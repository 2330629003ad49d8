"""Connect to a running Dask cluster, or start a temporary one on this machine.

Workers on this machine spill data into a scratch folder that is private to the steward and removed when the run ends. A run that is killed
cannot clean up. The next run removes folders whose lock nobody holds.
"""

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dpcore import private_log as stewardlog
from dpcore.errors import SourceError, UsageError
from dpcore.places import PRIVATE_VARIABLE, made_private_folder
from dpcore.spec.engine import EngineSpec

if TYPE_CHECKING:
    from distributed import Client

Connect: TypeAlias = Callable[[EngineSpec], AbstractContextManager["Client"]]
"""Connects a run to its cluster. When the context ends, a cluster that the run started is closed; any other keeps running."""

PREFIX = "cluster-"
LOCK = "lock"
LOGGERS = ("distributed", "tornado", "bokeh")
CONFIG = {
    # The HTTP pages and metrics of scheduler and workers need no password, so they are switched off.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,
    # A local cluster gives up on a worker that is not back within this time, and then waits forever for one. A killed worker is restarted
    # at once, but this may take long under load. Without any worker, tasks fail after the second timeout.
    "distributed.deploy.lost-worker-timeout": "365 days",
    "distributed.scheduler.no-workers-timeout": "10 minutes",
    "dataframe.convert-string": False,  # codes contain no text
    "distributed.admin.large-graph-warning-threshold": "1 GiB",  # a large universe is sent with every piece
}


@contextmanager
def connected(engine: EngineSpec) -> Iterator["Client"]:
    """Yield a client of the cluster that a spec declares. Does not need Prefect."""
    with private_connection() as folder, ExitStack() as opened:
        from distributed import Client, LocalCluster  # noqa: PLC0415  an extra

        def connect() -> Client:
            place = engine.scheduler or opened.enter_context(LocalCluster(**local_options(engine, folder=folder)))
            return opened.enter_context(Client(place, set_as_default=False))

        yield reached(connect, engine=engine)


def check_installed(*packages: str) -> None:
    """Raise if Dask or one of the other packages is not installed."""
    if any(find_spec(package) is None for package in ("dask", "distributed", *packages)):
        raise UsageError(
            "the spec has an `engine`, which needs Dask: run `pip install -e '.[dask]'` in the folder of dpflow, or remove `engine`"
        )


@contextmanager
def private_connection() -> Iterator[Path]:
    """Yield a scratch folder for workers on this machine. Within the context, Dask's logs in this process go to the steward's log."""
    check_installed()
    import dask  # noqa: PLC0415  an extra

    with scratch_folder() as folder, _logs_taken(), dask.config.set(CONFIG | {"temporary-directory": str(folder)}):
        yield folder


def reached(connect: Callable[[], "Client"], *, engine: EngineSpec) -> "Client":
    """Connect, wait until the cluster has a worker, and return the client.

    Raises:
        SourceError: If the cluster cannot be reached or has no worker. Nothing was read.
    """
    try:
        client = connect()
        client.wait_for_workers(1, timeout=60)
    except Exception as error:  # noqa: BLE001  Dask, sockets and TLS raise many kinds of errors
        stewardlog.record(error, where="cluster")
    else:
        return client
    if engine.scheduler is None:
        raise SourceError("no Dask cluster can be started on this machine; see the steward's log")
    raise SourceError(
        f"the Dask cluster at {engine.scheduler} cannot be reached from here, or has no workers; check that it runs, then run again"
    )


def local_options(engine: EngineSpec, *, folder: Path) -> dict[str, Any]:
    """Return the arguments of this run's `distributed.LocalCluster`.

    Anyone who can connect to a scheduler can run code as its user. All processes therefore listen on loopback only and use TLS, with
    certificates that are created for this cluster and exist only in the memory of its processes. Other users of the machine cannot connect.
    """
    return {
        "n_workers": engine.workers,
        "threads_per_worker": 1,
        "processes": True,
        "host": "127.0.0.1",
        "security": True,
        "dashboard_address": None,
        "scheduler_kwargs": {"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        "silence_logs": logging.WARNING,  # warnings go to the steward's log
        "local_directory": str(folder),
        "env": {PRIVATE_VARIABLE: str(folder.parent)},
        "preload": ["dpcore.tables.cluster.worker_output"],
    }


class _StewardsHandler(logging.Handler):
    """Writes to the steward's folder, like the output of the workers."""

    def emit(self, record: logging.LogRecord) -> None:
        stewardlog.note(self.format(record), where=record.name, name=stewardlog.OUTPUT_NAME)


@contextmanager
def _logs_taken() -> Iterator[None]:
    """Redirect Dask's logs in this process, which may run the scheduler and the nannies of the workers."""
    import distributed  # noqa: F401, PLC0415  the import installs its log handlers

    loggers = [name for name in logging.Logger.manager.loggerDict if name.partition(".")[0] in LOGGERS]
    handler = _StewardsHandler(level=logging.WARNING)
    with ExitStack() as before:
        for logger in map(logging.getLogger, sorted({*loggers, *LOGGERS})):
            before.callback(setattr, logger, "handlers", logger.handlers)
            before.callback(setattr, logger, "propagate", logger.propagate)
            top = logger.name in LOGGERS
            logger.handlers = [handler] if top else []
            logger.propagate = not top
        yield


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a new folder in the steward's private folder that other users cannot read, and remove it afterwards.

    Raises:
        UsageError: If the folder cannot be created.
    """
    folder = _new_folder()
    lock = _locked(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _new_folder() -> Path:
    with suppress(OSError):
        place = made_private_folder().resolve()
        _sweep(place)
        return Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))  # mode 0700
    raise UsageError(
        "the steward's private folder is not writable, and workers need scratch space there; name another folder in DPFLOW_PRIVATE"
    )


def _sweep(place: Path) -> None:
    """Remove the folders of runs that have ended."""
    for folder in place.glob(f"{PREFIX}*"):
        # A folder without a lock file is just being created, and is left for a later run to check.
        lock = _locked(folder, create=False)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _locked(folder: Path, *, create: bool = True) -> int | None:
    """Lock the folder until the returned descriptor is closed or the process ends. Return None if another process holds the lock."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock
