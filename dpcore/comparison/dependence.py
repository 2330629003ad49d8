"""How strongly each pair of columns depends on each other, in the true table and in the release."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from dpcore.comparison.rows import CodedRows, Comparable, Counts

MOST_GROUPS = 20
"""Columns with more cells are grouped before they are compared pair by pair: neighbours of an ordered column, rare categories."""


@dataclass(frozen=True, eq=False)
class Grouped:
    """Rows with at most `MOST_GROUPS` groups a column."""

    rows: CodedRows
    shape: tuple[int, ...]


def groupings(truth: CodedRows, cells: Comparable) -> list[npt.NDArray[np.int64]]:
    """Return for each column the group of every cell, chosen by the true table."""
    attributes = tuple(cells.universe.attributes.values())
    groupings = []
    for axis, size in enumerate(cells.shape):
        counts = truth.counts((axis,), cells.shape)
        if size <= MOST_GROUPS:
            groups = np.arange(size)
        elif attributes[axis].ordered:
            before = np.cumsum(counts) - counts
            groups = np.minimum((before / max(counts.sum(), 1.0) * MOST_GROUPS).astype(np.int64), MOST_GROUPS - 1)
            nulls = slice(attributes[axis].cells, size)
            groups[nulls] = groups.max() + 1
        else:
            groups = np.full(size, MOST_GROUPS - 1)
            common = np.argsort(-counts, kind="stable")[: MOST_GROUPS - 1]
            groups[common] = np.arange(len(common))
        _, dense = np.unique(groups, return_inverse=True)
        groupings.append(dense.astype(np.int64))
    return groupings


def grouped(rows: CodedRows, groups: Sequence[npt.NDArray[np.int64]]) -> Grouped:
    """Return rows with their cells grouped."""
    codes = [group[code].astype(np.uint8) for group, code in zip(groups, rows.codes, strict=True)]
    return Grouped(CodedRows(codes, weights=rows.weights), tuple(int(group.max()) + 1 for group in groups))


@dataclass(frozen=True)
class Dependence:
    """The dependence of every pair of columns, from 0 for none to 1 for complete.

    Attributes:
        true: Of the true table, by the positions of the columns.
        released: Of the release.
    """

    true: Sequence[Sequence[float]]
    released: Sequence[Sequence[float]]


def dependence(true: Grouped, released: Grouped) -> Dependence:
    """Return the dependence of every pair of columns, by Cramér's V."""
    matrices = []
    for table in (true, released):
        columns = len(table.shape)
        matrix = np.eye(columns)
        for pair in combinations(range(columns), 2):
            matrix[pair] = matrix[pair[::-1]] = cramers_v(table.rows.counts(pair, table.shape))
        matrices.append(matrix.tolist())
    return Dependence(*matrices)


def cramers_v(counts: Counts) -> float:
    """Return Cramér's V of a table of counts, without the bias of small tables (Bergsma 2013).

    >>> cramers_v(np.array([[50.0, 0.0], [0.0, 50.0]])), cramers_v(np.array([[25.0, 25.0], [25.0, 25.0]]))
    (1.0, 0.0)
    """
    present = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    total, (high, wide) = present.sum(), present.shape
    if total < 2 or min(high, wide) < 2:
        return 0.0
    expected = np.outer(present.sum(axis=1), present.sum(axis=0)) / total
    phi = float((((present - expected) ** 2) / expected).sum() / total)
    without_bias = max(0.0, phi - (high - 1) * (wide - 1) / (total - 1))
    rows, columns = high - (high - 1) ** 2 / (total - 1), wide - (wide - 1) ** 2 / (total - 1)
    least = min(rows, columns) - 1
    return float(min(1.0, np.sqrt(without_bias / least))) if least > 0 else 0.0
