"""The work pool: where runs wait until a worker takes them."""

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectNotFound
from prefect.workers.process import ProcessWorker

from dpcore.errors import UsageError


def ensure_pool(name: str, *, worker: bool) -> None:
    """Make a work pool for processes if there is none of this name.

    Args:
        name: The pool's name.
        worker: Whether our worker, which starts a process for each run, is to take runs from it. Else any pool will do.
    """
    with get_client(sync_client=True) as client:
        try:
            pool = client.read_work_pool(name)
        except ObjectNotFound:
            client.create_work_pool(
                WorkPoolCreate(
                    name=name,
                    type=ProcessWorker.type,
                    description="Private releases: each run is a process of the worker's machine, where the data are.",
                    base_job_template=ProcessWorker.get_default_base_job_template(),
                )
            )
            return
    if worker and pool.type != ProcessWorker.type:
        raise UsageError(
            f"the work pool {name} is of type {pool.type}, for which dpflow runs no worker; start Prefect's own, "
            "or choose another pool with --pool"
        )
