"""Events for automations: how much of an account is used, once that it has passed 80 % of its budget, and each release that was published.

Each dataset is also an asset of Prefect, and each release materializes it.
"""

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from prefect.assets import Asset, AssetProperties
from prefect.context import AssetContext
from prefect.events import emit_event
from prefect.exceptions import ObjectAlreadyExists
from prefect.variables import Variable

from dpcore import Account, Balance
from dpcore.object_store import any_path
from dpcore.reporting.outcome import Report
from dpcore.reporting.plots import MARK
from flows.pages.keys import key

USED, PASSED = "dpflow.account.used", "dpflow.account.passed"
PUBLISHED = "dpflow.release.published"
MATERIALIZED = "prefect.asset.materialization.succeeded"

progress = logging.getLogger("dpcore.progress")


def announce(account: Account, balance: Balance, *, ledger: str) -> None:
    """Emit how much of an account is used and, the first time that it is 80 % or more, that it has passed that mark.

    The id of a crossing is derived from the ledger, the account and its budget, so each budget is crossed once, and a raised budget
    can be crossed again. A server stores a repeated event once, but triggers automations again after half an hour or a restart. So
    announced crossings are also kept in a Prefect variable and not sent again.

    Args:
        account: The account.
        balance: Its balance, or that of its most used block.
        ledger: The identity of the ledger, since another ledger may have an account of the same name.
    """
    percent = round(100 * balance.used / balance.cap, 1)
    resource = {"prefect.resource.id": f"dpflow.account.{account.name}", "prefect.resource.name": account.name}
    payload = {
        "account": account.name,
        "percent": percent,
        "spent_percent": round(100 * balance.spent / balance.cap, 1),
        "epsilon": account.epsilon,
        "delta": account.delta,
    }
    emit_event(USED, resource=resource, payload=payload)
    crossing = uuid5(NAMESPACE_URL, f"dpflow:{ledger}:{account.name}:{balance.cap}")
    if balance.used < MARK * balance.cap or str(crossing) in _announced("passed", account.name):
        return
    progress.info("account %s: %g %% of its budget is used", account.name, percent)
    emit_event(PASSED, resource=resource, payload=payload | {"mark": round(100 * MARK)}, id=crossing)
    _remember("passed", account.name, crossing)


def announce_release(report: Report) -> None:
    """Emit, once, that a release was published, with its path and its statement of privacy. All of it is in the manifest, which is public.

    A second event, with the same payload, materializes the dataset's asset. A task decorated with `materialize` would do so again each time
    that its run is retried, and would have to know its dataset before it runs.

    The id is derived from the ledger and the run, which has one release. It is remembered like that of a crossing, so a run that is retried
    after it has published announces nothing again.
    """
    outcome, dataset = report.outcome, report.account.name
    published = uuid5(NAMESPACE_URL, f"dpflow:{report.privacy['ledger']}:published:{outcome.run}")
    if str(published) in _announced("published", dataset):
        return
    path = any_path(outcome.release)
    payload = {
        "dataset": dataset,
        "release": path.name,
        "path": str(path.absolute() if isinstance(path, Path) else path),
        "rows": outcome.rows,
        "privacy": dict(report.privacy),
    }
    resource = {"prefect.resource.id": f"dpflow.dataset.{dataset}", "prefect.resource.name": dataset}
    emit_event(PUBLISHED, resource=resource, payload=payload, id=published)
    emit_event(
        MATERIALIZED,
        resource=AssetContext.asset_as_resource(dataset_asset(dataset)),
        related=[AssetContext.related_materialized_by("dpflow")],
        payload=payload,
        id=uuid5(published, "asset"),
    )
    _remember("published", dataset, published)


def dataset_asset(dataset: str) -> Asset:
    """Return the asset of a dataset. Its key holds for all its releases, wherever they lie, so that flows downstream can depend on it.

    >>> dataset_asset("clinic-visits")
    Asset(key='dpflow://clinic-visits')
    """
    description = "Synthetic rows with differential privacy. Each release states its promise in manifest.json."
    return Asset(key=f"dpflow://{dataset}", properties=AssetProperties(name=dataset, description=description))


def _announced(what: str, name: str) -> list[str]:
    events: Any = Variable.get(key(what, name), default=[])
    return list(map(str, events)) if isinstance(events, list) else []


def _remember(what: str, name: str, event: UUID) -> None:
    latest = [*_announced(what, name), str(event)][-20:]
    # Two runs that announce at once may both create the variable. A crossing is then the same, so the second can be dropped.
    with suppress(ObjectAlreadyExists):
        Variable.set(key(what, name), latest, tags=["dpflow"], overwrite=True)
