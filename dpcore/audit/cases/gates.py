"""Audit of the gates of online sessions: what they answer reveals no more than their charge, which comes before their noise."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from dpcore.audit import planted
from dpcore.audit.case import Bug, Case
from dpcore.audit.cases.outputs import event, told, yes_or_no
from dpcore.audit.cases.sparse_vectors import distribution, probabilities
from dpcore.audit.checks import ChargeCheck, Draw, EventCheck, StreamCheck
from dpcore.audit.made_up import ROW, RUN, temporary_run
from dpcore.curator.gate import CountQuery, Gate, Gatekeeper
from dpcore.ledger import Ledger
from dpcore.mechanisms.sparse_vector import SparseVector
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.tables.histogram import Histogram, LocalHistogram
from dpcore.textbook.online import OnlineSession, Terms

EPSILON = 4.0
THRESHOLD = 5
ROWS = 10
EXPECTED = (*[ROWS - (THRESHOLD - 1)] * 3, ROWS + THRESHOLD)
"""Expected counts: one more row makes the errors of the first three larger, and that of the last smaller."""

_QUERY = CountQuery((0,), np.array([True, False]))
_CAP = 10 * AMOUNT_OF_ONE

Opens = Callable[[Histogram], Gate]


def _table(rows: int, others: int = 0) -> LocalHistogram:
    counts = np.array([rows, others], dtype=np.int64)
    return LocalHistogram.of(codes=[np.arange(2, dtype=np.uint16)], counts=counts, shape=[2], protection=ROW)


def _noisy(mechanism: SparseVector) -> Opens:
    return lambda histogram: Gate(histogram, mechanism.begin(THRESHOLD))


def _true(mechanism: SparseVector) -> Opens:
    return lambda histogram: planted.TrueErrorGate(histogram, mechanism, threshold=THRESHOLD)


def _answers(opens: Opens, rows: int) -> Draw:
    """Return draws of gates on a table, each encoded by its answers, up to the first positive."""
    histogram = _table(rows)

    def compared() -> Iterator[bool]:
        gate = opens(histogram)
        for expected in EXPECTED:
            answer = gate.compare(_QUERY, expected=expected)
            yield answer
            if answer or not gate.is_open:
                return

    return told(lambda: yes_or_no(compared()))


def _event(opens: Opens, *, paid: SparseVector, draws: int = 12_000) -> EventCheck:
    return event(
        "errors that move both ways",
        lambda rows: _answers(opens, rows),
        tables=(ROWS, ROWS + 1),
        paid=paid,
        draws=draws,
    )


def _exact_probabilities() -> dict[int, float]:
    """Return the probabilities at the scales of the theorem: D / e1 and 2 D / e2, e1 : e2 = 1 : 2^(2/3)."""
    ratio = 2 ** (2 / 3)
    scales = (1 + ratio) / EPSILON, 2 * (1 + 1 / ratio) / EPSILON
    return probabilities(scales, [abs(ROWS - expected) - THRESHOLD for expected in EXPECTED], positives=1)


def _charge(gatekeeper: type[Gatekeeper]) -> ChargeCheck:
    """Return the check that a session draws words only while a charge has no result yet: for the total, for gates and for counts."""

    @contextmanager
    def spending() -> Iterator[tuple[Ledger, Callable[[], object]]]:
        terms = Terms(
            alpha=0.3,
            beta=1e-9,
            queries=10,
            restarts=0,
            cells=2,
            amount=_CAP,
            currency=Currency.PURE,
            protection=ROW,
        )
        with temporary_run(cap=_CAP) as (ledger, lease):
            keeper = gatekeeper(ledger=ledger, currency=Currency.PURE, histogram=_table(1_000_000), lease=lease)

            def ask() -> None:
                OnlineSession((2,), terms=terms, ledger=ledger, run_id=RUN, gatekeeper=keeper).ask(_QUERY)

            yield ledger, ask

    return ChargeCheck(setting="words drawn in a session for a hard query", spending=spending)


def gates() -> Case:
    """Return the audit of the gates of online sessions."""
    sound = SparseVector(epsilon=EPSILON, sensitivity=1, positives=1, monotone=False)
    monotone = SparseVector(epsilon=EPSILON, sensitivity=1, positives=1, monotone=True)
    first = _event(_noisy(sound), paid=sound)
    return Case(
        name="gate-step",
        theorem="A gate that reports which errors of public expectations stay below a threshold, until one does not, is epsilon-DP: an error |true - expected| moves by no more than the count.",
        reference="Hardt and Rothblum 2010; Lyu, Su and Li 2017",
        prices=dict.fromkeys(Currency, "the price of a sparse vector with one positive"),
        checks=(
            first,
            distribution(first, _exact_probabilities()),
            StreamCheck(setting="gates", draw=_answers(_noisy(sound), ROWS)),
            _charge(Gatekeeper),
        ),
        bugs=(
            Bug(
                name="gate on the true error",
                how="the gate compares the true error with the threshold, without noise",
                check=_event(_true(sound), paid=sound, draws=9_000),
            ),
            Bug(
                name="errors as monotone counts",
                how="errors move both ways, but the noise is for values that move one way",
                check=_event(_noisy(monotone), paid=sound, draws=30_000),
            ),
            Bug(
                name="gate without a charge",
                how="the gate is opened without charging the ledger",
                check=_charge(planted.FreeGatekeeper),
            ),
            Bug(
                name="gate charged too late",
                how="the noise of the threshold is drawn before the charge",
                check=_charge(planted.LateGatekeeper),
            ),
        ),
    )
