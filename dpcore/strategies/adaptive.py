"""Multiplicative weights on a factored model, for universes of any size: measure the worst marginals, as finely as noise allows."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations

import numpy as np

from dpcore.curator.curator import Curator, Offer
from dpcore.errors import SpecError
from dpcore.marginals.measurements import Measurement, Selection
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes, Workload
from dpcore.marginals.zeros import NO_ZEROS, Zeros
from dpcore.models import Evidence, FactoredModel, Functions, refine
from dpcore.models.evidence import LEAST_NOISE
from dpcore.models.factored import BYTES_PER_CELL
from dpcore.models.fitting import FACTORED_PER_CELL, Transcript, first_factored, last_factored, plain_factored
from dpcore.models.start import First, Gate, factored_start, reconsidered
from dpcore.strategies.candidates import Candidates, first_candidates
from dpcore.strategies.grouping import coarser_versions, spread_weights
from dpcore.strategies.strategy import NOTHING, Given, NoiseOf, Outline, Strategy, column_step, step_name

# Tuned on Adult with fourteen columns, see docs/decisions/0014.
SELECTING = Fraction(8, 100)  # the selection's share of a round's budget
LEAST_FIRST, MOST_FIRST = 0.05, 0.5  # limits of the one-way marginals' share of the whole budget
MANY_ROUNDS, ROUNDS_DEAR = 12, 0.75  # that share is also at most (MANY_ROUNDS / rounds)^ROUNDS_DEAR
MOST_ROUNDS, MOST_ROUNDS_PURE = 60, 20
ROUNDS, ROUNDS_POWER = 4.0, 0.3  # rounds = ROUNDS x (rows / noise of one marginal alone, in cells)^ROUNDS_POWER
WORTH_AGAIN = 0.05  # the least share of the budget for which the columns are measured again
ROOM = 1.0  # a marginal is worth measuring while its expected noise in all cells is below this many times the rows
LADDER = (256, 128, 64, 32, 16, 8)  # each group of a coarser version has at least a 256th, a 128th, ... of the rows
COARSEST = 2  # and of the coarsest, if every pair is to be measured, half of the spread: see docs/decisions/0014
SMALLEST_START = 0.25  # the fraction of the model's size that is available at the start
ROUND_TRIES = 6  # evaluations of the model in each round: see docs/decisions/0016
EARLIER_TRIES = 40  # evaluations for all measurements of an earlier release, before the first round
MOST_COLUMNS = 3  # of a candidate, if not all can be measured: see docs/decisions/0006
TYPICAL_CELLS = 400  # the cells of a typical marginal that a round measures
FEWER = 4  # each version of a column that is measured for its ranges has this many times fewer cells
TOLERATED = 0.5  # of the expected noise of a marginal: about what the fit leaves of it, see docs/decisions/0014
ABSOLUTE = math.sqrt(2 / math.pi)  # the mean absolute value of noise of standard deviation 1


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


class Adaptive(Strategy):
    """Measure every column, then round by round the marginal that the model gets most wrong, then fit all measurements.

    1. All one-way marginals make the first model. Their noisy counts also decide which cells to merge in interactions: each column gets
       coarser versions, in which every group has a certain share of the rows. Where the workload has ranges, some of these versions are
       measured as well: a long range is then a sum of few noisy counts instead of many.
       If there is a round for every pair, the model holds a grid from the start: all pairs, of small columns as they are and of large
       ones in few groups. So each pair can be measured, however much of the model others have taken.
    2. Each of T equal rounds selects a marginal by the exponential mechanism, with the score weight x (|true - expected|_1 - half of the
       noise that its measurement would have), measures it, and takes a few multiplicative steps on all measurements so far. `Candidates`
       decides which marginals are offered: in the first half of the rounds only pairs with the workload's target, as long as there are any.
    3. At the end the model is rebuilt from the first one, with all measurements at once, until it fits them as well as the true
       distribution would.

    References: McKenna, Mullins, Sheldon and Miklau 2022 (AIM); Hardt, Ligett and McSherry 2012 (MWEM).
    """

    model: FactoredModel

    def __init__(  # noqa: PLR0913  all that a strategy depends on
        self,
        columns: Sequence[Column],
        workload: Workload,
        *,
        rounds: int | None,
        pure: bool,
        model_mb: float,
        given: Given = NOTHING,
        zeros: Zeros = NO_ZEROS,
    ) -> None:
        super().__init__([column.size for column in columns], given=given)
        self._columns, self._zeros = columns, zeros
        self._workload = workload = _within_reach(workload, columns)
        most = MOST_ROUNDS_PURE if pure else MOST_ROUNDS
        self._sets = _candidates(workload, most=most)
        self._target_pairs = workload.target_pairs()
        self._most_cells = int(model_mb * 2**20 / BYTES_PER_CELL)
        least = sum(column.size for column in columns) + sum(table.size for table in zeros.possible.values())
        if least > self._most_cells:
            what = "the columns and their constraints" if zeros.possible else "the columns"
            raise SpecError(
                f"{what} alone take {_megabytes(least)} MB of model; write `max_model_mb: {_megabytes(4 * least)}` in `strategy`, or declare "
                "coarser columns"
            )
        self._chosen, self._pure = rounds is not None, pure
        self._rounds = (rounds or min(most, len(self._sets))) if self._sets else 0
        self._later = _wanted_later(columns, workload, pure=pure)
        self._first = self._shares(self._rounds)
        self._again = self._rounds > 0 and not self._chosen
        self._levels = sum(_most_levels(columns[axis].size) for axis in self._ranges)
        self._orders = {place: each.size - each.apart for place, each in enumerate(columns) if each.ordered}
        self._evidence = Evidence(self._orders)
        self._base: Functions = {}
        self._now: Functions = {}
        self.model = FactoredModel(self.resolutions, total=1.0, zeros=zeros)
        self._candidates = Candidates(self.model, (), weights={})

    @property
    def rounds(self) -> int:
        """The number of marginals that are selected. It falls below the plan if the columns show that the budget is small."""
        return self._rounds

    @property
    def answers(self) -> int:
        """One per column and, for ranges, per coarser version; and a selection and a measurement in each round."""
        bought = len(self._columns) - len(self._given.counts)
        return bought * (1 + self._again) + self._levels + 2 * self._rounds

    @property
    def smallest_share(self) -> Fraction:
        """The share of the smallest column, its second measurement, a coarser version for ranges, or a round's marginal."""
        levels = {axis: _most_levels(self._columns[axis].size) for axis in self._ranges}
        first = [share for axis, share in enumerate(self._first) if axis not in self._given.counts]
        shares = [*first, *(self._first[axis] / levels[axis] for axis in levels)]
        if first and self._again and self._rounds > 1:
            shares.append(Fraction(WORTH_AGAIN) * min(first) / sum(first))
        if self._rounds:
            shares.append((1 - SELECTING) * self._rest(self._first) / self._rounds)
        return min(shares, default=Fraction(1))

    def outline(self, rows: float, noise_of: NoiseOf) -> Outline:
        """Return the plan for a number of rows. If the budget is small, it has fewer rounds and measures the columns again."""
        rounds, more = self._rounds, [Fraction(0)] * len(self._first)
        if self._rounds and not self._chosen:
            rounds, more = self._suited(
                rows, alone=self._alone(lambda _, share: noise_of(share), all_given=noise_of(self._rest(self._first)))
            )
        first = tuple(
            () if axis in self._given.counts else (share, again) if again else (share,)
            for axis, (share, again) in enumerate(zip(self._first, more, strict=True))
        )
        rest = self._rest([sum(shares, Fraction(0)) for shares in first])
        worth = self._worth_cells(rows, noise_of((1 - SELECTING) * rest / rounds)) if rounds else 0.0
        return Outline(
            first,
            rounds=rounds,
            rest=rest,
            selecting=SELECTING,
            room=ROOM,
            candidates=self._sets,
            offered=self._offered(rounds, most_cells=worth),
            model_cells=self._most_cells,
        )

    def begin(self, curator: Curator) -> None:
        """Measure every column, merge cells that noise would swamp, and build the first model.

        The number of rounds that suits the budget depends on the number of rows, which only the column measurements reveal. If there are
        fewer rounds than planned, each column deserves a larger share, and is measured again for the difference.
        """
        for known in self._given.counts.values():
            if known is not None:
                self._learn(known)
        left = self._measure_columns(curator, self._first, left=Fraction(1), suffix="")
        if self._rounds and not self._chosen:
            bought = {each.axes: each.noise for each in self.measurements}
            alone = self._alone(lambda axis, _: bought[(axis,)], all_given=self._given.alone or 0.0)
            self._rounds, more = self._suited(self._evidence.total, alone=alone)
            self._again = any(more)
            if self._again:
                left = self._measure_columns(curator, more, left=left, suffix="-again")
                self._first = [share + again for share, again in zip(self._first, more, strict=True)]
        self._check_earlier()
        if self.earlier is None:
            self._coarsen(curator)
        else:
            self.earlier.take_over(self.resolutions, curator)
            for known in self.earlier.transcript.first:
                self._learn(known)
        self._measure_levels(curator, left=left)
        self._choose_start()
        start = self.start.functions
        self.model = FactoredModel(self.resolutions, total=self._evidence.total, start=start, zeros=self._zeros)
        grid = self._grid()
        if grid:
            self.model.make_room([tuple(sorted(grid[column] for column in pair)) for pair in self._pairs])
        self._candidates = Candidates(self.model, self._sets, weights=self._workload.largest_weights(), grid=grid)
        self._base = self._now = first_factored(self.model, self._evidence)
        if self.earlier is not None and self.earlier.transcript.later:
            self._learn_rounds(self.earlier.transcript.later)

    @property
    def _pairs(self) -> list[Axes]:
        return [axes for axes in self._sets if len(axes) == 2]

    @property
    def _measures_every_pair(self) -> bool:
        """Whether there is a round for every pair."""
        return self._rounds >= len(self._pairs) > 0

    def _grid(self) -> tuple[int, ...]:
        """Return a version of each column that the model can hold with all others: small columns as they are, large ones in few groups.

        There is none if not every pair is measured, or the coarsest versions are too large.
        """
        room = SMALLEST_START / 2 * self._most_cells  # the rest is for the first rounds
        versions = [self.resolutions.versions(column) for column in range(len(self._columns))]
        grid = [each[-1] for each in versions]
        if not self._measures_every_pair or self.resolutions.cells(tuple(grid)) > room:
            return ()
        for column in sorted(range(len(grid)), key=lambda column: self._columns[column].size):
            for axis in versions[column]:
                finer = (*grid[:column], axis, *grid[column + 1 :])
                if self.resolutions.cells(finer) <= room:
                    grid[column] = axis
                    break
        return tuple(grid)

    def _learn_rounds(self, earlier: Sequence[Measurement]) -> None:
        """Learn what the rounds of an earlier release have measured."""
        for known in earlier:
            self._learn(known)
            self.model.make_room([known.axes])  # one after the other, as in rounds: their order decides the tree
            self._candidates.measured(known.axes)
        self.model.rescale(self._evidence.total)
        self._now = refine(self.model, self._evidence, self._now, tries=EARLIER_TRIES, per_cell=FACTORED_PER_CELL)

    def _choose_start(self) -> None:
        """Start from the prior, if there is one and the measured columns are nearer to it than to the uniform distribution."""
        if self.prior is None:
            return
        self.gate = Gate.of(self.prior, self._evidence, self.resolutions)
        if self.gate.taken:
            room = int(self._most_cells * SMALLEST_START / 2)  # the rest is for the first rounds
            self.start = factored_start(self.resolutions, self.prior, self._sets, room=room)

    def select(self, curator: Curator, number: int) -> Selection:
        """Select the candidate with the largest error."""
        rounds_left = self._rounds - number + 1
        first = self._target_pairs if 2 * number <= self._rounds else ()

        def expected() -> list[Offer]:
            noise = curator.expected_noise((1 - SELECTING) / rounds_left)
            worth = self._worth_cells(self.model.total, noise)
            return self._candidates.offers(
                number, most_cells=worth, room=self._room(number), tolerated=TOLERATED * ABSOLUTE * noise, first=first
            )

        return curator.select_marginal(step_name(number, "select"), expected, share=SELECTING / rounds_left)

    def measure(self, curator: Curator, number: int, selection: Selection) -> Measurement:
        """Measure the selected marginal. The last round spends all that is left."""
        rounds_left = self._rounds - number + 1
        share = (1 - SELECTING) / (rounds_left - SELECTING)
        return curator.measure_marginal(step_name(number, "measure"), selection.axes, share=share)

    def update(self, number: int, measurement: Measurement) -> None:
        """Take a few steps towards all measurements."""
        del number  # the update is the same in every round
        self._learn(measurement)
        self.model.rescale(self._evidence.total)
        self._now = refine(self.model, self._evidence, self._now, tries=ROUND_TRIES, per_cell=FACTORED_PER_CELL)
        self._candidates.measured(measurement.axes)

    def conclude(self) -> None:
        """Build the released model from the first one, so that early measurements have no more influence than late ones."""
        if self.gate is not None and self.gate.taken:
            started = First(self.model, self._base)
            model, base = plain_factored(
                self.resolutions, Transcript.of(self.measurements), orders=self._orders, zeros=self._zeros
            )
            self.start, self.gate = reconsidered(
                self.start, self.gate, self._evidence, started=started, plain=First(model, base)
            )
            if not self.gate.taken:
                self.model, self._base = model, base
        last_factored(self.model, self._evidence, self._base, orders=self._orders, start=self.start)

    def _measure_columns(
        self, curator: Curator, shares: Sequence[Fraction], *, left: Fraction, suffix: str
    ) -> Fraction:
        """Measure each column for its share of the whole budget, and return the share that is left."""
        for axis, share in enumerate(shares):
            if axis in self._given.counts:
                continue
            step = column_step(axis, self._columns[axis].name) + suffix
            self._learn(curator.measure_marginal(step, (axis,), share=min(share / left, Fraction(1))))
            left -= share
        return left

    def _coarsen(self, curator: Curator) -> None:
        """Derive the coarser versions of every column from its noisy counts."""
        rows, measured = self._whole_rows(), dict(self._evidence)
        for axis, column in enumerate(self._columns):
            counts = np.rint(measured[(axis,)].counts).astype(np.int64)
            steps = [(counts, rows // part) for part in LADDER]
            if self._measures_every_pair:
                middles = column.values or range(column.size - column.apart)
                steps.append((spread_weights(counts, middles) if column.ordered else counts, rows // COARSEST))
            for groups in coarser_versions(steps, cells=column.size, ordered=column.ordered, apart=column.apart):
                self.resolutions.coarsen(axis, groups)
                curator.coarsen(axis, groups)

    def _measure_levels(self, curator: Curator, *, left: Fraction) -> None:
        """Measure coarser versions of the columns that have ranges, for the same share as the columns themselves."""
        self._levels = 0
        for column in self._ranges:
            levels = _levels_of(self.resolutions, column)
            self._levels += len(levels)
            for axis in levels:
                share = self._first[column] / len(levels)
                step = f"{column_step(column, self._columns[column].name)}-{self.resolutions.shape[axis]}"
                self._learn(curator.measure_marginal(step, (axis,), share=min(share / left, Fraction(1))))
                left -= share

    def _shares(self, rounds: int) -> list[Fraction]:
        """Return each column's share of the whole budget, if this many rounds follow; 0 for columns whose counts are given."""
        shares = _first_shares(self._columns, self._workload, rounds=rounds, later=self._later, pure=self._pure)
        bought = [Fraction(0) if axis in self._given.counts else share for axis, share in enumerate(shares)]
        together = sum(bought) + sum(bought[axis] for axis in self._workload.ranges)
        return bought if rounds or not together or not self._given.counts else [share / together for share in bought]

    @property
    def _ranges(self) -> list[int]:
        """The columns whose coarser versions are bought for ranges: not those whose counts are given, as a tree has all of them."""
        return [axis for axis in self._workload.ranges if axis not in self._given.counts]

    def _alone(self, noise_of: Callable[[int, Fraction], float], *, all_given: float) -> float:
        """Return the noise of a marginal that got all the rest of the budget: it follows from the noise of a column and the shares."""
        for axis, share in enumerate(self._first):
            if share:
                rest = self._rest(self._first)
                return noise_of(axis, share) * math.pow(share / rest, 1.0 if self._pure else 0.5)
        return all_given

    def _suited(self, rows: float, *, alone: float) -> tuple[int, list[Fraction]]:
        """Return the number of rounds that suits the budget, and the shares for measuring the columns again, which may be 0.

        A larger budget pays for more rounds, and for less noise in each. `alone` is the noise in one marginal that got all the rest.
        """
        wanted: float = ROUNDS * (rows / (ABSOLUTE * max(alone, LEAST_NOISE))) ** ROUNDS_POWER
        rounds = min(self._rounds, max(1, round(wanted)))
        shares = self._shares(rounds)
        more = [share - first for share, first in zip(shares, self._first, strict=True)]
        return rounds, more if sum(more) >= WORTH_AGAIN else [Fraction(0)] * len(more)

    def _rest(self, first: Sequence[Fraction]) -> Fraction:
        """Return the share of the rounds: what the columns, and the coarser versions of those with ranges, leave."""
        return Fraction(1) - sum(first) - sum(first[axis] for axis in self._ranges)

    def _whole_rows(self) -> int:
        """Return the sum of the column with the least noise: a whole number, the same on every machine."""
        least = min(self.measurements, key=lambda measured: measured.noise**2 * measured.values.size)
        return max(1, int(least.values.sum()))

    def _learn(self, measurement: Measurement) -> None:
        self.measurements.append(measurement)
        self._evidence.add(measurement)

    def _offered(self, rounds: int, *, most_cells: float) -> tuple[tuple[Axes, ...], ...]:
        """Return the sets that rounds select from, in the order in which they are used up, as `Candidates` offers them.

        A set within a larger one comes after it, unless that one is too large to be measured as it is.
        """
        sizes, left = [column.size for column in self._columns], list(first_candidates(self._sets))
        room = min(most_cells, SMALLEST_START * self._most_cells)
        weights = self._workload.largest_weights() if any(len(axes) > 2 for axes in left) else {}
        layers: list[tuple[Axes, ...]] = []
        while left and sum(map(len, layers)) < rounds:
            inside = {
                part
                for axes in left
                if len(axes) > 2 and math.prod(map(sizes.__getitem__, axes)) <= room
                for size in range(2, len(axes))
                for part in combinations(axes, size)
                if weights[axes] >= weights[part]
            }
            layers.append(tuple(axes for axes in left if axes not in inside))
            left = [axes for axes in left if axes in inside]
        return tuple(layers)

    @staticmethod
    def _worth_cells(rows: float, noise: float) -> float:
        """Return the most cells of a marginal that is worth measuring with this noise."""
        return ROOM * rows / (ABSOLUTE * max(noise, LEAST_NOISE))

    def _room(self, number: int) -> int:
        """Return the most cells of the model after a round. It grows with the rounds, so that early ones do not use it up."""
        grown = int(self._most_cells * (SMALLEST_START + (1 - SMALLEST_START) * number / self._rounds))
        return grown if self.earlier is None else max(grown, self.model.cells)


def _candidates(workload: Workload, *, most: int) -> tuple[Axes, ...]:
    """Return the parts of the workload's marginals that rounds select from. If not all can be measured, larger ones only as their parts.

    >>> len(_candidates(Workload.all_of(attributes=5, order=4), most=60)), len(_candidates(Workload.all_of(attributes=9, order=4), most=60))
    (25, 120)
    """
    sets = tuple(axes for axes in workload.parts() if len(axes) > 1)
    return sets if len(sets) <= most else tuple(axes for axes in sets if len(axes) <= MOST_COLUMNS)


def _within_reach(workload: Workload, columns: Sequence[Column]) -> Workload:
    """Return the workload without columns of one cell, and without ranges on columns too small for coarser versions."""
    telling = workload.telling([column.size for column in columns])
    ranges = tuple(axis for axis in telling.ranges if has_levels(columns[axis].size))
    return telling if ranges == telling.ranges else replace(telling, ranges=ranges)


def _megabytes(cells: int) -> str:
    """Format the size of a model in megabytes, rounded up: to whole ones, or below one to thousandths.

    >>> _megabytes(400), _megabytes(300_000)
    ('0.004', '3')
    """
    size = cells * BYTES_PER_CELL / 2**20
    return f"{math.ceil(size) if size > 1 else math.ceil(1000 * size) / 1000:g}"


def has_levels(cells: int) -> bool:
    """Return whether a column of `cells` cells is measured in coarser versions if it has ranges."""
    return _most_levels(cells) > 0


def _most_levels(cells: int) -> int:
    """Return the most versions of a column that are measured for its ranges. The coarsest has two cells or more.

    >>> [_most_levels(cells) for cells in (7, 8, 31, 32, 10**6)]
    [0, 1, 1, 2, 6]
    """
    levels = 0
    while cells >= 2 * FEWER and levels < len(LADDER):
        cells, levels = cells // FEWER, levels + 1
    return levels


def _levels_of(resolutions: Resolutions, column: int) -> list[int]:
    """Return the versions of a column to measure for its ranges, from fine to coarse. Each has at most 1/FEWER of the cells before."""
    taken = [column]
    for axis in resolutions.versions(column)[1:]:
        if FEWER * resolutions.shape[axis] <= resolutions.shape[taken[-1]]:
            taken.append(axis)
    return taken[1 : 1 + len(LADDER)]


def _first_shares(
    columns: Sequence[Column], workload: Workload, *, rounds: int, later: float, pure: bool
) -> list[Fraction]:
    """Return each column's share of the whole budget. A column with ranges gets as much again for its coarser versions.

    The noise of a marginal adds to the error of every workload marginal that contains it. The weighted sum of all noise is least if
    budgets are in proportion to (weight x cells)^(2/3), or to its root with Laplace noise. `later` is that quantity for each round. What
    the rounds learn counts as well as noise, so many rounds limit what the columns get (docs/decisions/0014).
    """
    power = _power(pure=pure)
    parts = workload.weighted_parts()
    sizes = [column.size for column in columns]
    wanted = [(parts.get((axis,), 1) * size) ** power for axis, size in enumerate(sizes)]
    all_wanted = sum(wanted) + sum(wanted[axis] for axis in workload.ranges)
    most = min(MOST_FIRST, (MANY_ROUNDS / max(rounds, 1)) ** ROUNDS_DEAR)
    together = max(LEAST_FIRST, min(most, all_wanted / (all_wanted + rounds * later))) if rounds * later else 1.0
    return [Fraction(together * want / all_wanted).limit_denominator(10**6) for want in wanted]


def _wanted_later(columns: Sequence[Column], workload: Workload, *, pure: bool) -> float:
    """Return a round's (weight x cells)^power, to compare with the columns'. Its marginal is unknown yet: assume a moderate size."""
    power, parts, sizes = _power(pure=pure), workload.weighted_parts(), [column.size for column in columns]
    wanted: list[float] = [
        (weight * min(math.prod(map(sizes.__getitem__, axes)), TYPICAL_CELLS)) ** power
        for axes, weight in parts.items()
        if len(axes) > 1
    ]
    return sum(wanted) / max(len(wanted), 1)


def _power(*, pure: bool) -> float:
    return 1 / 2 if pure else 2 / 3
