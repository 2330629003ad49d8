"""Multiplicative weights with the exponential mechanism, on whole marginals."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from dpcore.curator.curator import Curator, Offer
from dpcore.marginals.measurements import Measurement, Selection
from dpcore.marginals.workload import Axes, Workload
from dpcore.marginals.zeros import NO_ZEROS, Zeros
from dpcore.models import DenseModel, Evidence, Functions, refine
from dpcore.models.evidence import UNORDERED, Orders
from dpcore.models.fitting import DENSE_PER_CELL, Transcript, first_dense, last_dense, plain_dense
from dpcore.models.start import First, Gate, dense_start, reconsidered
from dpcore.strategies.strategy import NOTHING, Given, NoiseOf, Outline, Strategy, column_step, step_name
from dpcore.strategies.worthwhile import Budget, Choice, choose

# Tuned on Adult (seven columns) and on two other census and hospital tables, see docs/decisions/0006.
SELECTING = Fraction(1, 20)  # the selection's share of a round's budget
ORDERING = Fraction(1, 1000)  # the same if all candidates get measured, so that selections only order them
LEAST_FIRST, MOST_FIRST = 0.05, 0.5  # limits of the one-way marginals' share of the whole budget
MOST_ROUNDS, MOST_ROUNDS_PURE = 60, 20  # noise grows with the root of the rounds in zCDP, and linearly in pure epsilon
WORTH_AGAIN = 0.02  # the least share of the budget for which the columns are measured again
ROOM = 1.0  # a marginal is worth measuring while its expected noise in all cells is below this many times the rows
ROUND_TRIES, EARLIER_TRIES = (
    5,
    40,
)  # evaluations of the model in each round, and for all earlier measurements before the first


class Mwem(Strategy):
    """Measure every column, then the marginals that are worth their noise, worst first, then fit all measurements.

    1. All one-way marginals make the first model. Their share of the budget follows from their sizes.
    2. The noisy number of rows decides which marginals are worth their noise, and so how many rounds there are (`worthwhile`). If there
       are fewer than planned, the columns are measured again for a part of what that saves.
    3. Each of T equal rounds selects a marginal by the exponential mechanism, with the score weight x |true - expected|_1, measures it,
       and takes a few multiplicative steps on all measurements so far. None is a candidate again before all were measured as often.
       Pairs with the workload's target come first, up to half of the rounds.
    4. At the end the model is rebuilt from the first one, with all measurements at once, until it fits them as well as the true
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
        orders: Orders = UNORDERED,
        given: Given = NOTHING,
        zeros: Zeros = NO_ZEROS,
    ) -> None:
        super().__init__(shape, given=given)
        self._orders, self._zeros = orders, zeros
        self.model = DenseModel(shape, total=1.0, zeros=zeros)
        self._names = names
        workload = workload.telling(shape)
        self._sets = tuple(axes for axes in workload.parts() if len(axes) > 1)
        self._weights = workload.largest_weights()
        self._target_pairs = workload.target_pairs()
        self._wanted_rounds, self._pure = rounds, pure
        self._most_rounds = rounds or (MOST_ROUNDS_PURE if pure else MOST_ROUNDS)
        self._choice = self._chosen(math.inf, alone=1.0)
        self._most_rounds = self._choice.rounds  # a smaller budget can only pay for fewer
        self._first = self._shares(self._choice)
        self._again = self._choice.rounds > 0 and rounds is None
        self._evidence = Evidence(orders)
        self._measured: Counter[Axes] = Counter()
        self._base: Functions = {}
        self._now: Functions = {}

    @property
    def rounds(self) -> int:
        """The number of marginals that are selected. It falls below the plan if the columns show that the budget is small."""
        return self._choice.rounds

    @property
    def answers(self) -> int:
        """One per column, perhaps another one, and a selection and a measurement in each round."""
        bought = len(self.model.shape) - len(self._given.counts)
        return bought * (1 + self._again) + 2 * self.rounds

    @property
    def smallest_share(self) -> Fraction:
        """The share of the smallest column, its second measurement, or a round's marginal."""
        shares = [share for axis, share in enumerate(self._first) if axis not in self._given.counts]
        if shares and self._again:
            shares.append(Fraction(WORTH_AGAIN) * min(shares) / sum(shares))
        if self.rounds:
            rest = 1 - (Fraction(MOST_FIRST) if self._again else sum(self._first))
            shares.append((1 - SELECTING) * rest / self.rounds)
        return min(shares, default=Fraction(1))

    def outline(self, rows: float, noise_of: NoiseOf) -> Outline:
        """Return the plan for a number of rows. If the budget is small, it has fewer rounds and measures the columns again."""
        rest = Fraction(1) - sum(self._first)
        choice = self._chosen(rows, alone=noise_of(rest)) if rest else self._choice
        more = self._more(choice)
        first = tuple(
            () if axis in self._given.counts else (share, again) if again else (share,)
            for axis, (share, again) in enumerate(zip(self._first, more, strict=True))
        )
        return Outline(
            first,
            rounds=choice.rounds,
            rest=rest - sum(more),
            selecting=self._selecting(choice),
            room=ROOM,
            candidates=self._sets,
            offered=self._groups(choice),
            model_cells=None,
        )

    def begin(self, curator: Curator) -> None:
        """Measure every column and build the first model.

        Which marginals are worth their noise depends on the number of rows, which only the column measurements reveal. If there are fewer
        than planned, each column deserves a larger share, and is measured again for the difference.
        """
        for known in self._given.counts.values():
            if known is not None:
                self._learn(known)
        left = self._measure_columns(curator, self._first, left=Fraction(1), suffix="")
        if self._choice.rounds:
            self._choice = self._chosen(self._evidence.total, alone=self._alone())
            more = self._more(self._choice)
            self._again = any(more)
            if self._again:
                self._measure_columns(curator, more, left=left, suffix="-again")
        self._check_earlier()
        for known in self.earlier.transcript.first if self.earlier else ():
            self._learn(known)
        self._begin_weights()
        self._base = self._now = first_dense(self.model, self._evidence)
        if self.earlier is not None and self.earlier.transcript.later:
            for known in self.earlier.transcript.later:
                self._measured[known.axes] += 1
                self._learn(known)
            self._now = refine(self.model, self._evidence, self._now, tries=EARLIER_TRIES, per_cell=DENSE_PER_CELL)

    def _begin_weights(self) -> None:
        """Start from the prior, if there is one and the measured columns are nearer to it than to the uniform distribution."""
        if self.prior is None:
            return
        self.gate = Gate.of(self.prior, self._evidence, self.resolutions)
        if self.gate.taken:
            self.start = dense_start(self.model.shape, self.prior, self._sets)
            shape, start = self.model.shape, self.start.functions
            self.model = DenseModel(shape, total=self._evidence.total, start=start, zeros=self._zeros)

    def _measure_columns(
        self, curator: Curator, shares: Sequence[Fraction], *, left: Fraction, suffix: str
    ) -> Fraction:
        """Measure each column for its share of the whole budget, and return the share that is left."""
        for axis, share in enumerate(shares):
            if share:
                step = column_step(axis, self._names[axis]) + suffix
                self._learn(curator.measure_marginal(step, (axis,), share=share / left))
                left -= share
        return left

    def _alone(self) -> float:
        """Return the noise of a marginal that got all of the rounds' budget: it follows from the noise of a column and the shares."""
        rest = 1 - sum(self._first)
        for measured in self.measurements:
            share = self._first[measured.axes[0]]
            if share:
                return measured.noise * math.pow(share / rest, 1.0 if self._pure else 0.5)
        return self._given.alone or 0.0

    def _chosen(self, rows: float, *, alone: float) -> Choice:
        """Return the marginals that are worth their noise, if the rounds' budget would buy one marginal with the noise `alone`."""
        power = 1.0 if self._pure else 0.5
        budget = Budget(rows=rows, alone=alone, power=power, most=self._most_rounds, room=ROOM)
        chosen = choose(self._sets, self.model.shape, weights=self._weights, budget=budget)
        return replace(chosen, rounds=self._wanted_rounds) if self._wanted_rounds and self._sets else chosen

    def _selecting(self, choice: Choice) -> Fraction:
        """Return the share of a selection in a round's budget."""
        return ORDERING if choice.rounds == len(choice.sets) else SELECTING

    def _shares(self, choice: Choice) -> list[Fraction]:
        """Return each column's share of the whole budget; 0 for columns whose counts are given."""
        shape = self.model.shape
        cells = [math.prod(shape[axis] for axis in axes) for axes in choice.sets]
        shares = _first_shares(shape, cells, rounds=choice.rounds, pure=self._pure)
        bought = [Fraction(0) if axis in self._given.counts else share for axis, share in enumerate(shares)]
        together = sum(bought)
        return bought if choice.rounds or not together else [share / together for share in bought]

    def _more(self, choice: Choice) -> list[Fraction]:
        """Return the shares for measuring the columns again, if that is worth it; otherwise 0."""
        more = [share - first for share, first in zip(self._shares(choice), self._first, strict=True)]
        fewer = not self._wanted_rounds and min(more) >= 0
        return more if fewer and sum(more) >= WORTH_AGAIN else [Fraction(0)] * len(more)

    def select(self, curator: Curator, number: int) -> Selection:
        """Select the candidate with the largest error."""
        rounds_left = self.rounds - number + 1

        def expected() -> list[Offer]:
            marginals = self.model.marginals(self._offered(number))
            return [
                Offer(axes, np.rint(marginal).astype(np.int64), self._weights[axes])
                for axes, marginal in marginals.items()
            ]

        return curator.select_marginal(
            step_name(number, "select"), expected, share=self._selecting(self._choice) / rounds_left
        )

    def measure(self, curator: Curator, number: int, selection: Selection) -> Measurement:
        """Measure the selected marginal. The last round spends all that is left."""
        rounds_left = self.rounds - number + 1
        selecting = self._selecting(self._choice)
        share = (1 - selecting) / (rounds_left - selecting)
        return curator.measure_marginal(step_name(number, "measure"), selection.axes, share=share)

    def update(self, number: int, measurement: Measurement) -> None:
        """Take a few steps towards all measurements."""
        del number  # the update is the same in every round
        self._measured[measurement.axes] += 1
        self._learn(measurement)
        self._now = refine(self.model, self._evidence, self._now, tries=ROUND_TRIES, per_cell=DENSE_PER_CELL)

    def conclude(self) -> None:
        """Build the released model from the first one, so that early measurements have no more influence than late ones."""
        if self.gate is not None and self.gate.taken:
            started = First(self.model, self._base)
            model, base = plain_dense(
                self.model.shape, Transcript.of(self.measurements), orders=self._orders, zeros=self._zeros
            )
            self.start, self.gate = reconsidered(
                self.start, self.gate, self._evidence, started=started, plain=First(model, base)
            )
            if not self.gate.taken:
                self.model, self._base = model, base
        last_dense(self.model, self._evidence, self._base, orders=self._orders, start=self.start)

    def _learn(self, measurement: Measurement) -> None:
        self.measurements.append(measurement)
        self._evidence.add(measurement)
        self.model.rescale(self._evidence.total)

    def _offered(self, number: int) -> list[Axes]:
        """Return the candidates of a round: those measured least often. Pairs with the target come first, for half of the rounds."""
        first = [axes for axes in self._target_pairs if axes in self._choice.worth and not self._measured[axes]]
        if first and 2 * number <= self.rounds:
            return first
        sets = self._worth_offering(self._choice)
        fewest = min(self._measured[axes] for axes in sets)
        return [axes for axes in sets if self._measured[axes] == fewest]

    def _groups(self, choice: Choice) -> tuple[tuple[Axes, ...], ...]:
        """Return the offered marginals as often as the rounds go through all of them, or once."""
        if not choice.rounds:
            return ()
        sets = self._worth_offering(choice)
        return (sets,) * max(1, choice.rounds // len(sets))

    def _worth_offering(self, choice: Choice) -> tuple[Axes, ...]:
        """Return the chosen marginals, or the smallest one if the spec wants rounds although noise would swamp every marginal."""
        return choice.sets or (min(self._sets, key=self._cells),)

    def _cells(self, axes: Axes) -> int:
        return math.prod(self.model.shape[axis] for axis in axes)


def _first_shares(shape: tuple[int, ...], cells: list[int], *, rounds: int, pure: bool) -> list[Fraction]:
    """Return each column's share of the whole budget.

    Splitting in proportion to size^(2/3) (to its root, with Laplace noise) minimises the noise of all marginals together. The same rule,
    within limits, splits the budget between all columns and the rounds' marginals.
    """
    power = 1 / 2 if pure else 2 / 3
    wanted = [size**power for size in shape]
    later = rounds * sum(cell**power for cell in cells) / max(len(cells), 1)
    together = min(MOST_FIRST, max(LEAST_FIRST, sum(wanted) / (sum(wanted) + later))) if later else 1.0
    return [Fraction(together * want / sum(wanted)).limit_denominator(10**6) for want in wanted]
