"""Multiplicative weights with the exponential mechanism, on whole marginals."""

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpcore.curator.curator import Curator, Offer
from dpcore.measurements import Measurement, Selection
from dpcore.models import DenseModel, Evidence, Functions, refine
from dpcore.models.evidence import LEAST_NOISE
from dpcore.models.fitting import DENSE_PER_CELL, first_dense, last_dense
from dpcore.strategies.strategy import NOTHING, Given, NoiseOf, Outline, Strategy, column_step, step_name
from dpcore.workload import Axes, Workload

# Tuned on Adult (seven columns) and on two other census and hospital tables, see docs/decisions/0006.
SELECTING = Fraction(1, 20)  # the selection's share of a round's budget
LEAST_FIRST, MOST_FIRST = 0.05, 0.5  # limits of the one-way marginals' share of the whole budget
MOST_ROUNDS, MOST_ROUNDS_PURE = 60, 20  # noise grows with the root of the rounds in zCDP, and linearly in pure epsilon
ROOM = 2.0  # a marginal is worth measuring while its expected noise in all cells is below this many times the rows
ROUND_TRIES = 5  # evaluations of the model


class Mwem(Strategy):
    """Measure every column, then round by round the marginal that the model gets most wrong, then fit all measurements.

    1. All one-way marginals make the first model. Their share of the budget follows from their sizes.
    2. Each of T equal rounds selects a marginal by the exponential mechanism, with the score weight x |true - expected|_1, measures it,
       and takes a few multiplicative steps on all measurements so far. Candidates are the marginals whose expected noise does not swamp
       the signal, only the largest ones of the same weight, and none again before all were measured as often. Pairs with the workload's
       target come first, up to half of the rounds.
    3. At the end the model is rebuilt from the first one, with all measurements at once, until it fits them as well as the true
       distribution would.

    The curator chooses the noise: Laplace in a pure account, Gaussian in a zCDP account.

    Reference: Hardt, Ligett and McSherry 2012 (MWEM); McKenna, Mullins, Sheldon and Miklau 2022 (AIM) for whole marginals and the first
    one-way round.
    """

    model: DenseModel

    def __init__(  # noqa: PLR0913  all that a strategy depends on
        self,
        names: Sequence[str],
        shape: tuple[int, ...],
        workload: Workload,
        *,
        rounds: int | None,
        pure: bool,
        given: Given = NOTHING,
    ) -> None:
        super().__init__(shape, given=given)
        self.model = DenseModel(shape, total=1.0)
        self._names = names
        workload = workload.telling(shape)
        parts = workload.parts()
        self._candidates = tuple(axes for axes in parts if len(axes) > 1) or parts
        self._weights = workload.largest_weights()
        self._target_pairs = workload.target_pairs()
        self._cells = {axes: math.prod(shape[axis] for axis in axes) for axes in self._candidates}
        together = sum(len(axes) > 1 for axes in workload.marginals) or len(workload.marginals)
        self._rounds = rounds or min(MOST_ROUNDS_PURE if pure else MOST_ROUNDS, together)
        shares = _first_shares(shape, list(self._cells.values()), rounds=self._rounds, pure=pure)
        self._first = [Fraction(0) if axis in given.counts else share for axis, share in enumerate(shares)]
        self._evidence = Evidence()
        self._measured: Counter[Axes] = Counter()
        self._base: Functions = {}
        self._now: Functions = {}

    @property
    def rounds(self) -> int:
        """The number of marginals that are selected."""
        return self._rounds

    @property
    def answers(self) -> int:
        """One per column, and a selection and a measurement in each round."""
        return len(self.model.shape) - len(self._given.counts) + 2 * self._rounds

    @property
    def smallest_share(self) -> Fraction:
        """The share of the smallest column, or of a round's marginal."""
        bought = [share for axis, share in enumerate(self._first) if axis not in self._given.counts]
        return min([*bought, (1 - SELECTING) * (1 - sum(self._first)) / self._rounds])

    def outline(self, rows: float, noise_of: NoiseOf) -> Outline:
        """Return the plan, which does not depend on the number of rows."""
        del rows, noise_of
        shares = enumerate(self._first)
        first = tuple(() if axis in self._given.counts else (share,) for axis, share in shares)
        rest = Fraction(1) - sum(self._first)
        return Outline(
            first,
            rounds=self._rounds,
            rest=rest,
            selecting=SELECTING,
            room=ROOM,
            candidates=self._candidates,
            model_cells=None,
        )

    def begin(self, curator: Curator) -> None:
        """Measure every column and build the first model."""
        left = Fraction(1)
        for axis, share in enumerate(self._first):
            if (known := self._given.counts.get(axis)) is not None:
                self._learn(known)
                continue
            self._learn(curator.measure_marginal(column_step(axis, self._names[axis]), (axis,), share=share / left))
            left -= share
        self._base = self._now = first_dense(self.model, self._evidence)

    def select(self, curator: Curator, number: int) -> Selection:
        """Select the candidate with the largest error."""
        rounds_left = self._rounds - number + 1

        def expected() -> list[Offer]:
            noise = curator.expected_noise((1 - SELECTING) / rounds_left)
            marginals = self.model.marginals(self._affordable(number, noise))
            return [
                Offer(axes, np.rint(marginal).astype(np.int64), self._weights[axes])
                for axes, marginal in marginals.items()
            ]

        return curator.select_marginal(step_name(number, "select"), expected, share=SELECTING / rounds_left)

    def measure(self, curator: Curator, number: int, selection: Selection) -> Measurement:
        """Measure the selected marginal. The last round spends all that is left."""
        rounds_left = self._rounds - number + 1
        share = (1 - SELECTING) / (rounds_left - SELECTING)
        return curator.measure_marginal(step_name(number, "measure"), selection.axes, share=share)

    def update(self, number: int, measurement: Measurement) -> None:
        """Take a few steps towards all measurements."""
        del number  # the update is the same in every round
        self._measured[measurement.axes] += 1
        self._learn(measurement)
        self._now = refine(self.model, self._evidence, self._now, tries=ROUND_TRIES, per_cell=DENSE_PER_CELL)

    def conclude(self) -> None:
        """Build the released model from the first one, so that early measurements have no more influence than late ones."""
        last_dense(self.model, self._evidence, self._base)

    def _learn(self, measurement: Measurement) -> None:
        self.measurements.append(measurement)
        self._evidence.add(measurement)
        self.model.rescale(self._evidence.total)

    def _affordable(self, number: int, noise: float) -> list[Axes]:
        """Return the largest candidates that this noise does not swamp, among those measured least often."""
        worth = ROOM * self.model.total / (math.sqrt(2 / math.pi) * max(noise, LEAST_NOISE))  # in cells
        fitting = {axes for axes in self._candidates if self._cells[axes] <= worth}
        first = [axes for axes in self._target_pairs if axes in fitting and not self._measured[axes]]
        if first and 2 * number <= self._rounds:
            return first
        if not fitting:
            fitting = {min(self._candidates, key=self._cells.__getitem__)}
        # All parts of a fitting marginal are candidates, fit too, and weigh no less: so it suffices to compare with one column more.
        inside = {
            part
            for axes in fitting
            for part in (axes[:place] + axes[place + 1 :] for place in range(len(axes)))
            if self._weights.get(part) == self._weights[axes]
        }
        largest = [axes for axes in self._candidates if axes in fitting and axes not in inside]
        fewest = min(self._measured[axes] for axes in largest)
        return [axes for axes in largest if self._measured[axes] == fewest]


def _first_shares(shape: tuple[int, ...], cells: list[int], *, rounds: int, pure: bool) -> list[Fraction]:
    """Return each column's share of the whole budget.

    Splitting in proportion to size^(2/3) (to its root, with Laplace noise) minimises the noise of all marginals together. The same rule,
    within limits, splits the budget between all columns and the rounds' marginals.
    """
    power = 1 / 2 if pure else 2 / 3
    wanted = [size**power for size in shape]
    later = rounds * sum(cell**power for cell in cells) / len(cells)
    together = min(MOST_FIRST, max(LEAST_FIRST, sum(wanted) / (sum(wanted) + later)))
    return [Fraction(together * want / sum(wanted)).limit_denominator(10**6) for want in wanted]
