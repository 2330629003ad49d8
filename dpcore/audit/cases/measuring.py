"""Audit of a run's measuring step: on a real ledger, every measurement must be charged before noise is drawn for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction

import numpy as np

from dpcore.audit import planted
from dpcore.audit.case import Bug, Case
from dpcore.audit.checks import CANARIES, ChargeCheck, Counts, OneRunCheck, scaled
from dpcore.audit.made_up import ROW, RUN, temporary_run
from dpcore.curator.curator import Curator
from dpcore.ledger import Ledger
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.tables.histogram import LocalHistogram

EPSILONS = (0.5, 1.0, 2.0)

_STEP = "round-001/measure"


@contextmanager
def _made_up_run(counts: Counts, *, epsilon: float, curator: type[Curator]) -> Iterator[tuple[Curator, Ledger]]:
    """Pass a made-up table to the curator of a temporary run."""
    codes = np.arange(len(counts), dtype=np.uint16)
    histogram = LocalHistogram.of(codes=[codes], counts=counts, shape=[len(counts)], protection=ROW)
    cap = int(epsilon * AMOUNT_OF_ONE)
    with temporary_run(cap=cap) as (ledger, lease):
        step = curator(ledger=ledger, run_id=RUN, protection=ROW, currency=Currency.PURE)
        step.receive(histogram, lease=lease)
        yield step, ledger


def _one_run(epsilon: float, *, curator: type[Curator]) -> OneRunCheck:
    def measure(counts: Counts) -> tuple[Counts, int]:
        with _made_up_run(counts, epsilon=epsilon, curator=curator) as (step, ledger):
            noisy = step.measure_marginal(_STEP, (0,), share=Fraction(1)).values
            return 2 * noisy - 1, ledger.run(RUN).spent

    return OneRunCheck(setting=f"{CANARIES:,} canaries, one marginal", measure=measure)


def _charge(curator: type[Curator]) -> ChargeCheck:
    """Return the check that words for a step are drawn only after the ledger holds its charge and before its result is stored."""

    @contextmanager
    def spending(effort: float) -> Iterator[tuple[Ledger, Callable[[], object]]]:
        counts = np.zeros(scaled(1000, min(effort, 1.0)), dtype=np.int64)
        with _made_up_run(counts, epsilon=1.0, curator=curator) as (step, ledger):
            yield ledger, lambda: step.measure_marginal(_STEP, (0,), share=Fraction(1))

    return ChargeCheck(setting="words drawn while an operation is charged", spending=spending)


def measuring() -> Case:
    """Return the audit of `Curator.measure_marginal`, which measures every marginal of a release."""
    return Case(
        name="measuring-step",
        theorem="The coins of m canaries cannot be guessed better than by independent guesses that are each right with odds of e^epsilon to 1.",
        reference="Steinke, Nasr and Jagielski 2023, Thm. 5.2",
        prices={Currency.PURE: "the price of the mechanism that draws"},
        checks=(
            *(_one_run(epsilon, curator=Curator) for epsilon in EPSILONS),
            _charge(Curator),
        ),
        bugs=(
            *(
                Bug(
                    name=f"half noise at epsilon {epsilon:g}",
                    how="the step draws noise of half the scale that it is charged for",
                    check=_one_run(epsilon, curator=planted.HalfNoiseCurator),
                )
                for epsilon in EPSILONS
            ),
            Bug(
                name="missing charge",
                how="the step draws without charging the ledger",
                check=_charge(planted.FreeCurator),
            ),
            Bug(
                name="charge after the draw",
                how="the step draws first, and is charged afterwards",
                check=_charge(planted.LateCurator),
            ),
        ),
    )
