"""Answer one query about a table and charge an account for it, in one call from Python."""

import json
import uuid
from dataclasses import asdict, is_dataclass
from inspect import signature
from typing import Any

import numpy as np

from dpcore.curator.charges import Statistic, charge_draw_commit
from dpcore.errors import DpflowError, SourceBroken, StepFailed, UsageError
from dpcore.ledger import Account, open_ledger
from dpcore.mechanisms.query import Answer, Query
from dpcore.privacy.protection import Protection

STEP = "answer"


def ask(account: str, query: Query[Answer], *columns: Any, **more: Any) -> Answer:
    """Answer a query about a private table, after charging an account for it.

    The price is reserved before the table is read. If the columns cannot be read as declared, the query is rejected and the price is
    refunded. After the charge there is no refund. The answer is stored in the ledger with its price.

    Args:
        account: The account that pays. It must protect the same unit under the same neighbours as the query.
        query: A NoisyCount, BoundedSum, BoundedMean, NoisyHistogram, NoisyQuantiles, TopCategories, NoisyChoice or CountsAbove.
        columns: The positional arguments of the query's `draw`.
        more: The keyword arguments of the query's `draw`: `ids` and `weights`.

    Raises:
        BudgetRefused: If the account cannot pay. Nothing was read.
    """
    _require_columns(query, columns, more)
    with open_ledger() as ledger:
        payer = ledger.account(account)
        require_agreement(payer, query.protection)
        run = str(uuid.uuid4())
        amount = query.price(payer.currency)
        ledger.reserve(run, account=account, amount=amount, claim=f"{STEP} by {query.describe()['name']}")
        lease = ledger.lease(run)
        try:
            exact = query.read(*columns, **more)
            if exact.protection != query.protection:
                raise StepFailed("the rows are bounded by another protection than the noise is for; report this")
        except DpflowError as refused:
            if not isinstance(refused, SourceBroken):  # that error may depend on private rows, so it is not refunded
                ledger.refund(run, lease=lease)
            raise
        answer, _ = charge_draw_commit(
            ledger,
            lease,
            step=STEP,
            statistic=Statistic.QUERY,
            mechanism=query,
            currency=payer.currency,
            draw=lambda: query.answer(exact),
            keep=_stored,
        )
        ledger.settle(run, release=None, lease=lease)
    return answer


def _require_columns(query: Query[Any], columns: tuple[Any, ...], more: dict[str, Any]) -> None:
    """Raise, before anything is reserved, unless this is a query and it accepts these columns."""
    if not isinstance(query, Query):
        raise UsageError(
            "only a query with a protection can be asked: a NoisyCount, BoundedSum, BoundedMean, NoisyHistogram, NoisyQuantiles, "
            "TopCategories, NoisyChoice or CountsAbove"
        )
    try:
        signature(query.read).bind(*columns, **more)
    except TypeError as problem:
        raise UsageError(f"{problem} of this query; see the arguments of its draw") from None


def require_agreement(payer: Account, protection: Protection) -> None:
    """Raise unless the query and the account protect the same unit under the same neighbours."""
    for what, asked, fixed in (
        ("unit", protection.unit, payer.unit),
        ("neighbours", protection.neighbours.value, payer.neighbours.value),
    ):
        if asked != fixed:
            raise UsageError(
                f"the query protects {what} {asked}, but account '{payer.name}' protects {fixed}, and an account's terms are fixed; "
                f"ask with {what} {fixed}, or from another account"
            )
    if payer.blocks_by is not None:
        raise UsageError(
            f"account '{payer.name}' has blocks, but a query reads a whole table; use an account without blocks"
        )


def _stored(answer: object) -> bytes:
    """Serialise an answer for the ledger."""
    if isinstance(answer, dict):
        answer = [{"columns": list(names), "counts": counts} for names, counts in answer.items()]
    elif is_dataclass(answer) and not isinstance(answer, type):
        answer = asdict(answer)
    return json.dumps(answer, sort_keys=True, default=_as_list).encode()


def _as_list(counts: object) -> Any:
    if isinstance(counts, np.ndarray):
        return counts.tolist()
    raise TypeError("an answer holds numbers, texts and arrays only")
