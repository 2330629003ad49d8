"""Open the Dask cluster of a flow run through prefect-dask."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from dpcore.spec.engine import EngineSpec
from dpcore.tables.cluster import check_installed, local_options, private_connection, reached

if TYPE_CHECKING:
    from distributed import Client


@contextmanager
def prefect_cluster(engine: EngineSpec) -> Iterator["Client"]:
    """Yield a client of the cluster that a spec declares: a running cluster, or one that is started now and closed at the end.

    Tasks are called directly and never submitted through the runner, which would send their arguments to the cluster. The runner only
    starts or finds the cluster, and closes it if it started it.
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
