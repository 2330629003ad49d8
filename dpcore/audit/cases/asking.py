"""Audits of answers that are bought: each must be charged before noise is drawn for it, and the largest value must be paid for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from dpcore.audit import planted
from dpcore.audit.case import Bug, Case
from dpcore.audit.checks import CANARIES, ChargeCheck, Counts, OneRunCheck
from dpcore.audit.made_up import ACCOUNT, ROW, RUN, temporary_account, temporary_run
from dpcore.curator.ask import ask
from dpcore.curator.curator import Curator
from dpcore.ledger import Ledger
from dpcore.mechanisms.noise import DiscreteLaplace
from dpcore.mechanisms.noisy_count import NoisyCount
from dpcore.mechanisms.weighing import Weighing
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.tables.histogram import LocalHistogram

_EPSILON = 1


class Asks(Protocol):
    """A function that answers a query and charges an account for it."""

    def __call__(self, account: str, query: NoisyCount, /, *columns: Any) -> int:
        """Return the answer."""


def _charge(asks: Asks) -> ChargeCheck:
    """Return the check that words for an answer are drawn only after the ledger holds its whole price and before the answer is stored."""
    amount = _EPSILON * AMOUNT_OF_ONE
    query = NoisyCount.for_amount(amount, currency=Currency.PURE, protection=ROW)

    @contextmanager
    def spending(_effort: float) -> Iterator[tuple[Ledger, Callable[[], object]]]:
        with temporary_account(cap=amount) as ledger:
            yield ledger, lambda: asks(ACCOUNT, query, np.ones(10, dtype=np.bool_))

    price = query.price(Currency.PURE)
    return ChargeCheck(setting="words drawn while a question is charged", spending=spending, least=price)


def asking() -> Case:
    """Return the audit of `ask`, which charges and answers a single question."""
    return Case(
        name="asking-step",
        theorem="The sum of prices bounds the privacy loss of adaptively chosen questions, if each is charged before it is answered.",
        reference="Rogers, Roth, Ullman and Vadhan 2016",
        prices={Currency.PURE: "the price of the mechanism that draws"},
        checks=(_charge(ask),),
        bugs=(
            Bug(
                name="missing charge",
                how="the question is answered without charging the ledger",
                check=_charge(planted.answered_free),
            ),
            Bug(
                name="charge after the draw",
                how="the noise is drawn when the table is read, before the charge",
                check=_charge(planted.drawn_while_reading),
            ),
        ),
    )


_WEIGHTS = np.array([[-9, 1], [0, 1], [9, 1]], dtype=np.int64)
"""What a row adds by its value, the lowest, the middle or the largest: its steps from the middle, and the row."""


def _one_run(weighing: type[Weighing]) -> OneRunCheck:
    """Return the check of sums by groups, with a canary of the largest value in each."""

    def measure(counts: Counts) -> tuple[Counts, int]:
        amount, sums = _EPSILON * AMOUNT_OF_ONE, weighing(_WEIGHTS)
        codes = [np.arange(len(counts), dtype=np.uint16), np.full(len(counts), len(_WEIGHTS) - 1, dtype=np.uint16)]
        table = LocalHistogram.of(codes=codes, counts=counts, shape=[len(counts), len(_WEIGHTS)], protection=ROW)
        noise = DiscreteLaplace.for_amount(amount, currency=Currency.PURE, sensitivity=sums.sensitivity(ROW))
        with temporary_run(cap=amount) as (ledger, lease):
            curator = Curator(ledger=ledger, run_id=RUN, protection=ROW, currency=Currency.PURE)
            curator.receive(table, lease=lease)
            stored = curator.measure_grid(
                "ask/1", (0, 1), mechanism=noise, keep=lambda noisy: noisy.tobytes(), weighing=sums
            )
            noisy = np.frombuffer(stored, dtype=np.int64).reshape(-1, 2)
            return (np.abs(noisy) - np.abs(noisy - _WEIGHTS[-1])).sum(axis=1), ledger.run(RUN).spent

    return OneRunCheck(setting=f"{CANARIES:,} canaries of the largest value", measure=measure)


def bought_sums() -> Case:
    """Return the audit of the sums and means that a session sells."""
    return Case(
        name="bought-sums",
        theorem="Sums of whole weights over disjoint groups move by at most the norm of one value's weights, times the rows of a unit.",
        reference="Dwork, McSherry, Nissim and Smith 2006; Steinke, Nasr and Jagielski 2023, Thm. 5.2",
        prices={Currency.PURE: "the price of the mechanism that draws"},
        checks=(_one_run(Weighing),),
        bugs=(
            Bug(
                name="a sum paid as a count",
                how="the sensitivity is 1 instead of the bound of the values",
                check=_one_run(planted.PaidAsCount),
            ),
            Bug(
                name="sensitivity from the data",
                how="the sensitivity is that of the values of other rows, which are all in the middle",
                check=_one_run(planted.SensitivityFromOthers),
            ),
        ),
    )
