"""Multiplicative weights on a factored model, for universes of any size: measure the worst marginals, as finely as noise allows."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np

from dpcore.curator.curator import Curator, Offer
from dpcore.errors import SpecError
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.resolutions import Groups, Resolutions
from dpcore.marginals.workload import Axes, Workload
from dpcore.marginals.zeros import NO_ZEROS, Zeros
from dpcore.models import FactoredModel
from dpcore.models.factored import BYTES_PER_CELL
from dpcore.models.start import PublicRows, Start, factored_start
from dpcore.strategies.by_rounds import MOST_ROUNDS, MOST_ROUNDS_PURE, ByRounds, Column
from dpcore.strategies.candidates import Candidates, first_candidates
from dpcore.strategies.grouping import coarser_versions, spread_weights
from dpcore.strategies.strategy import NOTHING, EarlyCounts, column_step
from dpcore.strategies.whole import Counted
from dpcore.strategies.worthwhile import ABSOLUTE, Choice, worth_cells

# Tuned on Adult with fourteen columns, see docs/decisions/0014.
MANY_ROUNDS, ROUNDS_DEAR = 12, 0.75  # the columns' share is at most (MANY_ROUNDS / rounds)^ROUNDS_DEAR
ROUNDS, ROUNDS_POWER = 4.0, 0.3  # rounds = ROUNDS x (rows / noise of one marginal alone, in cells)^ROUNDS_POWER
LADDER = (256, 128, 64, 32, 16, 8)  # each group of a coarser version has at least a 256th, a 128th, ... of the rows
SMALLEST_START = 0.25  # the fraction of the model's size that is available at the start
MOST_COLUMNS = 3  # of a candidate, if not all can be measured: see docs/decisions/0006
TYPICAL_CELLS = 400  # the cells of a typical marginal that a round measures
FEWER = 4  # each version of a column that is measured for its ranges has this many times fewer cells
GAUSSIAN_SQUARES, LAPLACE_SQUARES = 2, 5  # the variance of the square of noise of standard deviation 1
TOLERATED = 0.5  # of the expected noise of a marginal: about what the fit leaves of it, see docs/decisions/0014


class Adaptive(ByRounds):
    """Measure every column, then round by round the marginal that the model gets most wrong, then fit all measurements.

    1. All one-way marginals make the first model. Their noisy counts also decide which cells to merge in interactions: each column gets
       coarser versions, in which every group has a certain share of the rows. Where the workload has ranges, some of these versions are
       measured as well: a long range is then a sum of few noisy counts instead of many.
       If there is a round for every pair, the model holds a grid from the start: all pairs, of small columns as they are and of large
       ones in few groups. So each pair can be measured, however much of the model others have taken.
    2. Each of T equal rounds selects a marginal by the exponential mechanism, with the score weight x (|true - expected|_1 - half of the
       noise that its measurement would have), measures it, and takes a few multiplicative steps on all measurements so far. `Candidates`
       decides which marginals are offered: in the first half of the rounds only pairs with the workload's target, as long as there are any;
       and if the plan has a round for every pair, the last rounds are for the pairs that no measurement has connected. If a measurement
       agrees with the model up to noise, only half of the remaining rounds are left, with twice the budget each.
    3. At the end the model is rebuilt from the first one, with all measurements at once, until it fits them as well as the true
       distribution would.

    References: McKenna, Mullins, Sheldon and Miklau 2022 (AIM); Hardt, Ligett and McSherry 2012 (MWEM).
    """

    model: FactoredModel
    SELECTING = Fraction(8, 100)
    WORTH_AGAIN = 0.05
    TRIES = 6  # see docs/decisions/0016

    def __init__(  # noqa: PLR0913  all that a strategy depends on
        self,
        columns: Sequence[Column],
        workload: Workload,
        *,
        rounds: int | None,
        pure: bool,
        model_mb: float,
        early_counts: EarlyCounts = NOTHING,
        zeros: Zeros = NO_ZEROS,
        counted: Counted | None = None,
    ) -> None:
        self._model_cells = self._most_cells = int(model_mb * 2**20 / BYTES_PER_CELL)
        least = sum(column.size for column in columns) + sum(table.size for table in zeros.possible.values())
        if least > self._most_cells:
            what = "the columns and their constraints" if zeros.possible else "the columns"
            raise SpecError(
                f"{what} alone take {_megabytes(least)} MB of model; write `max_model_mb: {_megabytes(4 * least)}` in `strategy`, or declare "
                "coarser columns"
            )
        super().__init__(
            columns, workload, rounds=rounds, pure=pure, early_counts=early_counts, zeros=zeros, counted=counted
        )
        self._levels = {axis: _most_levels(columns[axis].size) for axis in self._ranges}
        self._candidates = Candidates(self.model, (), weights={})
        self._connects = False  # whether every pair is to be measured
        self._connected: set[Axes] = set()  # pairs of columns that were measured together

    @staticmethod
    def _within_reach(workload: Workload, columns: Sequence[Column]) -> Workload:
        """Return the workload without columns of one cell, and without ranges on columns too small for coarser versions."""
        telling = workload.telling([column.size for column in columns])
        ranges = tuple(axis for axis in telling.ranges if has_levels(columns[axis].size))
        return telling if ranges == telling.ranges else replace(telling, ranges=ranges)

    def _selectable(self) -> tuple[Axes, ...]:
        return _candidates(self._workload, most=MOST_ROUNDS_PURE if self._pure else MOST_ROUNDS)

    def _chosen(self, rows: float, *, alone: float) -> Choice:
        """Return the number of rounds that suits the budget: a larger one pays for more rounds, and for less noise in each."""
        most = self._wanted_rounds or min(self._most_rounds, len(self._sets))
        suited: float = ROUNDS * worth_cells(rows, alone) ** ROUNDS_POWER
        number = most if self._wanted_rounds else round(max(1.0, min(most, suited)))
        return Choice((), frozenset(), rounds=number if self._sets else 0)

    def _wanted(self, choice: Choice) -> tuple[list[float], float]:
        """Return what columns and rounds want of the budget. What the rounds learn counts as well as noise, see docs/decisions/0014.

        The noise of a marginal adds to the error of every workload marginal that contains it, so cells count with the weight of these. The
        marginals of rounds are unknown yet: assume a moderate size.
        """
        parts, power = self._workload.weighted_parts(), self._wanted_power
        later = [
            (weight * min(self.resolutions.cells(axes), TYPICAL_CELLS)) ** power
            for axes, weight in parts.items()
            if len(axes) > 1
        ]
        columns = [(parts.get((axis,), 1) * column.size) ** power for axis, column in enumerate(self._columns)]
        return columns, choice.rounds * (sum(later) / max(len(later), 1))

    def _most_first(self, rounds: int) -> float:
        """Return the limit of the columns' share, which many rounds lower."""
        return math.pow(MANY_ROUNDS / max(rounds, 1), ROUNDS_DEAR)

    def _groups(self, choice: Choice, *, worth: float) -> tuple[tuple[Axes, ...], ...]:
        """Return the sets that rounds select from, in the order in which they are used up, as `Candidates` offers them.

        A set within a larger one comes after it, unless that one is too large to be measured as it is.
        """
        left = list(first_candidates(self._sets))
        room = min(worth, SMALLEST_START * self._most_cells)
        weights = self._weights
        layers: list[tuple[Axes, ...]] = []
        while left and sum(map(len, layers)) < choice.rounds:
            inside = {
                part
                for axes in left
                if len(axes) > 2 and self.resolutions.cells(axes) <= room
                for size in range(2, len(axes))
                for part in combinations(axes, size)
                if weights[axes] >= weights[part]
            }
            layers.append(tuple(axes for axes in left if axes not in inside))
            left = [axes for axes in left if axes in inside]
        return tuple(layers)

    @property
    def _modelled_columns(self) -> Resolutions:
        return self.resolutions

    def _prepare_model(self) -> None:
        self._connects = self._measures_every_pair
        grid = self._grid()
        if grid:
            self.model.make_room([tuple(sorted(grid[column] for column in pair)) for pair in self._pairs])
        self._candidates = Candidates(self.model, self._sets, weights=self._weights, grid=grid)

    def _start_from(self, prior: PublicRows) -> Start:
        room = int(self._most_cells * SMALLEST_START / 2)  # the rest is for the first rounds
        return factored_start(self.resolutions, prior, self._sets, room=room)

    def _note(self, axes: Axes) -> None:
        self.model.make_room([axes])  # in the order of rounds, which decides the tree
        self._candidates.measured(axes)
        self._connected.update(combinations(sorted(map(self.resolutions.column, axes)), 2))

    def update(self, number: int, measurement: Measurement) -> None:
        """Take a few steps towards all measurements. If this one tells nothing new, fewer rounds follow, with less noise."""
        tells = self._tells(measurement)
        super().update(number, measurement)
        left = self.rounds - number
        if left and not tells and not self._wanted_rounds:
            fewer = max(1, len(self._unconnected), math.ceil(left / 2))
            self._choice = replace(self._choice, rounds=number + min(left, fewer))

    def _tells(self, measurement: Measurement) -> bool:
        """Return whether a measurement differs from the model by more than noise: its squared error by two standard deviations."""
        errors = (measurement.values - self.model.marginal(measurement.axes)) / measurement.variances**0.5
        chance = math.sqrt((LAPLACE_SQUARES if self._pure else GAUSSIAN_SQUARES) * errors.size)
        return float((errors**2).sum()) > errors.size + 2 * chance

    @property
    def _unconnected(self) -> list[Axes]:
        """The pairs that are still to be measured together."""
        return [pair for pair in self._pairs if pair not in self._connected] if self._connects else []

    def _first_sets(self, number: int) -> Sequence[Axes]:
        """Return what comes first: pairs with the target for half of the rounds, and at the end all sets with a pair that nothing has connected."""
        unconnected = set(self._unconnected)
        if self.rounds - number < len(unconnected):
            return [axes for axes in self._sets if not unconnected.isdisjoint(combinations(axes, 2))]
        return super()._first_sets(number)

    @property
    def _pairs(self) -> list[Axes]:
        return [axes for axes in self._sets if len(axes) == 2]

    @property
    def _measures_every_pair(self) -> bool:
        """Whether there is a round for every pair."""
        return self.rounds >= len(self._pairs) > 0

    def _grid(self) -> tuple[int, ...]:
        """Return a version of each column that the model can hold with all others: small columns as they are, large ones in few groups.

        There is none if not every pair is measured, or the coarsest versions are too large.
        """
        room = SMALLEST_START / 2 * self._most_cells  # the rest is for the first rounds
        versions = [self.resolutions.versions(column) for column in range(len(self._columns))]
        grid = [ladder[-1] for ladder in versions]
        if not self._measures_every_pair or self.resolutions.cells(tuple(grid)) > room:
            return ()
        for column in sorted(range(len(grid)), key=lambda column: self._columns[column].size):
            for axis in versions[column]:
                finer = (*grid[:column], axis, *grid[column + 1 :])
                if self.resolutions.cells(finer) <= room:
                    grid[column] = axis
                    break
        return tuple(grid)

    def _offers(self, curator: Curator, number: int) -> list[Offer]:
        noise = curator.expected_noise((1 - self.SELECTING) / (self.rounds - number + 1))
        noise *= 1.0 if self._whole is None else self._whole.ratio
        return self._candidates.offers(
            number,
            most_cells=worth_cells(self.model.total, noise),
            room=self._room(number),
            tolerated=TOLERATED * ABSOLUTE * noise,
            first=self._first_sets(number),
        )

    def _coarsen(self, curator: Curator) -> None:
        """Merge cells that noise would swamp, or as for the earlier release, so that the axes of both mean the same."""
        for column, groups in self._coarser() if self.earlier is None else self.earlier.coarser():
            self.resolutions.coarsen(column, groups)
            curator.coarsen(column, groups)

    def _coarser(self) -> Iterator[tuple[int, Groups]]:
        """Yield the coarser versions that the noisy counts suggest, each as its column and the group of every cell."""
        rows, measured = self._whole_rows(), dict(self._evidence)
        for axis, column in enumerate(self._columns):
            counts = np.rint(measured[(axis,)].counts).astype(np.int64)
            steps = [(counts, rows // part) for part in LADDER]
            if self._measures_every_pair:  # groups of half of the spread: see docs/decisions/0014
                middles = column.values or range(column.size - column.apart)
                steps.append((spread_weights(counts, middles) if column.ordered else counts, rows // 2))
            versions = coarser_versions(steps, cells=column.size, ordered=column.ordered, apart=column.apart)
            yield from ((axis, groups) for groups in versions)

    def _measure_levels(self, curator: Curator) -> None:
        """Measure coarser versions of the columns that have ranges, for the same share as the columns themselves."""
        self._levels = {}
        for column in self._ranges:
            levels = _levels_of(self.resolutions, column)
            self._levels[column] = len(levels)
            for axis in levels:
                step = f"{column_step(column, self._columns[column].name)}-{self.resolutions.shape[axis]}"
                self._measure(curator, step, axis, self._first[column] / len(levels))

    def _whole_rows(self) -> int:
        """Return the sum of the column with the least noise: a whole number, the same on every machine."""
        least = min(self.measurements, key=lambda measured: measured.noise**2 * measured.values.size)
        return max(1, int(least.values.sum()))

    def _room(self, number: int) -> int:
        """Return the most cells of the model after a round. It grows with the rounds, so that early ones do not use it up."""
        grown = int(self._most_cells * (SMALLEST_START + (1 - SMALLEST_START) * number / self.rounds))
        return grown if self.earlier is None else max(grown, self.model.cells)


def _candidates(workload: Workload, *, most: int) -> tuple[Axes, ...]:
    """Return the parts of the workload's marginals that rounds select from. If not all can be measured, larger ones only as their parts.

    >>> len(_candidates(Workload.all_of(attributes=5, order=4), most=60)), len(_candidates(Workload.all_of(attributes=9, order=4), most=60))
    (25, 120)
    """
    sets = tuple(axes for axes in workload.parts() if len(axes) > 1)
    return sets if len(sets) <= most else tuple(axes for axes in sets if len(axes) <= MOST_COLUMNS)


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
