"""Audit of `ask`: on a real ledger, every question must be charged before noise is drawn for it."""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from dpcore.audit import planted
from dpcore.audit.case import Bug, Case
from dpcore.audit.checks import Finding, charge_finding
from dpcore.audit.made_up import ROW, temporary_account
from dpcore.curator.ask import Query, ask
from dpcore.ledger import Ledger
from dpcore.mechanisms.noisy_count import NoisyCount
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency

_ACCOUNT = "questions"
_EPSILON = 1


class Asks(Protocol):
    """A function that answers a query and charges an account for it."""

    def __call__(self, account: str, query: Query[int], /, *columns: Any) -> int:
        """Return the answer."""


def _under_way(ledger: Ledger) -> int:
    """Return the amount charged for operations that have no result yet."""
    runs = ledger.runs(_ACCOUNT)
    done = sum(operation.amount for run in runs for operation in ledger.transcript(run.id))
    return sum(run.spent for run in runs) - done


@dataclass(frozen=True, kw_only=True)
class AskingCheck:
    """Check that random words for an answer are drawn only after the ledger holds its whole price and before the answer is stored."""

    kind: ClassVar[str] = "charge"

    asks: Asks

    @property
    def setting(self) -> str:
        """The input that is checked, in words."""
        return "words drawn while a question is charged"

    def run(self, *, effort: float) -> Finding:  # noqa: ARG002  one question is enough
        """Ask one question and observe every request for random words."""
        amount = _EPSILON * AMOUNT_OF_ONE
        query = NoisyCount.for_amount(amount, currency=Currency.PURE, protection=ROW)
        price = query.price(Currency.PURE)
        with temporary_account(_ACCOUNT, cap=amount) as ledger:
            return charge_finding(
                self.setting,
                lambda: self.asks(_ACCOUNT, query, np.ones(10, dtype=np.bool_)),
                charged=lambda: _under_way(ledger) >= price,
            )


def asking() -> Case:
    """Return the audit of `ask`, which charges and answers a single question."""
    return Case(
        name="asking-step",
        theorem="The sum of prices bounds the privacy loss of adaptively chosen questions, if each is charged before it is answered.",
        reference="Rogers, Roth, Ullman and Vadhan 2016",
        prices={Currency.PURE: "the price of the mechanism that draws"},
        checks=(AskingCheck(asks=ask),),
        bugs=(
            Bug(
                name="missing charge",
                how="the question is answered without charging the ledger",
                check=AskingCheck(asks=planted.answered_free),
            ),
            Bug(
                name="charge after the draw",
                how="the noise is drawn when the table is read, before the charge",
                check=AskingCheck(asks=planted.drawn_while_reading),
            ),
        ),
    )
