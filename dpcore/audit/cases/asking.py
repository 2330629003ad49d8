"""Questions under audit: `ask`, as it is called from Python, on a real ledger, charged before it draws."""

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
"""Of a unit of one row no rows are left out at random, so that every random word is one of the noise."""

_VARIABLE = "DPFLOW_LEDGER_URL"
_ACCOUNT = "questions"
_EPSILON = 1


class Asks(Protocol):
    """Whatever answers a query and charges an account for it."""

    def __call__(self, account: str, query: Query[int], /, *columns: Any) -> int:
        """Return the answer."""


@contextmanager
def _paid_from(url: str) -> Iterator[None]:
    """Let questions be paid from a ledger for a while."""
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
    """Open an account in a ledger of its own, which is for a while the one that questions are paid from."""
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
    """Return what was paid for operations that have no result yet."""
    runs = ledger.runs(_ACCOUNT)
    done = sum(operation.amount for run in runs for operation in ledger.transcript(run.id))
    return sum(run.spent for run in runs) - done


@dataclass(frozen=True, kw_only=True)
class AskingCheck:
    """No random word is taken for an answer before the ledger holds its whole price, and none after it is stored."""

    kind: ClassVar[str] = "charge"

    asks: Asks

    @property
    def setting(self) -> str:
        """What is checked, in words."""
        return "words taken while a question is paid"

    def run(self, *, effort: float) -> Finding:  # noqa: ARG002  one question tells all
        """Ask while every request for random words is watched."""
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
    """Return the audit of `ask`, which is how a single question is paid for."""
    return Case(
        name="asking-step",
        theorem="A sum of prices bounds the privacy loss of questions that depend on earlier answers, if each is charged before it is answered.",
        reference="Rogers, Roth, Ullman and Vadhan 2016",
        prices={Currency.PURE: "that of the mechanism that draws"},
        checks=(AskingCheck(asks=ask),),
        bugs=(
            Bug(
                name="missing charge",
                how="the question is answered, and nothing is said to the ledger",
                check=AskingCheck(asks=planted.answered_free),
            ),
            Bug(
                name="charge after the draw",
                how="the noise is drawn when the table is read, before anything is paid",
                check=AskingCheck(asks=planted.drawn_while_reading),
            ),
        ),
    )
