"""Which cells of a column are taken together, by its noisy counts: interactions of cells that noise swamps are not worth measuring.

Everything is decided in whole numbers, so that a run that is started again on another machine comes to the same groups.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from dpcore.measurements import Counts
from dpcore.resolutions import Groups


def coarser_versions(counts: Counts, *, least: Sequence[int], ordered: bool) -> Iterator[Groups]:
    """Yield ever coarser groupings of a column's cells: in the n-th, every group has about `least[n]` rows or more.

    A grouping that changes nothing, or leaves one group only, is left out.

    >>> [groups.tolist() for groups in coarser_versions(np.array([9, 1, 2, 1, 9]), least=[3], ordered=True)]
    [[0, 1, 1, 2, 3]]
    """
    positive = np.maximum(counts, 0)
    groups = np.arange(len(counts), dtype=np.intp)
    group = _neighbours if ordered else _rare
    for rows in least:
        held = np.zeros(groups.max() + 1, dtype=np.int64)
        np.add.at(held, groups, positive)
        merged = group(held, rows)[groups]
        if 0 < merged.max() < groups.max():
            groups = merged
            yield groups


def _neighbours(counts: Counts, rows: int) -> Groups:
    """Take neighbours together until they have so many rows; a cell that has them by itself stays alone."""
    groups = np.zeros(len(counts), dtype=np.intp)
    group, held = 0, 0
    for cell, count in enumerate(counts):
        if held >= rows or (count >= rows and held > 0):
            group, held = group + 1, 0
        groups[cell] = group
        held += int(count)
    if group and 2 * held < rows:  # too few are left for a group of their own
        groups[groups == group] = group - 1
    return groups


def _rare(counts: Counts, rows: int) -> Groups:
    """Take all cells together that have fewer rows."""
    rare = counts < rows
    if not rare.any():
        return np.arange(len(counts), dtype=np.intp)
    if (
        not rare.all() and 2 * int(counts[rare].sum()) < rows
    ):  # too few for a group of their own: the rarest other cell takes them in
        rare[np.where(rare, np.iinfo(np.int64).max, counts).argmin()] = True
    groups = np.cumsum(~rare) - 1
    groups[rare] = np.count_nonzero(~rare)
    return groups.astype(np.intp)
