"""The private table as counts over the universe: only the cells that occur are kept.

A Histogram is read by the curator alone, which charges before it looks: nothing else may call `marginal`.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.ingest.records import Codes, Records, code_type
from dpcore.private import Private
from dpcore.universe import Universe

Counts: TypeAlias = npt.NDArray[np.int64]

LARGEST_KEY = np.iinfo(np.int64).max
KEPT_CELLS = 8_000_000  # of marginals that were asked for: a selection asks for hundreds, and the next one for most of them again
BLOCK_ROWS = 1 << 15  # counted at a time: what that needs stays near the processor, where it is three times as fast


class Histogram(Private):
    """Exact counts of rows by cell, for universes of any size: memory goes with the distinct rows, not the cells."""

    __slots__ = ("_codes", "_counts", "_kept", "_kept_cells", "_shape")

    def __init__(self, *, codes: Sequence[Codes], counts: Counts, shape: Sequence[int]) -> None:
        self._codes = tuple(codes)
        # most rows of a large universe occur once or twice: a byte of memory each, not eight
        self._counts = counts.astype(code_type(int(counts.max(initial=0)) + 1))
        self._shape = tuple(shape)
        self._kept: dict[tuple[int, ...], Counts] = {}
        self._kept_cells = 0

    @classmethod
    def count(cls, records: Records, universe: Universe) -> "Histogram":
        """Count the records by cell."""
        shape = universe.shape
        cells, counts = _distinct([records.codes(axis) for axis in range(len(shape))], shape)
        return cls(codes=cells, counts=counts, shape=shape)

    def coarsen(self, column: int, groups: npt.NDArray[np.intp]) -> None:
        """Add an axis: a column with some of its cells taken together, as something public says."""
        size = int(groups.max()) + 1
        self._codes = (*self._codes, groups.astype(code_type(size))[self._codes[column]])
        self._shape = (*self._shape, size)

    def marginal(self, axes: tuple[int, ...]) -> Counts:
        """Return the exact counts over some axes, shaped by them in that order, read-only; over none, the exact number of rows.

        For the curator only, after the charge: what this returns is private. It is kept here, as the table is, up to a number of cells.
        """
        if axes not in self._kept:
            counted = self._count(axes)
            counted.flags.writeable = False
            self._kept[axes] = counted
            self._kept_cells += counted.size
            while self._kept_cells > KEPT_CELLS and len(self._kept) > 1:
                self._kept_cells -= self._kept.pop(next(iter(self._kept))).size
        return self._kept[axes]

    def _count(self, axes: tuple[int, ...]) -> Counts:
        shape = tuple(self._shape[axis] for axis in axes)
        size = prod(shape)
        step = max(BLOCK_ROWS, size)
        # bincount adds in float64, which is exact for whole numbers below 2^53, and no table has that many rows
        sums = self._sums(axes, slice(0, step), size)
        for start in range(step, len(self._counts), step):
            sums += self._sums(axes, slice(start, start + step), size)
        return sums.astype(np.int64).reshape(shape)

    def _sums(self, axes: tuple[int, ...], block: slice, size: int) -> npt.NDArray[Any]:
        """Count a block of the distinct rows in the `size` cells over some axes."""
        counts = self._counts[block]
        cells = np.zeros(len(counts), dtype=code_type(size + 1))
        for axis in axes:
            cells *= cells.dtype.type(self._shape[axis])
            cells += self._codes[axis][block]
        return np.bincount(cells, weights=counts, minlength=size)


def _distinct(codes: Sequence[Codes], shape: Sequence[int]) -> tuple[list[Codes], Counts]:
    """Return the distinct rows, column by column, and how often each occurs.

    A row's codes are the digits of one number. Where the next digit could overflow it, the numbers so far are replaced
    by their rank among those that occur, and the way back is remembered.
    """
    keys = np.zeros(len(codes[0]), dtype=np.int64)
    bound = 1
    by_rank: dict[int, Counts] = {}
    for axis, size in enumerate(shape):
        if bound * size > LARGEST_KEY:
            by_rank[axis], keys = np.unique(keys, return_inverse=True)
            bound = len(by_rank[axis])
        keys *= size
        keys += codes[axis]
        bound *= size
    keys, counts = np.unique(keys, return_counts=True)

    cells: list[Codes] = []
    for axis in reversed(range(len(shape))):
        keys, digits = np.divmod(keys, shape[axis])
        cells.append(digits.astype(code_type(shape[axis])))
        if axis in by_rank:
            keys = by_rank[axis][keys]
    return cells[::-1], counts.astype(np.int64)
