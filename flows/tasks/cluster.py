"""The cluster of a flow run, held by prefect-dask."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from dpcore.spec.engine import EngineSpec
from dpcore.tables.cluster import check_installed, local_options, private_connection, reached

if TYPE_CHECKING:
    from distributed import Client


@contextmanager
def prefect_cluster(engine: EngineSpec) -> Iterator["Client"]:
    """Yield a client of the cluster that a spec declares: of a running one, or of one that lasts as long as it is needed.

    Tasks are called, and none is submitted through the runner, which would send its arguments to the cluster: the runner only makes the
    cluster or finds it, and closes it or leaves it.
    """
    check_installed("prefect_dask")
    from prefect_dask import DaskTaskRunner  # noqa: PLC0415  an extra

    with private_connection() as folder, ExitStack() as opened:
        runner = (
            DaskTaskRunner(address=engine.scheduler)
            if engine.scheduler
            else DaskTaskRunner(cluster_kwargs=local_options(engine, folder=folder))
        )
        yield reached(lambda: opened.enter_context(runner).client, engine=engine)
