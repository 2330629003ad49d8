"""Merge the cells of a column by its noisy counts: interactions of cells that noise would swamp are not worth measuring.

All decisions use whole numbers, so that a run that is resumed on another machine gets the same groups.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from dpcore.marginals.measurements import Counts
from dpcore.marginals.resolutions import Groups

PLACES = 1 << 20  # the whole numbers by which values are compared


def coarser_versions(
    steps: Iterable[tuple[Counts, int]], *, cells: int, ordered: bool, apart: int = 0
) -> Iterator[Groups]:
    """Yield ever coarser groupings of a column's cells.

    Cells of an ordered column are merged with their neighbours; cells of an unordered one by their rarity. A grouping that changes nothing,
    or leaves only one group, is skipped.

    Args:
        steps: For each grouping, the weights of the column's cells, such as their noisy counts, and about the least weight of a group.
        cells: The number of cells.
        ordered: Whether the cells are ordered.
        apart: The number of cells at the end of an ordered column that are outside the order, such as the one for missing values.

    >>> steps = [(np.array([9, 1, 2, 1, 9, 4]), 3)]
    >>> [groups.tolist() for groups in coarser_versions(steps, cells=6, ordered=True, apart=1)]
    [[0, 1, 1, 2, 3, 4]]
    """
    groups = np.arange(cells, dtype=np.intp)
    run = cells - apart if ordered else 0  # the number of leading groups that are ordered
    for weights, least in steps:
        positive, merged, new_run = np.maximum(weights, 0), groups, run
        if run:
            neighbours = _neighbours(_held(positive, merged)[:run], least)
            new_run = int(neighbours[-1]) + 1
            merged = np.append(neighbours, np.arange(new_run, new_run + groups.max() + 1 - run))[merged]
        merged = _rare(_held(positive, merged), least, run=new_run)[merged]
        if 0 < merged.max() < groups.max():
            groups, run = merged, new_run
            yield groups


def spread_weights(counts: Counts, values: Sequence[float]) -> Counts:
    """Return weights of the cells of an ordered column: the rows of each times their distance from the mean, in all as much as the rows.

    Groups of equal rows hide how a mean shifts, because rows far from the middle share a group with many that are near. Groups of equal
    spread show it. Cells beyond `values` are outside the order, and their weights are their rows.

    >>> spread_weights(np.array([90, 5, 5, 3]), [0.0, 1.0, 100.0]).tolist()
    [48, 2, 50, 3]
    """
    rows, places = np.maximum(counts, 0), np.asarray(values)
    width = float(places[-1] - places[0]) or 1.0
    whole = np.rint((places - places[0]) / width * PLACES).astype(np.int64)
    held = rows[: len(whole)]
    spread = held * np.abs(whole - (held * whole).sum() // max(held.sum(), 1))
    share = int(held.sum()) / max(int(spread.sum()), 1)
    return np.append(np.rint(spread * share).astype(np.int64), rows[len(whole) :])


def _held(counts: Counts, groups: Groups) -> Counts:
    held = np.zeros(groups.max() + 1, dtype=np.int64)  # `bincount` would add floats
    np.add.at(held, groups, counts)
    return held


def _neighbours(counts: Counts, rows: int) -> Groups:
    """Merge neighbours until they have `rows` rows. A cell that has as many by itself stays alone."""
    groups = np.zeros(len(counts), dtype=np.intp)
    group, held = 0, 0
    for cell, count in enumerate(counts):
        if cell and (held >= rows or (count >= rows and held > 0)):
            group, held = group + 1, 0
        groups[cell] = group
        held += int(count)
    if group and 2 * held < rows:  # the rest is too small for a group
        groups[groups == group] = group - 1
    return groups


def _rare(counts: Counts, rows: int, *, run: int) -> Groups:
    """Merge all cells with fewer than `rows` rows into one group, except those of the leading run.

    If all cells are rare, that would leave only one group. Then the rarest cells are merged until they have enough rows, and so on.
    """
    rare = counts < rows
    rare[:run] = False
    if rare.all():
        order = np.argsort(counts, kind="stable")
        return _neighbours(counts[order], rows)[np.argsort(order, kind="stable")]
    if not rare.any():
        return np.arange(len(counts), dtype=np.intp)
    if 2 * int(counts[rare].sum()) < rows:  # too few rows for a group: merge them into the rarest other cell
        taker = int(np.where(rare, np.iinfo(np.int64).max, counts).argmin())
        if taker < run:  # that cell keeps its place in the order
            return np.where(rare, taker, np.cumsum(~rare) - 1).astype(np.intp)
        rare[taker] = True
    groups = np.cumsum(~rare) - 1
    groups[rare] = np.count_nonzero(~rare)
    return groups.astype(np.intp)
