"""The rounds that strategies `mwem` and `adaptive` share: columns first, then marginals one by one, then a fit to all measurements."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dpcore.curator.curator import Curator, Offer
from dpcore.errors import TableChanged
from dpcore.marginals.measurements import Measurement, Selection
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes, Workload
from dpcore.marginals.zeros import NO_ZEROS, Zeros
from dpcore.models import Evidence, Functions, Model, refine
from dpcore.models.fitting import Transcript, fit_first, fit_last, new_model
from dpcore.models.refine import misfit
from dpcore.models.start import Gate, PublicRows, Start, reconsidered
from dpcore.strategies.strategy import NOTHING, EarlyCounts, NoiseOf, Outline, Strategy, column_step, step_name
from dpcore.strategies.whole import Counted, Whole
from dpcore.strategies.worthwhile import ROOM, Choice, worth_cells
from dpcore.universe import Attribute
from dpcore.universe.extremes import bin_extremes

LEAST_FIRST, MOST_FIRST = 0.05, 0.5  # limits of the one-way marginals' share of the whole budget
MOST_ROUNDS, MOST_ROUNDS_PURE = 60, 20  # noise grows with the root of the rounds in zCDP, and linearly in pure epsilon


@dataclass(frozen=True)
class Column:
    """The properties of a column that a strategy needs.

    Attributes:
        name: The name, for the steps that measure it.
        size: The number of cells.
        ordered: Whether its cells are ordered.
        apart: The number of cells at its end that are outside the order, such as the one for missing values.
        values: The values in the middle of its ordered cells; none if it has no order, or the cells' numbers stand for them.
    """

    name: str
    size: int
    ordered: bool
    apart: int = 0
    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, name: str, attribute: Attribute) -> "Column":
        """Return the properties of a column of a universe."""
        middles = np.mean(bin_extremes(attribute), axis=0).tolist() if attribute.ordered else ()
        apart = attribute.size - attribute.cells
        return cls(name, attribute.size, attribute.ordered, apart=apart, values=tuple(middles))


class ByRounds(Strategy):
    """A strategy that measures every column, then in each of its rounds the marginal that the model gets most wrong.

    Which marginals are worth their noise depends on the number of rows, which only the columns reveal. If there are fewer rounds than
    planned, each column deserves a larger share, and is measured again for the difference. At the end the model is rebuilt from the first
    one, with all measurements at once, so that early ones have no more influence than late ones.

    Args:
        columns: The columns.
        workload: What is asked for.
        rounds: The number of rounds that the spec wants; None if the budget decides.
        pure: Whether the noise is Laplace noise, and not Gaussian noise.
        early_counts: Counts that discovery has bought.
        zeros: The impossible cells.
        counted: If only a part of the rows of large units is counted, what is known of it.
    """

    _model_cells: int | None = None
    """The most cells of the model; None if it has as many as the universe."""
    SELECTING: ClassVar[Fraction]
    """The selection's share of a round's budget."""
    WORTH_AGAIN: ClassVar[float]
    """The least share of the budget for which the columns are measured again."""
    TRIES: ClassVar[int]
    """Evaluations of the model in each round."""

    def __init__(  # noqa: PLR0913  all that a strategy depends on
        self,
        columns: Sequence[Column],
        workload: Workload,
        *,
        rounds: int | None,
        pure: bool,
        early_counts: EarlyCounts = NOTHING,
        zeros: Zeros = NO_ZEROS,
        counted: Counted | None = None,
    ) -> None:
        super().__init__([column.size for column in columns], early_counts=early_counts)
        self._whole = None if counted is None else Whole(counted.sizes, self.resolutions, limit=counted.limit)
        workload = self._within_reach(workload, columns)
        self._columns, self._workload, self._zeros = columns, workload, zeros
        self._orders = {axis: column.size - column.apart for axis, column in enumerate(columns) if column.ordered}
        self._wanted_rounds, self._pure = rounds, pure
        self._weights, self._target_pairs = workload.largest_weights(), workload.target_pairs()
        self._most_rounds = rounds or (MOST_ROUNDS_PURE if pure else MOST_ROUNDS)
        self._levels: dict[int, int] = {}  # how many coarser versions are measured of each column with ranges, at most
        self._left = Fraction(1)  # of the budget, while the columns are measured
        self._evidence = Evidence(self._orders)
        self._base: Functions = {}
        self._now: Functions = {}
        self._sets = self._selectable()
        self.model = new_model(self._modelled_columns, total=1.0, zeros=zeros)
        # As many rounds as the largest budget pays for. A smaller one can only pay for fewer.
        self._choice = self._chosen(math.inf, alone=1.0)
        self._most_rounds = self._choice.rounds
        self._first = self._shares(self._choice)  # of the whole budget; 0 for columns whose counts are given
        self._again = self._choice.rounds > 0 and self._wanted_rounds is None

    # What the strategies differ in

    @staticmethod
    @abstractmethod
    def _within_reach(workload: Workload, columns: Sequence[Column]) -> Workload:
        """Return the workload as far as the strategy can tell cells apart."""

    @abstractmethod
    def _selectable(self) -> tuple[Axes, ...]:
        """Return the sets of columns that rounds may select."""

    @abstractmethod
    def _chosen(self, rows: float, *, alone: float) -> Choice:
        """Return the rounds that suit a number of rows, and the noise of a marginal that got all of their budget."""

    @abstractmethod
    def _wanted(self, choice: Choice) -> tuple[list[float], float]:
        """Return how much of the budget each column wants, relative to the others, and how much all rounds want."""

    @abstractmethod
    def _groups(self, choice: Choice, *, worth: float) -> tuple[tuple[Axes, ...], ...]:
        """Return what rounds select from, in groups that are used up one after the other. `worth` is the most cells that are worth their noise."""

    @property
    @abstractmethod
    def _modelled_columns(self) -> Sequence[int] | Resolutions:
        """The columns as `new_model` needs them."""

    @abstractmethod
    def _start_from(self, prior: PublicRows) -> Start:
        """Return the start that a prior makes."""

    def _prepare_model(self) -> None:
        """Prepare the new model for the rounds."""

    @abstractmethod
    def _note(self, axes: Axes) -> None:
        """Note that a marginal was measured in a round."""

    @abstractmethod
    def _offers(self, curator: Curator, number: int) -> list[Offer]:
        """Return what a round selects from, with the counts that the model expects."""

    def _coarsen(self, curator: Curator) -> None:
        """Derive coarser versions of the columns from their counts."""

    def _measure_levels(self, curator: Curator) -> None:
        """Measure coarser versions of the columns that have ranges."""

    @property
    def _ranges(self) -> list[int]:
        """The columns whose coarser versions are bought for ranges: not those whose counts are given, as a tree has all of them."""
        return [axis for axis in self._workload.ranges if axis not in self._early_counts.counts]

    def _most_first(self, rounds: int) -> float:
        """Return the most that all columns together get of the budget, if so many rounds follow."""
        del rounds
        return MOST_FIRST

    @property
    def _least_rest(self) -> Fraction:
        """The least share of all planned rounds together."""
        return self._rest(self._first)

    def _selecting(self, choice: Choice) -> Fraction:
        """Return the share of a selection in a round's budget."""
        del choice
        return self.SELECTING

    # The plan

    def _rest(self, first: Sequence[Fraction]) -> Fraction:
        """Return the share of the rounds: what the columns, and the coarser versions of those with ranges, leave."""
        return Fraction(1) - sum(first) - sum(first[axis] for axis in self._ranges)

    def _shares(self, choice: Choice) -> list[Fraction]:
        """Return each column's share of the whole budget, if these rounds follow; 0 for columns whose counts are given.

        Splitting in proportion to size^(2/3) (to its root, with Laplace noise) minimises the noise of all marginals together. The same rule,
        within limits, splits the budget between all columns and the rounds' marginals. A column with ranges gets as much again for its
        coarser versions.
        """
        columns, later = self._wanted(choice)
        all_columns = sum(columns) + sum(columns[axis] for axis in self._workload.ranges)
        most = min(MOST_FIRST, self._most_first(choice.rounds))
        together = max(LEAST_FIRST, min(most, all_columns / (all_columns + later))) if later else 1.0
        shares = [Fraction(together * column / all_columns).limit_denominator(10**6) for column in columns]
        bought = [Fraction(0) if axis in self._early_counts.counts else share for axis, share in enumerate(shares)]
        whole = sum(bought) + sum(bought[axis] for axis in self._workload.ranges)
        return bought if choice.rounds or not whole else [share / whole for share in bought]

    def _more(self, choice: Choice) -> list[Fraction]:
        """Return the shares for measuring the columns again, if fewer rounds leave enough for that; otherwise 0."""
        more = [share - first for share, first in zip(self._shares(choice), self._first, strict=True)]
        fewer = not self._wanted_rounds and min(more) >= 0
        return more if fewer and sum(more) >= self.WORTH_AGAIN else [Fraction(0)] * len(more)

    @property
    def answers(self) -> int:
        """One per column, perhaps another one, one per coarser version, and a selection and a measurement in each round."""
        bought = len(self._columns) - len(self._early_counts.counts)
        return bought * (1 + self._again) + sum(self._levels.values()) + 2 * self.rounds

    @property
    def rounds(self) -> int:
        """The number of marginals that are selected. It falls below the plan if the columns show that the budget is small."""
        return self._choice.rounds

    @property
    def smallest_share(self) -> Fraction:
        """The share of the smallest column, its second measurement, a coarser version for ranges, or a round's marginal."""
        first = [share for axis, share in enumerate(self._first) if axis not in self._early_counts.counts]
        shares = [*first, *(self._first[axis] / number for axis, number in self._levels.items())]
        if first and self._again:
            shares.append(Fraction(self.WORTH_AGAIN) * min(first) / sum(first))
        if self.rounds:
            shares.append((1 - self.SELECTING) * self._least_rest / self.rounds)
        return min(shares, default=Fraction(1))

    def outline(self, rows: float, noise_of: NoiseOf) -> Outline:
        """Return the plan for a number of rows. If the budget is small, it has fewer rounds and measures the columns again."""
        rest = self._rest(self._first)
        choice = self._chosen(rows, alone=noise_of(rest)) if self.rounds and rest else self._choice
        rounds, more, selecting = choice.rounds, self._more(choice), self._selecting(choice)
        first = tuple(
            () if axis in self._early_counts.counts else (share, again) if again else (share,)
            for axis, (share, again) in enumerate(zip(self._first, more, strict=True))
        )
        rest = self._rest([share + again for share, again in zip(self._first, more, strict=True)])
        worth = worth_cells(rows, noise_of((1 - selecting) * rest / rounds)) if rounds else 0.0
        return Outline(
            first,
            rounds=rounds,
            rest=rest,
            selecting=selecting,
            room=ROOM,
            candidates=self._sets,
            offered=self._groups(choice, worth=worth),
            model_cells=self._model_cells,
        )

    # The run

    def begin(self, curator: Curator) -> None:
        """Measure every column, perhaps a second time, and build the first model."""
        self._learn_all(map(self._of_all_rows, filter(None, self._early_counts.counts.values())))
        self._measure_columns(curator, self._first, suffix="")
        if self.rounds:
            self._choice = self._chosen(self._evidence.total, alone=self._alone())
            more = self._more(self._choice)
            self._again = any(more)
            self._measure_columns(curator, more, suffix="-again")
            self._first = [share + again for share, again in zip(self._first, more, strict=True)]
        if self.earlier is not None and not self.earlier.agrees_with(self.measurements):
            raise TableChanged("noisy counts of the columns contradict the earlier ones")
        self._coarsen(curator)
        if self.earlier is not None:
            self._learn_all(self.earlier.transcript.first)
        self._measure_levels(curator)
        self._begin_weights()
        start, total = self.start.functions, self._evidence.total
        self.model = new_model(self._modelled_columns, total=total, start=start, zeros=self._zeros)
        self._prepare_model()
        self._base = self._now = fit_first(self.model, self._evidence)
        if self.earlier is not None and self.earlier.transcript.later:
            for measured in self.earlier.transcript.later:  # one after the other, as in rounds
                self._learn(measured)
                self._note(measured.axes)
            self._refine(tries=40)

    def _begin_weights(self) -> None:
        """Start from the prior, if there is one and the measured columns are nearer to it than to the uniform distribution."""
        if self.prior is not None:
            self.gate = Gate.of(self.prior, self._evidence, self.resolutions)
            if self.gate.taken:
                self.start = self._start_from(self.prior)

    def _measure_columns(self, curator: Curator, shares: Sequence[Fraction], *, suffix: str) -> None:
        for axis, share in enumerate(shares):
            if share:
                self._measure(curator, column_step(axis, self._columns[axis].name) + suffix, axis, share)

    def _measure(self, curator: Curator, step: str, axis: int, share: Fraction) -> None:
        """Measure a column, or a version of one, for a share of the whole budget."""
        part = min(share / self._left, Fraction(1))
        if self._whole is None or axis >= len(self._columns):
            self._learn(self._of_all_rows(curator.measure_marginal(step, (axis,), share=part)))
        else:
            self._learn(self._whole.column(curator.measure_marginal(step, (axis,), share=part, by_class=True)))
        self._left -= share

    def _of_all_rows(self, measurement: Measurement) -> Measurement:
        """Return counts of all rows, if only a part of the rows of large units was counted."""
        return measurement if self._whole is None else self._whole.marginal(measurement)

    def _alone(self) -> float:
        """Return the noise of a marginal that got all of the rounds' budget: it follows from the noise of a column and the shares."""
        for measured in self.measurements:
            share = self._first[measured.axes[0]]
            if share:
                classes = 1 if self._whole is None else self._whole.classes
                return measured.noise / math.sqrt(classes) * math.pow(share / self._rest(self._first), self._power)
        return (self._early_counts.alone or 0.0) * (1.0 if self._whole is None else self._whole.ratio)

    @property
    def _power(self) -> float:
        """The noise grows with this power of the number of rounds."""
        return 1.0 if self._pure else 0.5

    @property
    def _wanted_power(self) -> float:
        """What a marginal wants of the budget grows with this power of its cells."""
        return 1 / 2 if self._pure else 2 / 3

    def select(self, curator: Curator, number: int) -> Selection:
        """Select the candidate with the largest error."""
        share = self._selecting(self._choice) / (self.rounds - number + 1)
        return curator.select_marginal(
            step_name(number, "select"), lambda: self._offered_as_kept(curator, number), share=share
        )

    def _offered_as_kept(self, curator: Curator, number: int) -> list[Offer]:
        """Return what a round selects from, with the counts that the model expects of the rows that selections count."""
        offers = self._offers(curator, number)
        return offers if self._whole is None else list(map(self._whole.kept, offers))

    def _first_sets(self, number: int) -> Sequence[Axes]:
        """Return the pairs with the workload's target, which come first for half of the rounds."""
        return self._target_pairs if 2 * number <= self.rounds else ()

    def measure(self, curator: Curator, number: int, selection: Selection) -> Measurement:
        """Measure the selected marginal. The last round spends all that is left."""
        rounds_left, selecting = self.rounds - number + 1, self._selecting(self._choice)
        share = (1 - selecting) / (rounds_left - selecting)
        return self._of_all_rows(curator.measure_marginal(step_name(number, "measure"), selection.axes, share=share))

    def update(self, number: int, measurement: Measurement) -> None:
        """Take a few steps towards all measurements."""
        del number  # the update is the same in every round
        self._learn(measurement)
        self._refine(tries=self.TRIES)
        self._note(measurement.axes)

    def conclude(self) -> None:
        """Build the released model from the first one, or without the prior if all measurements speak against it."""
        if self.gate is not None and self.gate.taken:
            started = misfit(self.model, self._base, self._evidence)
            model, base = self._without_prior()
            plain = misfit(model, base, self._evidence)
            self.start, self.gate = reconsidered(self.start, self.gate, started=started, plain=plain)
            if not self.gate.taken:
                self.model, self._base = model, base
        self.functions = fit_last(self.model, self._evidence, self._base, orders=self._orders, start=self.start)

    def _without_prior(self) -> tuple[Model, Functions]:
        """Return the first model as it would be without a prior, with room for all measurements, and its functions."""
        transcript = Transcript.of(self.measurements)
        evidence = Evidence.of(transcript.first, self._orders)
        model = new_model(self._modelled_columns, total=evidence.total, zeros=self._zeros)
        base = fit_first(model, evidence)
        model.make_room_in_turn(measurement.axes for measurement in transcript.later)
        model.rescale(self._evidence.total)
        return model, base

    def _refine(self, *, tries: int) -> None:
        self._now = refine(self.model, self._evidence, self._now, tries=tries, per_cell=self.model.PER_CELL)

    def _learn(self, measurement: Measurement) -> None:
        self.measurements.append(measurement)
        self._evidence.add(measurement)
        self.model.rescale(self._evidence.total)

    def _learn_all(self, measurements: Iterable[Measurement]) -> None:
        for measurement in measurements:
            self._learn(measurement)
