"""Audit of `ask`: on a real ledger, every question must be charged before noise is drawn for it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Protocol

import numpy as np

from dpcore.audit import planted
from dpcore.audit.case import Bug, Case
from dpcore.audit.checks import Finding
from dpcore.audit.streams import Words, taken_from
from dpcore.curator.ask import Query, ask
from dpcore.ledger import Ledger, open_ledger
from dpcore.mechanisms.noisy_count import NoisyCount
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours, Protection

_ROW = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
"""With one row per unit, no rows are dropped at random, so every random word belongs to the noise."""

_VARIABLE = "DPFLOW_LEDGER_URL"
_ACCOUNT = "questions"
_EPSILON = 1


class Asks(Protocol):
    """A function that answers a query and charges an account for it."""

    def __call__(self, account: str, query: Query[int], /, *columns: Any) -> int:
        """Return the answer."""


@contextmanager
def _paid_from(url: str) -> Iterator[None]:
    """Set the ledger that questions are charged to while the context is open."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = url
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


@contextmanager
def _made_up_account(cap: int) -> Iterator[Ledger]:
    """Open an account in a temporary ledger, and charge questions to that ledger while the context is open."""
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'ledger.sqlite')}"
        with _paid_from(url), open_ledger(url, create=True) as ledger:
            ledger.open_account(
                _ACCOUNT,
                currency=Currency.PURE,
                cap=cap,
                epsilon=cap / AMOUNT_OF_ONE,
                delta=0.0,
                unit=_ROW.unit,
                neighbours=_ROW.neighbours,
            )
            yield ledger


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
        return "random words drawn while a question is charged"

    def run(self, *, effort: float) -> Finding:  # noqa: ARG002  one question is enough
        """Ask one question and observe every request for random words."""
        amount = _EPSILON * AMOUNT_OF_ONE
        query = NoisyCount.for_amount(amount, currency=Currency.PURE, protection=_ROW)
        price = query.price(Currency.PURE)
        paid: list[bool] = []
        system = entropy.random_words
        with _made_up_account(amount) as ledger:

            def watched(count: int) -> Words:
                paid.append(_under_way(ledger) >= price)
                return system(count)

            with taken_from(watched):
                self.asks(_ACCOUNT, query, np.ones(10, dtype=np.bool_))
        free = len(paid) - sum(paid)
        return Finding(
            check=self.kind,
            setting=self.setting,
            sound=bool(paid) and not free,
            shown=f"{free} of {len(paid)} requests for random words came without a charge",
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
