"""Judge a release before it is published: the errors of its counts, and the figures of its pictures. Nothing is charged for it."""

import math
from collections.abc import Iterable
from itertools import combinations

import numpy as np

from dpcore.answers.direct import Measured
from dpcore.answers.distributions import cell_label, cells_words, column_counts, has_axis, picture_note
from dpcore.answers.errors import (
    LEVEL,
    MOST_CELLS,
    MOST_CELLS_EACH,
    CountErrors,
    errors_of,
    errors_table,
    listed_marginals,
)
from dpcore.answers.intervals import Basis, Intervals
from dpcore.answers.release import Release
from dpcore.marginals.workload import Axes
from dpcore.models.model import Weights
from dpcore.release.draft import Judgement
from dpcore.reporting.count import Count
from dpcore.reporting.portrait import GUESS, INFERRED, ColumnPicture, CountTable, PairPicture, Portrait
from dpcore.reporting.ratings import FAIR_ERROR, Rating, rate
from dpcore.universe import Universe
from dpcore.universe.leaves import Fine

MOST_PICTURES, MOST_PAIRED, MOST_COMPARED = 100, 24, 64
"""Columns with a picture, columns whose pairs are shown, and columns among which those with the strongest dependence are found."""


def judge(release: Release) -> Judgement:
    """Return the errors of the counts of columns, pairs and measured marginals, and the portrait of a release that knows about its errors."""
    universe, names, measured = release.universe, release.universe.names, Measured(release)
    dependence = {
        axes: mutual_information(counts) for axes, counts in release.model.marginals(_comparable(universe)).items()
    }
    paired = _most_dependent(len(names), dependence)
    listed, left_out = listed_marginals(universe, [*combinations(paired, 2), *measured.sets])
    intervals = Intervals(release)
    intervals.ensemble.keep(listed)
    errors = {axes: errors_of(intervals, universe, axes) for axes in listed}
    tables = {axes: _table(universe, own, _basis(own, measured)) for axes, own in errors.items()}
    pictures = [axes for axes in listed if len(axes) == 1][:MOST_PICTURES]
    portrait = Portrait(
        columns=tuple(_picture(intervals, universe, tables[axes], errors[axes]) for axes in pictures),
        paired=tuple(names[axis] for axis in paired),
        unpaired=tuple(name for axis, name in enumerate(names) if axis not in paired),
        pairs=tuple(_pairs(universe, paired, tables, dependence)),
        tables=tuple(sorted(tables.values(), key=_trust)),
        left_out=tuple(tuple(names[axis] for axis in axes) for axes in left_out),
        more_columns=len(names) - len(pictures),
        level=LEVEL,
        total=release.model.total,
    )
    return Judgement(errors_table(universe, errors.values()), portrait)


def _picture(intervals: Intervals, universe: Universe, table: CountTable, errors: CountErrors) -> ColumnPicture:
    """Return the picture of a column."""
    attribute = universe.attributes[universe.names[errors.axes[0]]]
    counts = column_counts(intervals, universe, errors)
    note = picture_note(attribute, counts)
    return ColumnPicture(table, counts, on_axis=has_axis(attribute), cells=cells_words(attribute), note=note)


def _trust(table: CountTable) -> tuple[int, float]:
    """Sort from the best to the worst: by rating, and then by error."""
    return list(Rating).index(table.rating), table.error or 0.0


def _comparable(universe: Universe) -> list[Axes]:
    """Return the pairs of the first columns that have few enough cells, alone and together, the smallest ones first."""
    shape, cells = universe.shape, 0
    pairs: list[Axes] = []
    for axes in sorted(
        combinations(range(min(len(shape), MOST_COMPARED)), 2), key=lambda axes: shape[axes[0]] * shape[axes[1]]
    ):
        size = shape[axes[0]] * shape[axes[1]]
        cells += size
        if size > MOST_CELLS_EACH or cells > MOST_CELLS:
            break
        pairs.append(axes)
    return pairs


def mutual_information(counts: Weights) -> float:
    """Return the normalised mutual information of two columns: 0 if they are independent, 1 if each determines the other.

    It is divided by the geometric mean of their entropies (Strehl and Ghosh 2002).

    >>> mutual_information(np.array([[5.0, 0.0], [0.0, 5.0]])), mutual_information(np.ones((2, 3)))
    (1.0, 0.0)
    """
    joint = np.maximum(counts, 0.0) / max(float(np.maximum(counts, 0.0).sum()), 1e-300)
    rows, columns = joint.sum(axis=1), joint.sum(axis=0)
    entropies = _entropy(rows) * _entropy(columns)
    if entropies <= 0:
        return 0.0
    shared = _entropy(rows) + _entropy(columns) - _entropy(joint)
    return float(np.clip(round(shared / math.sqrt(entropies), 12), 0.0, 1.0))


def _entropy(shares: Weights) -> float:
    positive = shares[shares > 0]
    return -float(np.sum(positive * np.log(positive)))


def _most_dependent(columns: int, dependence: dict[Axes, float]) -> tuple[int, ...]:
    """Return the columns whose pairs are shown: all, or those with the strongest dependence, in their order. Those not compared come last."""
    strongest = dict.fromkeys(range(columns), -1.0)
    for axes, information in dependence.items():
        for axis in axes:
            strongest[axis] = max(information, strongest[axis])
    return tuple(sorted(sorted(strongest, key=lambda axis: (-strongest[axis], axis))[:MOST_PAIRED]))


def _pairs(
    universe: Universe, paired: tuple[int, ...], tables: dict[Axes, CountTable], dependence: dict[Axes, float]
) -> Iterable[PairPicture]:
    for places in combinations(range(len(paired)), 2):
        axes = tuple(paired[place] for place in places)
        if axes in tables:
            table = tables[axes]
            information = None if table.basis == GUESS else dependence.get(axes)
        else:
            columns = tuple(universe.names[axis] for axis in axes)
            size = math.prod(universe.shape[axis] for axis in axes)
            table, information = CountTable(columns, size, None, INFERRED), None
        yield PairPicture(*places, table, information)


def _basis(errors: CountErrors, measured: Measured) -> str:
    """Return what a table is based on. A guess is inferred from other columns, if measurements connect its own."""
    basis = errors.interval.basis
    return INFERRED if basis is Basis.GUESS and measured.connected(errors.axes) else str(basis)


def _table(universe: Universe, errors: CountErrors, basis: str) -> CountTable:
    """Return a marginal as a table with an example: its largest count, or the largest that is not good, if the table is not."""
    columns, counts = tuple(universe.names[axis] for axis in errors.axes), errors.counts
    rating, shown = rate(errors.share), counts
    if rating is not Rating.GOOD:
        uncertain = errors.expected / np.maximum(counts, 1.0) > min(errors.share, FAIR_ERROR)
        shown = np.where(uncertain, counts, -1.0)
    at = int(np.argmax(shown))
    value, low, high = (float(end[at]) for end in (counts, errors.interval.low, errors.interval.high))
    example = Count(cell_label(universe, errors, at), value, low, high)
    return CountTable(columns, len(counts), errors.share, basis, example, _blurred(universe, errors))


def _blurred(universe: Universe, errors: CountErrors) -> float:
    """Return the share of pairs of rows that the cells of columns at full resolution do not tell apart, summed over these columns."""
    counts = np.maximum(errors.counts, 0.0).reshape(errors.shape)
    shares, blurred = counts / max(float(counts.sum()), 1.0), 0.0
    for place, (axis, cells) in enumerate(zip(errors.axes, errors.cells, strict=True)):
        attribute = universe.attributes[universe.names[axis]]
        if isinstance(attribute, Fine):
            # The last width is for cells outside the range, such as that of nulls.
            widths = np.append(np.diff(attribute.cell_bounds), 0)
            several = widths[np.minimum(cells, len(widths) - 1)] > 1
            own = shares.sum(axis=tuple(dimension for dimension in range(shares.ndim) if dimension != place))
            blurred += float(np.sum(own[several] ** 2))
    return blurred
