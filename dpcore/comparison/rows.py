"""Rows as codes, in the form in which a release can be compared with the true table, and the counts of their marginals."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.marginals.workload import Axes
from dpcore.private import Private
from dpcore.tables.ingest import Records
from dpcore.universe import Universe
from dpcore.universe.spread import null_codes

Codes = npt.NDArray[np.integer[Any]]
Counts = npt.NDArray[np.float64]

DENSE_CELLS = 1 << 22
"""Marginals with more cells than this are counted by the cells that occur."""


class CodedRows(Private):
    """Rows, as an array of codes for each column, and how often each row counts.

    Attributes:
        codes: One array for each column.
        weights: How often each row counts; None if each counts once.
    """

    __slots__ = ("codes", "weights")

    def __init__(self, codes: Sequence[Codes], *, weights: npt.NDArray[Any] | None = None) -> None:
        self.codes = tuple(codes)
        self.weights = None if weights is None else weights.astype(np.float64)

    @property
    def number(self) -> int:
        """The number of rows, whatever they count."""
        return len(self.codes[0])

    @property
    def total(self) -> float:
        """The number of rows, each as often as it counts."""
        return float(self.number) if self.weights is None else float(self.weights.sum())

    def take(self, rows: npt.NDArray[Any]) -> "CodedRows":
        """Return some rows, each counting once."""
        return CodedRows([code[rows] for code in self.codes])

    def keys(self, axes: Axes, shape: Sequence[int]) -> npt.NDArray[np.int64]:
        """Return the number of each row's cell over some axes."""
        keys = np.zeros(self.number, dtype=np.int64)
        for axis in axes:
            keys *= shape[axis]
            keys += self.codes[axis]
        return keys

    def counts(self, axes: Axes, shape: Sequence[int]) -> Counts:
        """Return the counts over some axes, as an array with these axes in order."""
        sizes = [shape[axis] for axis in axes]
        counted = np.bincount(self.keys(axes, shape), weights=self.weights, minlength=prod(sizes))
        return counted.astype(np.float64).reshape(sizes)

    def shares(self, axes: Axes, shape: Sequence[int]) -> Counts:
        """Return the counts as shares of the total."""
        return self.counts(axes, shape) / max(self.total, 1.0)


def distance(left: CodedRows, right: CodedRows, axes: Axes, shape: Sequence[int]) -> float:
    """Return the L1 distance between the shares of two tables over some axes, from 0 to 2."""
    if prod(shape[axis] for axis in axes) <= DENSE_CELLS:
        return float(np.abs(left.shares(axes, shape) - right.shares(axes, shape)).sum())
    keys = np.concatenate([left.keys(axes, shape), right.keys(axes, shape)])
    signed = np.concatenate([_share_of_each(left), -_share_of_each(right)])
    _, place = np.unique(keys, return_inverse=True)
    return float(np.abs(np.bincount(place, weights=signed)).sum())


def _share_of_each(rows: CodedRows) -> Counts:
    weights = np.ones(rows.number) if rows.weights is None else rows.weights
    return np.asarray(weights / max(rows.total, 1.0))


class Comparable:
    """The cells in which a release can be compared with the true table.

    A release shows every null alike, whether it stands for a missing value or for one outside the universe. Their cells are merged.

    Attributes:
        universe: The universe of the release.
    """

    def __init__(self, universe: Universe) -> None:
        self.universe = universe

    @cached_property
    def groups(self) -> tuple[npt.NDArray[np.int64], ...]:
        """For each column the compared cell of every code."""
        cells = []
        for attribute in self.universe.attributes.values():
            groups = np.arange(attribute.size)
            nulls = list(null_codes(attribute))
            groups[nulls[1:]] = nulls[0] if nulls else 0
            _, dense = np.unique(groups, return_inverse=True)
            cells.append(dense.astype(np.int64))
        return tuple(cells)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The number of compared cells of each column."""
        return tuple(int(groups.max()) + 1 for groups in self.groups)

    def labels(self, column: int) -> tuple[str, ...]:
        """Return the text of each compared cell of a column."""
        attribute, groups = tuple(self.universe.attributes.values())[column], self.groups[column]
        nulls, named = null_codes(attribute), attribute.labels
        shown = ["null"] * self.shape[column]
        for code, cell in enumerate(groups.tolist()):
            if code not in nulls or len(nulls) == 1:
                shown[cell] = named[code]
        return tuple(shown)

    def rows(self, chunks: Iterable[tuple[Sequence[Codes], npt.NDArray[Any] | None]]) -> CodedRows:
        """Return rows of the universe's codes in compared cells."""
        parts = list(chunks)
        codes = []
        for column, groups in enumerate(self.groups):
            every = np.concatenate([np.empty(0, dtype=np.int64), *(part[column] for part, _ in parts)])
            codes.append(groups.astype(np.min_scalar_type(self.shape[column] - 1))[every])
        if all(weights is None for _, weights in parts):
            return CodedRows(codes)
        weights = [np.ones(len(part[0])) if weights is None else weights for part, weights in parts]
        return CodedRows(codes, weights=np.concatenate(weights))

    def read(self, records: Records) -> CodedRows:
        """Return the rows of records in compared cells."""
        return self.rows(records.chunks())

    def merged(self, counts: npt.NDArray[Any], axes: Axes) -> Counts:
        """Return counts over the universe's codes as counts of compared cells."""
        merged = np.asarray(counts, dtype=np.float64)
        for place, axis in enumerate(axes):
            groups = self.groups[axis]
            if len(groups) > self.shape[axis]:
                moved = np.moveaxis(merged, place, 0)
                summed = np.zeros((self.shape[axis], *moved.shape[1:]))
                np.add.at(summed, groups, moved)
                merged = np.moveaxis(summed, 0, place)
        return merged
