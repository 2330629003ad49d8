"""The one place where a mechanism meets the data: charge first, then draw, then keep the result with its charge.

Prices are given as a share of what is left of the run's reservation. A step that a crash made the run pay for twice thus takes
its money from the steps that follow, and the reservation is never exceeded.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpcore.errors import StepFailed
from dpcore.ledger import Lease, Ledger
from dpcore.measurements import Counts, Measurement, Selection
from dpcore.mechanisms import ExponentialMechanism, Mechanism
from dpcore.mechanisms.currency_noise import Noise
from dpcore.mechanisms.pricing import cell_noise, least_amount, marginal_noise
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Protection
from dpcore.tables.counting import in_groups
from dpcore.tables.histogram import KEPT_CELLS, Histogram
from dpcore.workload import MOST_WEIGHT, Axes


@dataclass(frozen=True, eq=False)
class Offer:
    """A marginal that may be selected: its axes, the whole counts that a model expects there, and how much an error in it matters.

    All of it is public: it follows from the spec and from earlier noisy answers. No weight can break a guarantee, since the
    sensitivity follows from the weights on offer.
    """

    axes: Axes
    expected: Counts
    weight: int = 1


Expected = Callable[[], Sequence[Offer]]
"""What is on offer; asked for only if the answer is not stored yet."""

MOST_EXPECTED = 2.0**53  # rows that a model may expect: scores are exact far beyond

LEAST_AMOUNT = 100  # an answer that costs less would lose more than a percent of its price to rounding
LEAST_AMOUNT_EACH = 25  # for each answer to come, on average: a selection, which gets less, still gets something


class Curator:
    """Answers for one run: every answer is charged to the run's reservation before the data is looked at.

    An answer that the ledger already holds is given again as it is, without a charge, a draw, or the data.
    """

    def __init__(self, *, ledger: Ledger, run_id: str, protection: Protection, currency: Currency) -> None:
        self._ledger = ledger
        self._run_id = run_id
        self._protection = protection
        self._currency = currency
        self._received: tuple[Histogram, Lease] | None = None
        self._paid: dict[str, int] = {}
        self._drawn: dict[str, int] = {}

    def receive(self, histogram: Histogram, *, lease: Lease) -> None:
        """Take the private counts in, with the right to charge the run for looking at them."""
        self._received = histogram, lease

    def coarsen(self, column: int, groups: npt.NDArray[np.intp]) -> None:
        """Offer one axis more: a column with some of its cells taken together. Which ones must follow from public values alone."""
        if self._received is not None:
            self._received[0].coarsen(column, groups)

    @property
    def paid(self) -> int:
        """The amount that the answers given so far have cost: the same when a run is replayed, and without what a crash lost."""
        return sum(self._paid.values())

    @property
    def draws(self) -> int:
        """How many draws the answers given so far were made of: one for each noisy count, and for each candidate of a selection."""
        return sum(self._drawn.values())

    def answered(self, step: str) -> bool:
        """Tell whether the transcript has a step's answer, so that it needs no data."""
        return self._stored(step) is not None

    def price(self, steps: Iterable[str]) -> int:
        """Return the amount that the answers to some steps have cost."""
        return sum(self._paid[step] for step in steps)

    def exhausted(self, step: str, *, answers: int) -> bool:
        """Tell whether interruptions have left too little to do this step, which has no result yet.

        Args:
            step: What would be done.
            answers: How many are still to come, with this one; each measurement gets at least an equal part of what is left.
        """
        if self.answered(step):
            return False
        left = self._left()
        least = max(LEAST_AMOUNT_EACH, least_amount(currency=self._currency, protection=self._protection))
        return left < LEAST_AMOUNT or left < least * answers

    def expected_noise(self, share: Fraction) -> float:
        """Return the standard deviation per cell that `share` of what is left would buy for a marginal."""
        return self._marginal_mechanism(share).standard_deviation

    def select_marginal(self, step: str, expected: Expected, *, share: Fraction) -> Selection:
        """Select the marginal that the model gets most wrong, by the exponential mechanism.

        The score of offer i is w_i |x_i - e_i|_1, with its weight w_i, the true counts x_i and the expected ones e_i: a whole number.
        Weights and expectations are public, so only x_i differs between neighbours. By the triangle inequality the score moves by at
        most w_i |x_i - x'_i|_1, and a marginal moves by at most the L1 sensitivity: no score moves by more than the L1 sensitivity
        times the largest weight on offer (docs/decisions/0015).
        """

        def pay_and_draw() -> bytes:
            offered = _checked(expected())
            mechanism = self._selecting(offered, share, sensitivity=self._protection.sensitivity.l1)

            def draw(histogram: Histogram) -> bytes:
                scores = np.array([errors.sum() for errors in _weighted_errors(histogram, offered)], dtype=np.int64)
                return Selection(offered[mechanism.draw(scores)].axes, candidates=scores.size).to_bytes()

            return self._charge_then(step, mechanism, draw)

        selection = Selection.from_bytes(self._stored(step) or pay_and_draw(), step=step)
        self._drawn[step] = selection.candidates
        return selection

    def select_cell(self, step: str, expected: Expected, *, share: Fraction) -> Selection:
        """Select the one counting query, a cell of one of the marginals, that the model gets most wrong.

        The score w_i |true - expected| of a cell moves by at most the Linf sensitivity times the largest weight on offer.
        """

        def pay_and_draw() -> bytes:
            offered = _checked(expected())
            mechanism = self._selecting(offered, share, sensitivity=self._protection.sensitivity.linf)

            def draw(histogram: Histogram) -> bytes:
                errors = [errors.ravel() for errors in _weighted_errors(histogram, offered)]
                ends = np.cumsum([error.size for error in errors])
                index = mechanism.draw(np.concatenate(errors))
                candidates = int(ends[-1])
                marginal = int(np.searchsorted(ends, index, side="right"))
                cell = index - int(ends[marginal]) + errors[marginal].size
                return Selection(offered[marginal].axes, cell=cell, candidates=candidates).to_bytes()

            return self._charge_then(step, mechanism, draw)

        selection = Selection.from_bytes(self._stored(step) or pay_and_draw(), step=step)
        self._drawn[step] = selection.candidates
        return selection

    def measure_marginal(self, step: str, axes: Axes, *, share: Fraction) -> Measurement:
        """Measure a whole marginal, with the noise that suits the account's currency."""
        return self._measure(step, lambda: self._marginal_mechanism(share), axes, cell=None)

    def measure_cell(self, step: str, axes: Axes, cell: int | None, *, share: Fraction) -> Measurement:
        """Measure one count: a cell of a marginal, or the total (axes empty, cell None)."""

        def mechanism() -> Noise:
            return cell_noise(self._amount(share), currency=self._currency, protection=self._protection)

        return self._measure(step, mechanism, axes, cell=cell)

    def _measure(self, step: str, mechanism_of: Callable[[], Noise], axes: Axes, *, cell: int | None) -> Measurement:
        def pay_and_draw() -> bytes:
            mechanism = mechanism_of()

            def draw(histogram: Histogram) -> bytes:
                true = histogram.marginal(axes)
                noisy = mechanism.draw(true if cell is None else true.ravel()[cell : cell + 1])
                return Measurement(
                    step=step, axes=axes, cell=cell, values=noisy, noise=mechanism.standard_deviation
                ).to_bytes()

            return self._charge_then(step, mechanism, draw)

        measurement = Measurement.from_bytes(self._stored(step) or pay_and_draw(), step=step)
        self._drawn[step] = measurement.values.size
        return measurement

    def _selecting(self, offered: Sequence[Offer], share: Fraction, *, sensitivity: int) -> ExponentialMechanism:
        """Return the mechanism for weighted errors, of which one without its weight moves by at most `sensitivity`."""
        return ExponentialMechanism.for_amount(
            self._amount(share),
            currency=self._currency,
            sensitivity=sensitivity * max(offer.weight for offer in offered),
        )

    def _marginal_mechanism(self, share: Fraction) -> Noise:
        return marginal_noise(self._amount(share), currency=self._currency, protection=self._protection)

    def _amount(self, share: Fraction) -> int:
        return int(self._left() * share)

    def _left(self) -> int:
        """Return what is left of the reservation; a worker whose run was ended or taken over finds out here."""
        if self._received is None:
            return self._ledger.run(self._run_id).remaining
        return self._ledger.leased(self._received[1]).remaining

    def _stored(self, step: str) -> bytes | None:
        done = self._ledger.operation(self._run_id, step)
        if done is None:
            return None
        self._paid[step] = done.amount
        return done.output

    def _charge_then(self, step: str, mechanism: Mechanism, draw: Callable[[Histogram], bytes]) -> bytes:
        """Pay for the step, draw its result, and store it: in that order."""
        if self._received is None:
            raise StepFailed(f"step {step} has no result yet and the data was not read; resume the run")
        histogram, lease = self._received
        operation = self._ledger.charge(
            lease, step=step, amount=mechanism.price(self._currency), mechanism=mechanism.describe()
        )
        output = draw(histogram)
        self._ledger.commit(operation, output)
        self._paid[step] = operation.amount
        return output


def _weighted_errors(histogram: Histogram, offered: Sequence[Offer]) -> Iterator[Counts]:
    """Yield, for the scores of a draw only, how far each cell of each offer is from the truth, times the weight: private."""
    for group in in_groups(offered, cells=lambda offer: offer.expected.size, most=KEPT_CELLS):
        histogram.prepare([offer.axes for offer in group])
        for offer in group:
            yield offer.weight * np.abs(histogram.marginal(offer.axes) - offer.expected)


def _checked(offered: Sequence[Offer]) -> Sequence[Offer]:
    """Refuse, before anything is paid, to select from nothing or by what no score of the right type and sensitivity can be made of."""
    if not offered:
        raise StepFailed("there is nothing to select from; offer at least one marginal")
    if any(np.abs(offer.expected.astype(np.float64)).sum() > MOST_EXPECTED for offer in offered):
        raise StepFailed("the model expects counts that no table has; report this")
    if any(type(offer.weight) is not int or not 1 <= offer.weight <= MOST_WEIGHT for offer in offered):
        raise StepFailed(f"a weight on offer is no whole number from 1 to {MOST_WEIGHT}; report this")
    return offered
