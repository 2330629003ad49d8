"""Audits of the steps in which a run or a question draws: each is charged before noise is drawn for it, and the largest value is paid for."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
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

EPSILONS = (0.5, 1.0, 2.0)


@contextmanager
def _curator(
    kind: type[Curator], counts: Counts, *, values: Sequence[int] = (), epsilon: float = 1.0
) -> Iterator[tuple[Curator, Ledger]]:
    """Pass a made-up table, with a group for each count, to the curator of a temporary run. All rows have the last of some values, if any."""
    codes = [np.arange(len(counts), dtype=np.uint16), *(np.full(len(counts), size - 1, np.uint16) for size in values)]
    table = LocalHistogram.of(codes=codes, counts=counts, shape=[len(counts), *values], protection=ROW)
    with temporary_run(cap=int(epsilon * AMOUNT_OF_ONE)) as (ledger, lease):
        curator = kind(ledger=ledger, run_id=RUN, protection=ROW, currency=Currency.PURE)
        curator.receive(table, lease=lease)
        yield curator, ledger


def _measured(epsilon: float, *, kind: type[Curator]) -> OneRunCheck:
    def measure(counts: Counts) -> tuple[Counts, int]:
        with _curator(kind, counts, epsilon=epsilon) as (curator, ledger):
            noisy = curator.measure_marginal("round-001/measure", (0,), share=Fraction(1)).values
            return 2 * noisy - 1, ledger.run(RUN).spent

    return OneRunCheck(setting=f"{CANARIES:,} canaries, one marginal", measure=measure)


def _charged(kind: type[Curator]) -> ChargeCheck:
    """Return the check that words for a step are drawn only after the ledger holds its charge and before its result is stored."""

    @contextmanager
    def spending() -> Iterator[tuple[Ledger, Callable[[], object]]]:
        with _curator(kind, np.zeros(1000, dtype=np.int64)) as (curator, ledger):
            yield ledger, lambda: curator.measure_marginal("round-001/measure", (0,), share=Fraction(1))

    return ChargeCheck(setting="words drawn while an operation is charged", spending=spending)


def measuring() -> Case:
    """Return the audit of `Curator.measure_marginal`, which measures every marginal of a release."""
    return Case(
        name="measuring-step",
        theorem="The coins of m canaries cannot be guessed better than by independent guesses that are each right with odds of e^epsilon to 1.",
        reference="Steinke, Nasr and Jagielski 2023, Thm. 5.2",
        prices={Currency.PURE: "the price of the mechanism that draws"},
        checks=(
            *(_measured(epsilon, kind=Curator) for epsilon in EPSILONS),
            _charged(Curator),
        ),
        bugs=(
            *(
                Bug(
                    name=f"half noise at epsilon {epsilon:g}",
                    how="the step draws noise of half the scale that it is charged for",
                    check=_measured(epsilon, kind=planted.HalfNoiseCurator),
                )
                for epsilon in EPSILONS
            ),
            Bug(
                name="missing charge",
                how="the step draws without charging the ledger",
                check=_charged(planted.FreeCurator),
            ),
            Bug(
                name="charge after the draw",
                how="the step draws first, and is charged afterwards",
                check=_charged(planted.LateCurator),
            ),
        ),
    )


class Asks(Protocol):
    """A function that answers a query and charges an account for it."""

    def __call__(self, account: str, query: NoisyCount, /, *columns: Any) -> int:
        """Return the answer."""


def _paid(asks: Asks) -> ChargeCheck:
    """Return the check that words for an answer are drawn only after the ledger holds its whole price and before the answer is stored."""
    amount = AMOUNT_OF_ONE
    query = NoisyCount.for_amount(amount, currency=Currency.PURE, protection=ROW)

    @contextmanager
    def spending() -> Iterator[tuple[Ledger, Callable[[], object]]]:
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
        checks=(_paid(ask),),
        bugs=(
            Bug(
                name="missing charge",
                how="the question is answered without charging the ledger",
                check=_paid(planted.answered_free),
            ),
            Bug(
                name="charge after the draw",
                how="the noise is drawn when the table is read, before the charge",
                check=_paid(planted.drawn_while_reading),
            ),
        ),
    )


_WEIGHTS = np.array([[-9, 1], [0, 1], [9, 1]], dtype=np.int64)
"""What a row adds by its value, the lowest, the middle or the largest: its steps from the middle, and the row."""


def _summed(weighing: type[Weighing]) -> OneRunCheck:
    """Return the check of sums by groups, with a canary of the largest value in each."""

    def measure(counts: Counts) -> tuple[Counts, int]:
        sums = weighing(_WEIGHTS)
        noise = DiscreteLaplace.for_amount(AMOUNT_OF_ONE, currency=Currency.PURE, sensitivity=sums.sensitivity(ROW))
        with _curator(Curator, counts, values=[len(_WEIGHTS)]) as (curator, ledger):
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
        checks=(_summed(Weighing),),
        bugs=(
            Bug(
                name="a sum paid as a count",
                how="the sensitivity is 1 instead of the bound of the values",
                check=_summed(planted.PaidAsCount),
            ),
            Bug(
                name="sensitivity from the data",
                how="the sensitivity is that of the values of other rows, which are all in the middle",
                check=_summed(planted.SensitivityFromOthers),
            ),
        ),
    )
