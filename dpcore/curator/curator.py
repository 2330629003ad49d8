"""The one place where a mechanism meets the data: charge first, then draw, then keep the result with its charge.

Prices are shares of what remains of the run's reservation. If a crash makes the run pay for a step twice, the later steps get
less, and the reservation is never exceeded.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpcore.curator.charges import Statistic, charge_draw_commit
from dpcore.errors import StepFailed
from dpcore.ledger import Lease, Ledger
from dpcore.marginals.measurements import Counts, Measurement, Selection
from dpcore.marginals.workload import MOST_WEIGHT, Axes
from dpcore.mechanisms import ExponentialMechanism, Mechanism
from dpcore.mechanisms.noise import Noise
from dpcore.mechanisms.pricing import cell_noise, least_amount, marginal_noise, number_noise
from dpcore.mechanisms.weighing import Weighing
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Protection
from dpcore.tables.counting import in_groups
from dpcore.tables.histogram import KEPT_CELLS, Histogram


@dataclass(frozen=True, eq=False)
class Offer:
    """A candidate marginal.

    All of it is public: it follows from the spec and from earlier noisy answers. No weight can break a guarantee, because the
    sensitivity is computed from the weights of the candidates.

    Attributes:
        axes: The axes of the marginal.
        expected: The whole counts that the model expects in it.
        weight: The weight of its error.
        tolerated: The error that is no reason to select it, because its measurement would have such an error too. It counts only
            where whole marginals are selected.
    """

    axes: Axes
    expected: Counts
    weight: int = 1
    tolerated: int = 0


Expected = Callable[[], Sequence[Offer]]
"""Returns the candidates. It is called only if the answer is not stored yet."""

Planned = tuple[Noise, Callable[[Histogram], Counts]]
"""The noise of a measurement, and the function that computes the true counts."""

Choose = Callable[[ExponentialMechanism, Histogram, Sequence[Offer]], Selection]

MOST_EXPECTED = 2.0**53  # the most rows that a model may expect; scores are exact far beyond

LEAST_AMOUNT = 100  # an answer that costs less would lose more than a percent of its price to rounding
LEAST_AMOUNT_EACH = 25  # per remaining answer, on average; a selection gets less, but still more than 0


class Curator:
    """Answers the queries of one run. Every answer is charged to the run's reservation before the data is read.

    An answer that the ledger already holds is returned as it is, without a charge, a draw, or the data.
    """

    def __init__(self, *, ledger: Ledger, run_id: str, protection: Protection, currency: Currency) -> None:
        self._ledger = ledger
        self._run_id = run_id
        self._protection = protection
        self._currency = currency
        self._received: tuple[Histogram, Lease] | None = None
        self._analyst: str | None = None
        self._paid: dict[str, int] = {}
        self._drawn: dict[str, int] = {}

    def protect(self, protection: Protection) -> None:
        """Continue with the limit on the rows of a unit that was chosen. Counts bounded by another limit must not be used any more."""
        self._protection = protection
        self._received = None

    def receive(self, histogram: Histogram, *, lease: Lease, analyst: str | None = None) -> None:
        """Accept the private counts, the lease under which the run is charged for using them, and the analyst whose share pays, if any.

        All noise on these counts is for the protection that they were bounded by: that of the run, or that of counts of its units.

        Raises:
            StepFailed: If it is another one.
        """
        if histogram.protection not in (self._protection, self._protection.of_one_answer):
            raise StepFailed("the rows are bounded by another protection than the run has; report this")
        self._received, self._analyst = (histogram, lease), analyst

    def coarsen(self, column: int, groups: npt.NDArray[np.intp]) -> None:
        """Add an axis: a coarser version of a column, with some of its cells merged. The groups must follow from public values alone."""
        if self._received is not None:
            self._received[0].coarsen(column, groups)

    @property
    def paid(self) -> int:
        """The amount that the answers so far have cost. A replayed run has the same; charges lost in a crash are not included."""
        return sum(self._paid.values())

    @property
    def draws(self) -> int:
        """The number of draws behind the answers so far: one per noisy count, and one per candidate of a selection."""
        return sum(self._drawn.values())

    def answered(self, step: str) -> bool:
        """Return whether the transcript holds a step's answer, so that the step needs no data."""
        return self._stored(step) is not None

    def price(self, steps: Iterable[str]) -> int:
        """Return the amount that the answers to these steps have cost."""
        return sum(self._paid[step] for step in steps)

    def exhausted(self, step: str, *, answers: int) -> bool:
        """Return whether crashes have left too little to pay for a step that has no result yet.

        Args:
            step: The step.
            answers: The number of remaining answers, including this one. Each measurement gets at least an equal part of what is left.
        """
        if self.answered(step):
            return False
        left = self._left()
        least = max(LEAST_AMOUNT_EACH, least_amount(currency=self._currency, protection=self._protection))
        return left < LEAST_AMOUNT or left < least * answers

    def expected_noise(self, share: Fraction) -> float:
        """Return the standard deviation per cell that `share` of the remaining amount buys for a marginal."""
        return self._marginal_mechanism(share).standard_deviation

    def select_marginal(self, step: str, expected: Expected, *, share: Fraction) -> Selection:
        """Select the marginal that the model gets most wrong, by the exponential mechanism.

        The score of candidate i is w_i (|x_i - e_i|_1 - t_i), with its weight w_i, the true counts x_i, the expected ones e_i and the
        tolerated error t_i: a whole number. All but x_i is public, so only x_i differs between neighbours. By the triangle inequality
        the score moves by at most w_i |x_i - x'_i|_1, and a marginal moves by at most the L1 sensitivity: no score moves by more than
        the L1 sensitivity times the largest weight (docs/decisions/0014, 0015).
        """
        return self._select(step, Statistic.MARGINAL_ERRORS, expected=expected, share=share, choose=_worst_marginal)

    def select_cell(self, step: str, expected: Expected, *, share: Fraction) -> Selection:
        """Select the single counting query, a cell of one of the marginals, that the model gets most wrong.

        The score w_i |true - expected| of a cell moves by at most the Linf sensitivity times the largest weight.
        """
        return self._select(step, Statistic.CELL_ERRORS, expected=expected, share=share, choose=_worst_cell)

    def measure_mean_error(self, step: str, expected: Expected, *, share: Fraction) -> Measurement:
        """Measure the weighted mean of the errors of expected marginals, in whole rows.

        The value is sum_i w_i |x_i - e_i|_1 // sum_i w_i, with the notation of `select_marginal`. By the triangle inequality the sum moves by
        at most sum_i w_i times the L1 sensitivity d, and a whole quotient then moves by at most d.
        """

        def exact(histogram: Histogram, offered: Sequence[Offer]) -> int:
            total = sum(int(errors.sum()) for errors in _weighted_errors(histogram, offered))
            return total // sum(offer.weight for offer in offered)

        return self._measure_error(step, Statistic.MEAN_ERROR, expected=expected, share=share, exact=exact)

    def measure_largest_error(self, step: str, expected: Expected, *, share: Fraction) -> Measurement:
        """Measure the largest error |x_i - e_i| of a single cell of expected marginals. It moves by at most the Linf sensitivity.

        Weights play no part here: every candidate counts once.
        """

        def exact(histogram: Histogram, offered: Sequence[Offer]) -> int:
            once = [Offer(offer.axes, offer.expected) for offer in offered]
            return max(int(errors.max(initial=0)) for errors in _weighted_errors(histogram, once))

        return self._measure_error(step, Statistic.LARGEST_ERROR, expected=expected, share=share, exact=exact)

    def measure_marginal(self, step: str, axes: Axes, *, share: Fraction, by_class: bool = False) -> Measurement:
        """Measure a whole marginal, with the noise that suits the account's currency.

        Gaussian noise hides the L2 norm of what a unit adds. So if the rows say which class of sizes their unit is in, as many of them count
        as keep that norm within the limit on rows, which moves the counts by no more than so many rows in one cell would.

        Args:
            step: The step.
            axes: The axes.
            share: The share of what is left.
            by_class: Whether to count by the classes of sizes, which then are the last axis of the values.
        """

        def planned() -> Planned:
            has_classes = self._received is not None and self._received[0].classes is not None
            by_norm = has_classes and self._currency is not Currency.PURE

            def exact(histogram: Histogram) -> Counts:
                return histogram.contributions(axes, by_class=by_class, by_norm=by_norm)

            return self._marginal_mechanism(share, by_norm=by_norm), exact

        return self._measure(step, Statistic.MARGINAL, axes, planned=planned)

    def measure_cell(self, step: str, axes: Axes, cell: int | None, *, share: Fraction) -> Measurement:
        """Measure one count: a cell of a marginal, or the total (no axes, cell None)."""

        def exact(histogram: Histogram) -> Counts:
            counts = histogram.marginal(axes)
            return counts if cell is None else counts.ravel()[cell : cell + 1]

        def planned() -> Planned:
            return cell_noise(self._amount(share), currency=self._currency, protection=self._counted), exact

        return self._measure(step, Statistic.COUNT, axes, cell, planned=planned)

    def measure_grid(
        self,
        step: str,
        axes: Axes,
        *,
        mechanism: Noise,
        keep: Callable[[Counts], bytes],
        weighing: Weighing | None = None,
    ) -> bytes:
        """Measure a marginal over axes of the received histogram with given noise, and return what is kept of it.

        Args:
            step: The step.
            axes: Columns, or classes of their cells that `coarsen` has added. A unit changes them as much as it changes any marginal.
            mechanism: The noise, for the sensitivity of a marginal, or of the weighed sums.
            keep: Returns the bytes to store for the noisy numbers. It must use public values only.
            weighing: Sums to measure instead of counts: of weights by the cells of the last axis, in groups by the others.

        Raises:
            StepFailed: If the noise is for another sensitivity than that of these numbers.
        """
        counted = self._counted
        if mechanism.sensitivity != (counted.sensitivity if weighing is None else weighing.sensitivity(counted)):
            raise StepFailed("the noise is not for a marginal of these rows; report this")

        def draw(table: Histogram) -> bytes:
            counts = table.marginal(axes)
            return keep(mechanism.draw(counts if weighing is None else weighing.totals(counts)))

        statistic = Statistic.MARGINAL if weighing is None else Statistic.SUMS
        return self._stored(step) or self._charge_then(step, statistic, mechanism=mechanism, draw=draw)

    def _measure(
        self, step: str, statistic: Statistic, axes: Axes, cell: int | None = None, *, planned: Callable[[], Planned]
    ) -> Measurement:
        """Measure counts. Their noise, and the function that computes them, are planned only if the answer is not stored yet."""

        def pay_and_draw() -> bytes:
            noise, exact = planned()

            def draw(histogram: Histogram) -> bytes:
                noisy = noise.draw(exact(histogram))
                return Measurement(
                    step=step, axes=axes, cell=cell, values=noisy, noise=noise.standard_deviation
                ).to_bytes()

            return self._charge_then(step, statistic, mechanism=noise, draw=draw)

        measurement = Measurement.from_bytes(self._stored(step) or pay_and_draw(), step=step)
        self._drawn[step] = measurement.values.size
        return measurement

    def _measure_error(
        self,
        step: str,
        statistic: Statistic,
        *,
        expected: Expected,
        share: Fraction,
        exact: Callable[[Histogram, Sequence[Offer]], int],
    ) -> Measurement:
        """Measure one number that follows from expected marginals."""

        def planned() -> Planned:
            offered = _checked(expected())
            sensitivity = statistic.moves(self._counted)
            noise = number_noise(self._amount(share), currency=self._currency, sensitivity=sensitivity)
            return noise, lambda histogram: np.array([exact(histogram, offered)], dtype=np.int64)

        return self._measure(step, statistic, (), 0, planned=planned)

    def _select(
        self,
        step: str,
        statistic: Statistic,
        *,
        expected: Expected,
        share: Fraction,
        choose: Choose,
    ) -> Selection:
        """Select by the exponential mechanism. The score of a candidate is a weighted error."""

        def pay_and_draw() -> bytes:
            offered = _checked(expected())
            mechanism = ExponentialMechanism.for_amount(
                self._amount(share),
                currency=self._currency,
                sensitivity=statistic.moves(self._counted) * max(offer.weight for offer in offered),
            )
            return self._charge_then(
                step,
                statistic,
                mechanism=mechanism,
                draw=lambda histogram: choose(mechanism, histogram, offered).to_bytes(),
            )

        selection = Selection.from_bytes(self._stored(step) or pay_and_draw(), step=step)
        self._drawn[step] = selection.candidates
        return selection

    def _marginal_mechanism(self, share: Fraction, *, by_norm: bool = False) -> Noise:
        return marginal_noise(self._amount(share), currency=self._currency, protection=self._counted, by_norm=by_norm)

    @property
    def _counted(self) -> Protection:
        """The protection of the received counts, which decides how far one unit moves them; before that, the run's."""
        return self._protection if self._received is None else self._received[0].protection

    def _amount(self, share: Fraction) -> int:
        return int(self._left() * share)

    def _left(self) -> int:
        """Return what remains of the reservation. Raise if the run was ended or taken over by another worker."""
        if self._received is None:
            return self._ledger.run(self._run_id).remaining
        return self._ledger.leased(self._received[1]).remaining

    def _stored(self, step: str) -> bytes | None:
        """Return the answer that the ledger already holds for a step, as in a resumed run; None if there is none."""
        done = self._ledger.operation(self._run_id, step)
        if done is None:
            return None
        self._paid[step] = done.amount
        return done.output

    def _charge_then(
        self, step: str, statistic: Statistic, *, mechanism: Mechanism, draw: Callable[[Histogram], bytes]
    ) -> bytes:
        """Charge for the step, draw its result, and store it, in that order."""
        if self._received is None:
            raise StepFailed(f"step {step} has no result yet and the data was not read; resume the run")
        histogram, lease = self._received
        output, self._paid[step] = charge_draw_commit(
            self._ledger,
            lease,
            step=step,
            statistic=statistic,
            mechanism=mechanism,
            currency=self._currency,
            analyst=self._analyst,
            draw=lambda: draw(histogram),
            keep=bytes,
        )
        return output


def _worst_marginal(mechanism: ExponentialMechanism, histogram: Histogram, offered: Sequence[Offer]) -> Selection:
    errors = np.array([errors.sum() for errors in _weighted_errors(histogram, offered)], dtype=np.int64)
    scores = errors - np.array([offer.weight * offer.tolerated for offer in offered], dtype=np.int64)
    return Selection(offered[mechanism.draw(scores)].axes, candidates=scores.size)


def _worst_cell(mechanism: ExponentialMechanism, histogram: Histogram, offered: Sequence[Offer]) -> Selection:
    errors = [errors.ravel() for errors in _weighted_errors(histogram, offered)]
    ends = np.cumsum([error.size for error in errors])
    index = mechanism.draw(np.concatenate(errors))
    marginal = int(np.searchsorted(ends, index, side="right"))
    cell = index - int(ends[marginal]) + errors[marginal].size
    return Selection(offered[marginal].axes, cell=cell, candidates=int(ends[-1]))


def _weighted_errors(histogram: Histogram, offered: Sequence[Offer]) -> Iterator[Counts]:
    """Yield the weighted error of each cell of each candidate. These are private, and used only for the scores of a draw."""
    for group in in_groups(offered, cells=lambda offer: offer.expected.size, most=KEPT_CELLS):
        histogram.prepare([offer.axes for offer in group])
        for offer in group:
            yield offer.weight * np.abs(histogram.marginal(offer.axes) - offer.expected)


def _checked(offered: Sequence[Offer]) -> Sequence[Offer]:
    """Check, before anything is charged, that there are candidates and that their scores are exact and have the right sensitivity."""
    if not offered:
        raise StepFailed("there is nothing to select from; offer at least one marginal")
    if any(np.abs(offer.expected.astype(np.float64)).sum() > MOST_EXPECTED for offer in offered):
        raise StepFailed("the model expects counts that no table has; report this")
    if any(type(offer.weight) is not int or not 1 <= offer.weight <= MOST_WEIGHT for offer in offered):
        raise StepFailed(f"the weight of a candidate is not a whole number from 1 to {MOST_WEIGHT}; report this")
    if any(type(offer.tolerated) is not int or not 0 <= offer.tolerated <= MOST_EXPECTED for offer in offered):
        raise StepFailed("the tolerated error of a candidate is not a whole number of rows; report this")
    return offered
