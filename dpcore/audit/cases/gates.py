"""Audit of the gates of online sessions: what they answer reveals no more than their charge, which comes before their noise."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpcore.audit import planted
from dpcore.audit.case import Bug, Case
from dpcore.audit.cases.outputs import event, told, yes_or_no
from dpcore.audit.cases.sparse_vectors import distribution, probabilities
from dpcore.audit.checks import Draw, EventCheck, Finding, StreamCheck, charge_finding
from dpcore.audit.made_up import ROW, temporary_account
from dpcore.curator.gate import CountQuery, Gate, Gatekeeper
from dpcore.mechanisms.sparse_vector import SparseVector
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.tables.histogram import Histogram, LocalHistogram
from dpcore.textbook.online import OnlineSession, Terms

EPSILON = 4.0
DRAWS, MORE_DRAWS, FEWER_DRAWS = 12_000, 30_000, 4_000

THRESHOLD = 5
ROWS = 10
BELOW, ABOVE = ROWS - (THRESHOLD - 1), ROWS + THRESHOLD
"""Expected counts: one more row makes the error of the first larger, and that of the second smaller."""

EXPECTED = (BELOW, BELOW, BELOW, ABOVE)
ERRORS = (THRESHOLD - 1, THRESHOLD - 1, THRESHOLD - 1, THRESHOLD)

_QUERY = CountQuery((0,), np.array([True, False]))
_RUN = "audit"
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


def _event(opens: Opens, *, paid: SparseVector, draws: int = DRAWS) -> EventCheck:
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
    return probabilities(scales, [error - THRESHOLD for error in ERRORS], positives=1)


@dataclass(frozen=True, kw_only=True)
class SessionChargeCheck:
    """Check that a session draws random words only while a charge has no result yet: for the total, for gates and for counts."""

    kind: ClassVar[str] = "charge"

    gatekeeper: type[Gatekeeper]

    @property
    def setting(self) -> str:
        """The input that is checked, in words."""
        return "words drawn in a session for a hard query"

    def run(self, *, effort: float) -> Finding:  # noqa: ARG002  one session is enough
        """Open a session, ask one hard query, and observe every request for random words."""
        histogram = _table(1_000_000)
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
        with temporary_account("sessions", cap=_CAP) as ledger:
            ledger.reserve(_RUN, account="sessions", amount=_CAP, claim="audit")
            lease = ledger.lease(_RUN)
            keeper = self.gatekeeper(ledger=ledger, currency=Currency.PURE, histogram=histogram, lease=lease)

            def ask() -> None:
                OnlineSession((2,), terms=terms, ledger=ledger, run_id=_RUN, gatekeeper=keeper).ask(_QUERY)

            def charged() -> bool:
                return ledger.run(_RUN).spent > sum(operation.amount for operation in ledger.transcript(_RUN))

            return charge_finding(self.setting, ask, charged=charged)


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
            SessionChargeCheck(gatekeeper=Gatekeeper),
        ),
        bugs=(
            Bug(
                name="gate on the true error",
                how="the gate compares the true error with the threshold, without noise",
                check=_event(_true(sound), paid=sound, draws=FEWER_DRAWS),
            ),
            Bug(
                name="errors as monotone counts",
                how="errors move both ways, but the noise is for values that move one way",
                check=_event(_noisy(monotone), paid=sound, draws=MORE_DRAWS),
            ),
            Bug(
                name="gate without a charge",
                how="the gate is opened without charging the ledger",
                check=SessionChargeCheck(gatekeeper=planted.FreeGatekeeper),
            ),
            Bug(
                name="gate charged too late",
                how="the noise of the threshold is drawn before the charge",
                check=SessionChargeCheck(gatekeeper=planted.LateGatekeeper),
            ),
        ),
    )
