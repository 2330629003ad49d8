"""How large errors usually are in a release, learned from random counts by its replicates."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np

from dpcore.answers.uncertainty import Scale
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.workload import Axes
from dpcore.models import Model
from dpcore.models.model import Weights
from dpcore.models.projection import projected
from dpcore.universe import Attribute

SETS, COUNTS_EACH = 32, 4  # the random counts from which the usual size of errors is learned
MOST_CELLS = 1 << 20  # of each of them


class UsualErrors:
    """Collects the errors of random counts, replicate by replicate: of counts over any columns, and of those that measurements cover.

    The two are kept apart. A cell of a measured marginal has all of that marginal's noise, while a count of the same size over four
    columns is the sum of parts of many.
    """

    def __init__(
        self, pilot: Model, measurements: Sequence[Measurement], columns: Sequence[Attribute], rng: np.random.Generator
    ) -> None:
        self._any = list(random_counts(columns, rng))
        self._any_rows = counts_of(pilot, self._any)
        marginals = [measured for measured in measurements if measured.cell is None and measured.axes]
        self._covered = list(covered_counts(marginals, pilot, rng))
        self._covered_rows = self._within(pilot)
        self._any_squares, self._covered_squares = np.zeros(len(self._any)), np.zeros(len(self._covered))
        self._replicates = 0

    def add(self, replicate: Model) -> None:
        """Add the errors of one more replicate."""
        self._any_squares += (counts_of(replicate, self._any) - self._any_rows) ** 2
        self._covered_squares += (self._within(replicate) - self._covered_rows) ** 2
        self._replicates += 1

    def scale(self) -> Scale:
        """Return the usual variance of a count, as a function of what is known about it."""
        of_any = Scale.regressors(self._any_rows, np.array([float(len(axes)) for axes, _ in self._any]))
        variances = np.log([count.variance for count in self._covered])
        columns = np.array([float(len(count.axes)) for count in self._covered])
        of_covered = Scale.regressors(self._covered_rows, variances, columns)
        return Scale(self._curve(of_any, self._any_squares), self._curve(of_covered, self._covered_squares))

    def _within(self, model: Model) -> Weights:
        marginals = model.marginals({count.axes for count in self._covered})
        return np.array([float(marginals[count.axes][count.box].sum()) for count in self._covered])

    def _curve(self, regressors: Weights, squares: Weights) -> tuple[float, ...]:
        """Fit the usual variance on a logarithmic scale.

        The logarithm of a mean of B squares is lower than that of its expectation, by about 1 / B.
        """
        # A little weight on 0 for every coefficient keeps the fit defined where all random counts are alike.
        penalty = 1e-6 * np.eye(regressors.shape[-1])
        logarithms = np.log(squares / self._replicates + 1.0) + 1 / self._replicates
        solution = np.linalg.solve(regressors.T @ regressors + penalty, regressors.T @ logarithms)
        return tuple(map(rounded, solution.tolist()))


def random_counts(attributes: Sequence[Attribute], rng: np.random.Generator) -> Iterator[tuple[Axes, list[Weights]]]:
    """Yield random counts over one to four columns: for each column, which of its cells count. Several in a row have the same columns."""
    small = [axis for axis, attribute in enumerate(attributes) if attribute.size <= MOST_CELLS]
    for number in range(SETS if small else 0):
        columns = min(1 + number % 4, len(small))
        axes = tuple(sorted(rng.choice(small, columns, replace=False).tolist()))
        while math.prod(attributes[axis].size for axis in axes) > MOST_CELLS:
            axes = axes[:-1]
        for _ in range(COUNTS_EACH):
            yield axes, [random_cells(attributes[axis], rng) for axis in axes]


def random_cells(attribute: Attribute, rng: np.random.Generator) -> Weights:
    """Return a random range of an ordered column's cells, or a random set of a few categories, as ones among zeros."""
    cells = np.zeros(attribute.size)
    if attribute.ordered:
        first, last = sorted(rng.integers(0, attribute.size, 2).tolist())
        cells[first : last + 1] = 1.0
    else:
        cells[rng.choice(attribute.size, rng.integers(1, max(2, attribute.size // 2 + 1)), replace=False)] = 1.0
    return cells


def counts_of(model: Model, asked: Sequence[tuple[Axes, list[Weights]]]) -> Weights:
    """Return how many rows a model has in the chosen cells of each of some counts. Counts in a row that have the same columns are one question."""
    counts: list[Weights] = []
    for axes, group in groupby(asked, key=itemgetter(0)):
        several = [np.stack(chosen, axis=1) for chosen in zip(*(cells for _, cells in group), strict=True)]
        counts.append(np.einsum("i" * len(axes) + "->i", projected(model, axes, several)))
    return np.concatenate(counts) if counts else np.empty(0)


@dataclass(frozen=True)
class Covered:
    """A count that measurements cover: a box of cells of some axes, and the variance of their noisy sums, averaged by precision."""

    axes: Axes
    box: tuple[slice, ...]
    variance: float


def covered_counts(measurements: Sequence[Measurement], pilot: Model, rng: np.random.Generator) -> Iterator[Covered]:
    """Yield random counts that measurements cover: cells, those with many rows more often, and ranges."""
    chosen = sorted(rng.choice(len(measurements), min(SETS, len(measurements)), replace=False).tolist())
    for axes in dict.fromkeys(measurements[at].axes for at in chosen):
        counts = pilot.marginal(axes)
        covering = [measured for measured in measurements if set(axes) <= set(measured.axes)]
        precision = sum(counts.size / float(measured.variances.sum()) for measured in covering)
        for box in _boxes(counts, rng):
            yield Covered(axes, box, counts[box].size / precision)


def _boxes(counts: Weights, rng: np.random.Generator) -> Iterator[tuple[slice, ...]]:
    """Yield random cells and ranges of a marginal."""
    weights = np.maximum(counts.ravel(), 0.0) + 1 / counts.size
    heavy = rng.choice(counts.size, COUNTS_EACH, p=weights / weights.sum())
    cells = np.transpose(np.unravel_index([*heavy, *rng.integers(counts.size, size=COUNTS_EACH)], counts.shape))
    ranges = rng.integers(0, counts.shape, (2, COUNTS_EACH, counts.ndim))
    first, last = np.concatenate([cells, ranges.min(axis=0)]), np.concatenate([cells, ranges.max(axis=0)])
    for low, high in zip(first.tolist(), last.tolist(), strict=True):
        yield tuple(slice(start, end + 1) for start, end in zip(low, high, strict=True))


def rounded(number: float) -> float:
    """Round to nine digits, so that a process with another number of threads, which sums in another order, writes the same file.

    >>> rounded(0.1 + 0.2)
    0.3
    """
    return float(f"{number:.9g}")
