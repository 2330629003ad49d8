"""Judge a release before it is published: the errors of its counts, and the figures of its pictures. Nothing is charged for it."""

import math
from collections.abc import Iterable, Iterator
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
from dpcore.marginals.workload import Axes, Workload
from dpcore.models.model import Weights
from dpcore.release.draft import Judgement
from dpcore.reporting.count import Count
from dpcore.reporting.portrait import GUESS, INFERRED, ColumnPicture, CountTable, PairPicture, Portrait
from dpcore.reporting.ratings import FAIR_ERROR, Rating, rate
from dpcore.universe import Universe
from dpcore.universe.leaves import Fine

MOST_PICTURES, MOST_PAIRED, MOST_COMPARED = 100, 24, 64
"""Columns with a picture, columns whose pairs are shown, and columns among which those with the strongest dependence are found."""
AT_ONCE = 64


def judge(release: Release, workload: Workload) -> Judgement:
    """Return the errors of a workload's counts, and the portrait of the release.

    Args:
        release: A release that knows about its errors.
        workload: The marginals that matter.
    """
    universe, names = release.universe, release.universe.names
    listed, left_out = listed_marginals(universe, workload)
    dependence = dict(_dependence(release, _comparable(universe, MOST_COMPARED)))
    paired = _most_dependent(len(names), dependence)
    pairs = [axes for axes in combinations(paired, 2) if axes in dependence]
    intervals = Intervals(release)
    intervals.ensemble.keep(dict.fromkeys((*listed, *pairs)))
    found = {axes: errors_of(intervals, universe, axes) for axes in dict.fromkeys((*listed, *pairs))}
    measured = Measured(release)
    tables = {axes: _table(universe, each, _basis(each, measured)) for axes, each in found.items()}
    pictures = [axes for axes in listed if len(axes) == 1][:MOST_PICTURES]
    portrait = Portrait(
        columns=tuple(_picture(intervals, universe, tables[axes], found[axes]) for axes in pictures),
        paired=tuple(names[axis] for axis in paired),
        unpaired=tuple(name for axis, name in enumerate(names) if axis not in paired),
        pairs=tuple(_pairs(universe, paired, tables, dependence)),
        tables=tuple(sorted((tables[axes] for axes in listed), key=_trust)),
        left_out=tuple(tuple(names[axis] for axis in axes) for axes in left_out),
        more_columns=len(names) - len(pictures),
        level=LEVEL,
        total=release.model.total,
    )
    return Judgement(errors_table(universe, (found[axes] for axes in listed)), portrait)


def _picture(intervals: Intervals, universe: Universe, table: CountTable, found: CountErrors) -> ColumnPicture:
    """Return the picture of a column."""
    attribute = universe.attributes[universe.names[found.axes[0]]]
    counts = column_counts(intervals, universe, found)
    note = picture_note(attribute, counts)
    return ColumnPicture(table, counts, on_axis=has_axis(attribute), cells=cells_words(attribute), note=note)


def _trust(table: CountTable) -> tuple[int, float]:
    """Sort from the best to the worst: by rating, and then by error."""
    return list(Rating).index(table.rating), table.error or 0.0


def _comparable(universe: Universe, most: int) -> list[Axes]:
    """Return the pairs of the first columns that have few enough cells, alone and together, the smallest ones first."""
    shape, cells = universe.shape, 0
    found: list[Axes] = []
    pairs = combinations(range(min(len(shape), most)), 2)
    for axes in sorted(pairs, key=lambda axes: math.prod(shape[axis] for axis in axes)):
        size = math.prod(shape[axis] for axis in axes)
        cells += size
        if size > MOST_CELLS_EACH or cells > MOST_CELLS:
            break
        found.append(axes)
    return found


def _dependence(release: Release, pairs: list[Axes]) -> Iterator[tuple[Axes, float]]:
    """Yield pairs of columns with their dependence by the model."""
    model = release.model
    for start in range(0, len(pairs), AT_ONCE):
        marginals = model.marginals(pairs[start : start + AT_ONCE])
        yield from ((axes, mutual_information(counts)) for axes, counts in marginals.items())


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
    for axes, found in dependence.items():
        for axis in axes:
            strongest[axis] = max(found, strongest[axis])
    return tuple(sorted(sorted(strongest, key=lambda axis: (-strongest[axis], axis))[:MOST_PAIRED]))


def _pairs(
    universe: Universe, paired: tuple[int, ...], tables: dict[Axes, CountTable], dependence: dict[Axes, float]
) -> Iterable[PairPicture]:
    for (first, one), (second, other) in combinations(enumerate(paired), 2):
        axes = (one, other)
        if axes in tables:
            table = tables[axes]
            known = None if table.basis == GUESS else dependence.get(axes)
        else:
            columns = (universe.names[one], universe.names[other])
            table, known = CountTable(columns, universe.shape[one] * universe.shape[other], None, INFERRED), None
        yield PairPicture(first, second, table, known)


def _basis(found: CountErrors, measured: Measured) -> str:
    """Return what a table is based on. A guess is inferred from other columns, if measurements connect its own."""
    if found.basis is Basis.GUESS and measured.connected(found.axes):
        return INFERRED
    return str(found.basis)


def _table(universe: Universe, found: CountErrors, basis: str) -> CountTable:
    """Return a marginal as a table with an example: its largest count, or the largest that is not good, if the table is not."""
    columns = tuple(universe.names[axis] for axis in found.axes)
    relative = found.expected / np.maximum(found.counts, 1.0)
    rating = rate(found.share)
    chosen = (
        np.ones(len(relative), dtype=np.bool_) if rating is Rating.GOOD else relative > min(found.share, FAIR_ERROR)
    )
    at = int(np.argmax(np.where(chosen, found.counts, -1.0)))
    value, low, high = (float(each[at]) for each in (found.counts, found.low, found.high))
    example = Count(cell_label(universe, found, at), value, low, high)
    return CountTable(columns, len(found.counts), found.share, basis, example, _blurred(universe, found))


def _blurred(universe: Universe, found: CountErrors) -> float:
    """Return the share of pairs of rows that the cells of columns at full resolution do not tell apart, summed over these columns."""
    counts = np.maximum(found.counts, 0.0).reshape([len(cells) for cells in found.cells])
    shares, blurred = counts / max(float(counts.sum()), 1.0), 0.0
    for place, (axis, cells) in enumerate(zip(found.axes, found.cells, strict=True)):
        attribute = universe.attributes[universe.names[axis]]
        if isinstance(attribute, Fine):
            # The last width is for cells outside the range, such as that of nulls.
            widths = np.append(np.diff(attribute.cell_bounds), 0)
            several = widths[np.minimum(cells, len(widths) - 1)] > 1
            own = shares.sum(axis=tuple(other for other in range(shares.ndim) if other != place))
            blurred += float(np.sum(own[several] ** 2))
    return blurred
