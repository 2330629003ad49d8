"""Private multiplicative weights on single counting queries, after Hardt and Rothblum 2010."""

import math
from fractions import Fraction

import numpy as np

from dpcore.curator.curator import Curator, Offer
from dpcore.errors import SpecError
from dpcore.marginals.measurements import Measurement, Selection
from dpcore.marginals.workload import Axes, Workload
from dpcore.marginals.zeros import NO_ZEROS, Zeros
from dpcore.models import DenseModel, Weights
from dpcore.models.fitting import SignedSteps, counted_total
from dpcore.strategies.strategy import NoiseOf, Outline, Strategy, step_name


class Pmw(Strategy):
    """Select the worst query, compare its error with 2 alpha, and update by the sign of the error.

    The queries are the cells of the workload's marginals. In round t, with the model p of n rows:

    1. the exponential mechanism selects a query q by the score |<q, p> - <q, x>|;
    2. y = <q, p> - <q, x> + Laplace noise; if |y| <= 2 alpha n the model is accurate enough, and the run ends;
    3. otherwise p <- p (1 - s eta q), renormalised, with s the sign of y and eta = sqrt(ln |X| / T).

    All counts are whole. n is a noisy total, measured first. Each of the 2 T + 1 answers gets an equal share of the budget.

    Reference: Hardt and Rothblum 2010; Hardt, Ligett and McSherry 2012.
    """

    single_counts = True
    model: DenseModel

    def __init__(
        self, shape: tuple[int, ...], workload: Workload, *, rounds: int, alpha: float, zeros: Zeros = NO_ZEROS
    ) -> None:
        super().__init__(shape)
        cells = math.prod(shape)
        self._steps = SignedSteps.of(shape, rounds=rounds, alpha=alpha)
        if self._steps.rate >= 1:
            least = math.floor(math.log(cells)) + 1
            raise SpecError(
                f"pmw on {cells:,} cells needs at least {least} rounds; write `rounds: {4 * least}` in `strategy`"
            )
        self.model = DenseModel(shape, total=1.0, zeros=zeros)
        self._workload = workload
        self._rounds = rounds
        self._functions: dict[Axes, Weights] = {}

    @property
    def rounds(self) -> int:
        """The most queries that are selected."""
        return self._rounds

    @property
    def answers(self) -> int:
        """One for the total, and a selection and a measurement in each round."""
        return 2 * self._rounds + 1

    @property
    def smallest_share(self) -> Fraction:
        """The share of each answer: all are equal."""
        return Fraction(1, self.answers)

    def outline(self, rows: float, noise_of: NoiseOf) -> Outline:
        """Return the plan, which does not depend on the number of rows: the total comes first."""
        del rows, noise_of
        share, rounds = self.smallest_share, self._rounds
        return Outline(
            ((share,),),
            rounds=rounds,
            rest=1 - share,
            selecting=Fraction(1, 2),
            room=None,
            candidates=self._workload.marginals,
            offered=(self._workload.marginals,),
            model_cells=None,
        )

    def begin(self, curator: Curator) -> None:
        """Measure the number of rows."""
        measured = curator.measure_cell("total", (), None, share=self.smallest_share)
        self.measurements.append(measured)
        self.model.rescale(counted_total(measured))

    def select(self, curator: Curator, number: int) -> Selection:
        """Select the query with the largest error."""
        share = Fraction(1, 2 * (self._rounds - number + 1))
        return curator.select_cell(step_name(number, "select"), self._expected, share=share)

    def _expected(self) -> list[Offer]:
        marginals = self.model.marginals(self._workload.marginals)
        return [Offer(axes, np.rint(marginal).astype(np.int64)) for axes, marginal in marginals.items()]

    def measure(self, curator: Curator, number: int, selection: Selection) -> Measurement:
        """Measure the selected count."""
        share = Fraction(1, 2 * (self._rounds - number) + 1)
        return curator.measure_cell(step_name(number, "measure"), selection.axes, selection.cell, share=share)

    def update(self, number: int, measurement: Measurement) -> None:
        """Finish if the noisy error is within 2 alpha; otherwise move the query's cells against its sign."""
        del number  # the update is the same in every round
        self.measurements.append(measurement)
        self.finished = not self._steps.take(self.model, self._functions, measurement)

    def conclude(self) -> None:
        """Keep the model of the last round."""
