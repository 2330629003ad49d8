"""The work pool in which runs wait for a worker, with one queue for each account."""

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.exceptions import ObjectNotFound
from prefect.workers.process import ProcessWorker

from dpcore.errors import UsageError


def ensure_pool(name: str, *, worker: bool) -> None:
    """Create a process work pool if there is none of this name. Otherwise reset its job template, since the worker rejects runs under a changed one.

    A pause or a limit that a person has set stays.

    Args:
        name: The pool's name.
        worker: Whether our worker, which starts a process for each run, will take runs from it. Otherwise a pool of any type will do.

    Raises:
        UsageError: Our worker can't take runs from a pool of this type.
    """
    template = ProcessWorker.get_default_base_job_template()
    with get_client(sync_client=True) as client:
        try:
            pool = client.read_work_pool(name)
        except ObjectNotFound:
            client.create_work_pool(
                WorkPoolCreate(
                    name=name,
                    type=ProcessWorker.type,
                    description="Private releases: each run is a process on the worker's machine, where the data are.",
                    base_job_template=template,
                )
            )
            return
        if pool.type == ProcessWorker.type and pool.base_job_template != template:
            client.update_work_pool(name, WorkPoolUpdate(base_job_template=template))
    if worker and pool.type != ProcessWorker.type:
        raise UsageError(
            f"the work pool {name} is of type {pool.type}, for which dpflow has no worker; start Prefect's own, "
            "or choose another pool with --pool"
        )


def ensure_queue(client: SyncPrefectClient, pool: str, account: str) -> None:
    """Create the queue of an account's runs, with a limit of one run at a time. A pause or another limit set by a person stays."""
    about = f"The runs charged to the account {account}, one at a time."
    try:
        queue = client.read_work_queue_by_name(account, work_pool_name=pool)
    except ObjectNotFound:
        client.create_work_queue(account, description=about, concurrency_limit=1, work_pool_name=pool)
        return
    if queue.concurrency_limit is None:  # created by somebody's deployment, without a limit
        where = {"work_pool_name": pool, "name": account}
        client.request(
            "PATCH", "/work_pools/{work_pool_name}/queues/{name}", path_params=where, json={"concurrency_limit": 1}
        )
