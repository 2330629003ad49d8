"""The work pool: where runs wait until a worker takes them, those of one account in a queue of their own."""

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.exceptions import ObjectNotFound
from prefect.workers.process import ProcessWorker

from dpcore.errors import UsageError


def ensure_pool(name: str, *, worker: bool) -> None:
    """Make a work pool for processes if there is none of this name, or set its template back, by which runs would be refused.

    What a person has paused or limited stays so.

    Args:
        name: The pool's name.
        worker: Whether our worker, which starts a process for each run, is to take runs from it. Else any pool will do.
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
                    description="Private releases: each run is a process of the worker's machine, where the data are.",
                    base_job_template=template,
                )
            )
            return
        if pool.type == ProcessWorker.type and pool.base_job_template != template:
            client.update_work_pool(name, WorkPoolUpdate(base_job_template=template))
    if worker and pool.type != ProcessWorker.type:
        raise UsageError(
            f"the work pool {name} is of type {pool.type}, for which dpflow runs no worker; start Prefect's own, "
            "or choose another pool with --pool"
        )


def ensure_queue(client: SyncPrefectClient, pool: str, account: str) -> None:
    """Make the queue of an account's runs, of which one is executed at a time; a pause, or another limit, that a person has set stays."""
    about = f"The runs that the account {account} pays for, one at a time."
    try:
        queue = client.read_work_queue_by_name(account, work_pool_name=pool)
    except ObjectNotFound:
        client.create_work_queue(account, description=about, concurrency_limit=1, work_pool_name=pool)
        return
    if queue.concurrency_limit is None:  # made by somebody's deployment, without a word about limits
        where = {"work_pool_name": pool, "name": account}
        client.request(
            "PATCH", "/work_pools/{work_pool_name}/queues/{name}", path_params=where, json={"concurrency_limit": 1}
        )
