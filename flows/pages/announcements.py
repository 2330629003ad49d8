"""Events about accounts, for automations: how much of an account is used, and, once, that it has passed 80 % of its budget."""

import logging
from contextlib import suppress
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from prefect.events import emit_event
from prefect.exceptions import ObjectAlreadyExists
from prefect.variables import Variable

from dpcore import Account, Balance
from dpcore.reporting.plots import MARK
from flows.pages.keys import key

USED, PASSED = "dpflow.account.used", "dpflow.account.passed"
_REMEMBERED = 20

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
    if balance.used < MARK * balance.cap or str(crossing) in _announced(account.name):
        return
    progress.info("account %s: %g %% of its budget is used", account.name, percent)
    emit_event(PASSED, resource=resource, payload=payload | {"mark": round(100 * MARK)}, id=crossing)
    _remember(account.name, crossing)


def _announced(account: str) -> list[str]:
    found: Any = Variable.get(key("passed", account), default=[])
    return [str(each) for each in found] if isinstance(found, list) else []


def _remember(account: str, crossing: UUID) -> None:
    latest = [*_announced(account), str(crossing)][-_REMEMBERED:]
    # Two runs that cross at once may both create the variable. They write the same crossing, so the second can be dropped.
    with suppress(ObjectAlreadyExists):
        Variable.set(key("passed", account), latest, tags=["dpflow"], overwrite=True)
