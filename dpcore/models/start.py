"""Where the weights of a model start: at the uniform distribution, or near that of a public table.

A start is not evidence. Measured marginals move the model away from it as far as they contradict it beyond their noise. What was never
measured, or drowns in noise, keeps the structure of the start. If the rows of a public table were counted as measurements instead, a large
table would outvote the private one (docs/decisions/0057).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

from dpcore.marginals.measurements import Measurement
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.models.dense import DenseModel
from dpcore.models.evidence import Evidence
from dpcore.models.factored import FactoredModel
from dpcore.models.model import Model
from dpcore.models.refine import Functions, Misfit, affordable_tries, refine

TRIES = 100  # evaluations of the model
MOST_CELLS = 1 << 21  # of all marginals of a start together
MOST_EXCESS = 0.3  # a start must predict the measurements with at most this part of the error, beyond noise, that is there without it


@dataclass(frozen=True, eq=False)
class Start:
    """The distribution from which a model starts.

    Attributes:
        functions: Its logarithm, as a sum of functions; none for the uniform distribution.
        news: How much of the measurements is news, from 0 to 1. The last fit may use this share of the usual number of parameters.
    """

    functions: Functions
    news: float = 1.0


UNIFORM = Start({})


@dataclass(frozen=True, eq=False)
class PublicRows:
    """The rows of a public table, coded by a universe.

    Attributes:
        codes: The codes of the rows in each column. Columns that the table does not tell are left out.
        rows: The number of rows.
    """

    codes: Mapping[int, npt.NDArray[np.integer]]
    rows: int

    def counts(self, axes: Axes, resolutions: Resolutions) -> npt.NDArray[np.int64]:
        """Return the counts of a marginal.

        >>> rows = PublicRows({0: np.array([0, 1, 1]), 1: np.array([2, 0, 2])}, rows=3)
        >>> rows.counts((0, 1), Resolutions((2, 3))).tolist()
        [[0, 0, 1], [1, 0, 1]]
        """
        shape = resolutions.shape_of(axes)
        cells = np.zeros(self.rows, dtype=np.int64)
        for axis, size in zip(axes, shape, strict=True):
            column = resolutions.column(axis)
            cells = cells * size + resolutions.groups(column, axis)[self.codes[column]]
        return np.bincount(cells, minlength=math.prod(shape)).reshape(shape)

    def tells(self, columns: Iterable[int]) -> bool:
        """Return whether the table tells all of these columns."""
        return all(column in self.codes for column in columns)


@dataclass(frozen=True)
class Gate:
    """Whether a start is used. All of this is computed from noisy counts that are paid for anyway, so it costs nothing.

    It is used in the rounds only if the noisy one-way marginals are nearer to it than to the uniform distribution. It is used for the
    last model only if the first model, which knows the columns, also predicts the measurements of the rounds far better with it.

    Attributes:
        taken: Whether the last model started there.
        distance: The squared distance between the columns' noisy shares and those of the start, summed over all cells, less what the noise
            adds on average.
        uniform_distance: The same for the uniform distribution.
        error: The squared error of the prediction, in units of the noise, a cell; 1 if noise is all that is wrong. None before the end.
        uniform_error: The same without the start.
    """

    taken: bool
    distance: float
    uniform_distance: float
    error: float | None = None
    uniform_error: float | None = None

    @classmethod
    def of(cls, rows: PublicRows, evidence: Evidence, resolutions: Resolutions) -> "Gate":
        """Compare a public table with measured columns."""
        distance = uniform = 0.0
        for axes, target in evidence:
            if len(axes) == 1 and axes[0] < resolutions.columns and rows.tells(axes):
                shares, noise = target.counts / evidence.total, target.variance / evidence.total**2
                public = rows.counts(axes, resolutions) / max(rows.rows, 1)
                distance += float(np.sum((shares - public) ** 2 - noise))
                uniform += float(np.sum((shares - 1 / shares.size) ** 2 - noise))
        return cls(rows.rows > 0 and distance < uniform, distance=distance, uniform_distance=uniform)


def dense_start(shape: tuple[int, ...], rows: PublicRows, sets: Iterable[Axes]) -> Start:
    """Return the start that a public table tells a dense model, from its largest marginals among these sets."""
    resolutions, cells = Resolutions(shape), 0
    chosen: list[Axes] = []
    for axes in sorted(filter(rows.tells, sets), key=lambda axes: (-len(axes), resolutions.cells(axes))):
        within = any(set(axes) <= set(larger) for larger in chosen)
        if not within and cells + resolutions.cells(axes) <= MOST_CELLS:
            chosen.append(axes)
            cells += resolutions.cells(axes)
    model = DenseModel(shape, total=float(max(rows.rows, 1)))
    tries = affordable_tries(math.prod(shape), most=TRIES)
    return _fitted(model, rows, sorted(chosen), tries=tries)


def factored_start(resolutions: Resolutions, rows: PublicRows, sets: Iterable[Axes], *, room: int) -> Start:
    """Return the start that a public table tells a factored model, from those pairs of columns within these sets that tell most.

    Pairs are added by their mutual information, as long as the model has at most `room` cells.
    """
    pairs = dict.fromkeys(pair for axes in sets for pair in combinations(axes, 2) if rows.tells(pair))
    # With fewer than four rows a cell, cells are merged.
    versions = [_version(resolutions, pair, most_cells=rows.rows / 4) for pair in pairs]
    information = {axes: _information(rows.counts(axes, resolutions)) for axes in versions}
    model = FactoredModel(resolutions, total=float(max(rows.rows, 1)))
    chosen: list[Axes] = []
    for axes in sorted(information, key=lambda axes: (-information[axes], axes)):
        if information[axes] > 0 and model.cells_with(axes) <= room:
            model.make_room([axes])
            chosen.append(axes)
    return _fitted(model, rows, chosen, tries=TRIES)


def _fitted(model: Model, rows: PublicRows, sets: Iterable[Axes], *, tries: int) -> Start:
    """Fit a model to the columns of a public table and these marginals, until only the sampling error of the table is left."""
    evidence = Evidence()
    for axes in (*((column,) for column in sorted(rows.codes)), *sets):
        counts = rows.counts(axes, model.resolutions)
        noise = max(1.0, math.sqrt(float(counts.mean())))  # the sampling error of a typical cell
        evidence.add(Measurement("prior", axes, cell=None, values=counts, noise=noise))
    functions = refine(model, evidence, {}, tries=tries)
    # As they are stored in a release, so that everybody starts from the same numbers.
    return Start({axes: function.astype(np.float32).astype(np.float64) for axes, function in functions.items()})


def _version(resolutions: Resolutions, pair: Axes, *, most_cells: float) -> Axes:
    """Return the finest versions of two columns, both at the same step of their ladders, with at most so many cells; else the coarsest."""
    ladders = [resolutions.versions(column) for column in pair]
    for step in range(max(map(len, ladders))):
        axes = tuple(ladder[min(step, len(ladder) - 1)] for ladder in ladders)
        if resolutions.cells(axes) <= most_cells:
            break
    return axes


def _information(counts: npt.NDArray[np.int64]) -> float:
    """Return the mutual information of two columns in natural units, less what independent columns would show by chance.

    >>> round(_information(np.array([[50, 0], [0, 50]])), 3), round(_information(np.array([[25, 25], [25, 25]])), 3)
    (0.688, -0.005)
    """
    total = max(int(counts.sum()), 1)
    alone = counts.sum(axis=1, keepdims=True) * (counts.sum(axis=0, keepdims=True) / total)
    seen = counts > 0
    information = float(np.sum(counts[seen] * np.log(counts[seen] / alone[seen]))) / total
    rows, columns = counts.shape
    return information - float((rows - 1) * (columns - 1)) / (2 * total)


def reconsidered(start: Start, gate: Gate, *, started: Misfit, plain: Misfit) -> tuple[Start, Gate]:
    """Return the start of the last model: uniform unless `start` predicts all measurements far better, else `start` with its `news`.

    Args:
        start: The start of the rounds.
        gate: Its gate.
        started: How far the first model with this start, which knows the columns, is from all measurements.
        plain: How far the first model without it is.
    """
    excess = started.error - started.cells
    taken = excess < MOST_EXCESS * (plain.error - plain.cells)
    gate = replace(gate, taken=taken, error=started.error / started.cells, uniform_error=plain.error / plain.cells)
    if not taken:
        return UNIFORM, gate
    excess = max(0.0, excess) / max(started.standing_out, 1)
    # A prediction whose squared error is `excess` times the variance of the noise is best corrected by this part of what is missing.
    return replace(start, news=excess / (1 + excess)), gate
