"""How far a release is from the true table: the error of its workload beside two kinds of rows, and what each step of a run adds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from heapq import nlargest
from itertools import combinations, pairwise
from math import prod

import numpy as np
import numpy.typing as npt

from dpcore.answers.release import Release
from dpcore.comparison.baselines import bootstrap_rows, independent_rows, some_of
from dpcore.comparison.rows import CodedRows, Comparable, Counts, distance
from dpcore.comparison.truth import Truth
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.workload import Axes, Workload
from dpcore.models import Model
from dpcore.models.fitting import Transcript

MOST_MARGINALS = 400
"""If the workload has more marginals, the error is that of a sample of so many, always the same."""

STEPPED_CELLS = 50_000
"""The most cells of a marginal that is followed through the steps of a run: models are slow beyond their own marginals."""

MOST_WORST = 15
"""How many of the worst cells are listed."""

STEPS = ("limit on rows per unit", "marginals that were not measured", "noise", "drawing rows")
"""What a run does to a table, in order. Binning comes before all of them, and changes no count of cells."""


Three = tuple[float, float, float]
"""The errors of the release, of independent columns, and of a bootstrap."""


@dataclass(frozen=True)
class WorkloadErrors:
    """The error of a workload: the mean L1 distance between the shares of its marginals and the true ones, from 0 to 2.

    Attributes:
        release: Of the released rows.
        independent: Of as many rows with independent columns.
        bootstrap: Of as many rows drawn from the true table.
        marginals: How many marginals were compared.
        of: How many the workload has.
        by_order: The same three errors for all marginals of one and of two columns.
        worst: The marginals with the largest errors, with their columns.
    """

    release: float
    independent: float
    bootstrap: float
    marginals: int
    of: int
    by_order: Mapping[str, Three]
    worst: Sequence[tuple[tuple[str, ...], float, float, float]]


def workload_errors(truth: CodedRows, released: CodedRows, cells: Comparable, workload: Workload) -> WorkloadErrors:
    """Compare the marginals of the workload, and all marginals of one and two columns."""
    shape, names = cells.shape, cells.universe.names
    number = max(released.number, 1)
    tables = (released, independent_rows(truth, shape, number=number), bootstrap_rows(truth, number=number))

    @cache
    def errors_of(axes: Axes) -> Three:
        return tuple(distance(truth, table, axes, shape) for table in tables)  # type: ignore[return-value]

    def mean(sets: Iterable[Axes]) -> Three:
        return tuple(np.mean([errors_of(axes) for axes in sets], axis=0).tolist())

    compared = some_of(workload.marginals, most=MOST_MARGINALS)
    columns = range(len(shape))
    pairs = some_of(list(combinations(columns, 2)), most=MOST_MARGINALS)
    worst = sorted(compared, key=lambda axes: -errors_of(axes)[0])[:10]
    return WorkloadErrors(
        *mean(compared),
        marginals=len(compared),
        of=len(workload.marginals),
        by_order={"1": mean((axis,) for axis in columns)} | ({"2": mean(pairs)} if pairs else {}),
        worst=[(tuple(names[axis] for axis in axes), *errors_of(axes)) for axes in worst],
    )


@dataclass(frozen=True)
class WorstCell:
    """A cell whose released count is far off.

    Attributes:
        columns: Its columns.
        values: The text of its value in each of them.
        true: The true count.
        released: The released count, scaled to the true number of rows.
        steps: What each of `STEPS` adds to the count.
    """

    columns: tuple[str, ...]
    values: tuple[str, ...]
    true: float
    released: float
    steps: tuple[float, ...]

    @property
    def conditions(self) -> frozenset[tuple[str, str]]:
        """Its value in each of its columns."""
        return frozenset(zip(self.columns, self.values, strict=True))

    @property
    def cause(self) -> str:
        """The step that moved the count most in the direction of the error."""
        sign = 1.0 if self.released >= self.true else -1.0
        return STEPS[int(np.argmax([sign * step for step in self.steps]))]


@dataclass(frozen=True)
class Steps:
    """The mean error of some marginals after each step of a run, and the worst cells of them.

    Attributes:
        errors: After each of `STEPS`.
        marginals: How many marginals were followed: of several columns, or all single columns if the workload has no others.
        of: How many marginals of several columns the workload and its parts have.
        larger: How many of those have too many cells to be followed.
        columns: For each column the error of its counts after each step.
        cells: The worst cells.
    """

    errors: tuple[float, ...]
    marginals: int
    of: int
    larger: int
    columns: Mapping[str, tuple[float, ...]]
    cells: Sequence[WorstCell]


def follow_steps(
    truth: Truth, released: CodedRows, cells: Comparable, *, release: Release, workload: Workload
) -> Steps:
    """Follow marginals through the steps of a run: the rows that count, a model of exact counts, the model, and the rows."""
    shape = cells.shape
    one_way: list[Axes] = [(axis,) for axis in range(len(shape))]
    several = [axes for axes in workload.parts() if len(axes) > 1]
    small = [axes for axes in several if prod(shape[axis] for axis in axes) <= STEPPED_CELLS]
    sets = one_way + some_of(small, most=max(0, 120 - len(one_way)))
    exact = _exact_model(release, truth.limited, cells)
    expected = [_marginals(model, sets, cells) for model in (exact, release.model)]
    errors, worst = [], []
    for axes in sets:
        true = truth.every.shares(axes, shape)
        stages = [
            truth.limited.shares(axes, shape),
            *(shares[axes] for shares in expected),
            released.shares(axes, shape),
        ]
        errors.append([float(np.abs(stage - true).sum()) for stage in stages])
        worst += _worst(axes, true, stages, cells, total=truth.every.total)
    followed = errors[len(one_way) :] or errors
    return Steps(
        errors=tuple(np.mean(np.array(followed), axis=0).tolist()),
        marginals=len(followed),
        of=len(several),
        larger=len(several) - len(small),
        columns=dict(zip(cells.universe.names, map(tuple, errors), strict=False)),
        cells=_distinct(nlargest(6 * MOST_WORST, worst, key=lambda cell: abs(cell.released - cell.true))),
    )


def _marginals(model: Model, sets: Sequence[Axes], cells: Comparable) -> dict[Axes, Counts]:
    """Return the shares that a model expects in compared cells."""
    marginals = model.marginals(sets)
    return {axes: cells.merged(marginals[axes], axes) / model.total for axes in sets}


def _exact_model(release: Release, counted: CodedRows, cells: Comparable) -> Model:
    """Fit the release's kind of model to the exact counts of everything that it was fitted to."""
    learned = release.transcript
    return release.fit(
        Transcript(
            first=tuple(_exact(measured, release, counted, cells) for measured in learned.first),
            later=tuple(_exact(measured, release, counted, cells) for measured in learned.later),
        )
    )


def _exact(measured: Measurement, release: Release, rows: CodedRows, cells: Comparable) -> Measurement:
    """Return a measurement with the exact counts in place of its noisy ones, and little noise."""
    resolutions = release.resolutions
    codes, sizes = [], []
    for axis in measured.axes:
        column = resolutions.column(axis)
        groups = resolutions.groups(column, axis)
        codes.append(groups[_first_codes(cells, column)[rows.codes[column]]])
        sizes.append(resolutions.shape[axis])
    joint = CodedRows(codes, weights=rows.weights) if codes else None
    counts = np.array(rows.total) if joint is None else joint.counts(tuple(range(len(sizes))), sizes)
    values = counts if measured.cell is None else counts.ravel()[measured.cell : measured.cell + 1]
    exact = np.rint(values).astype(np.int64).reshape(measured.values.shape)
    return replace(
        measured, values=exact, noise=measured.noise / 10, each=None
    )  # the closer the fit, the longer it takes


def _first_codes(cells: Comparable, column: int) -> npt.NDArray[np.intp]:
    """Return for each compared cell of a column the first code of it."""
    _, first = np.unique(cells.groups[column], return_index=True)
    return np.asarray(first)


def _worst(axes: Axes, true: Counts, stages: Sequence[Counts], cells: Comparable, *, total: float) -> list[WorstCell]:
    gaps = np.abs(stages[-1] - true).ravel()
    chosen = np.argsort(-gaps, kind="stable")[:MOST_WORST]
    labels, names = [cells.labels(axis) for axis in axes], cells.universe.names
    worst = []
    for flat in chosen.tolist():
        place = np.unravel_index(flat, true.shape)
        counts = [float(stage[place]) * total for stage in (true, *stages)]
        worst.append(
            WorstCell(
                columns=tuple(names[axis] for axis in axes),
                values=tuple(labels[at][int(code)] for at, code in enumerate(place)),
                true=counts[0],
                released=counts[-1],
                steps=tuple(after - before for before, after in pairwise(counts)),
            )
        )
    return worst


def _distinct(cells: Sequence[WorstCell]) -> list[WorstCell]:
    """Leave out cells that are parts of a worse one, with about the same error: they would say the same again."""
    distinct: list[WorstCell] = []
    for cell in cells:
        own = cell.conditions
        if not any(own < worse.conditions or own > worse.conditions for worse in distinct):
            distinct.append(cell)
    return distinct[:MOST_WORST]
