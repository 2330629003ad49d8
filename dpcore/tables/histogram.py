"""The private table as counts over the universe. Marginals are counted on demand and cached.

Only the curator may call `marginal` or `prepare`, because it charges before it looks.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from dpcore.errors import StepFailed
from dpcore.marginals.workload import Axes
from dpcore.privacy.protection import Protection
from dpcore.private import Private
from dpcore.tables.counting import Chunk, Coarse, Counts, count_by_norm, count_sets, distinct_rows
from dpcore.tables.ingest.records import Records
from dpcore.universe import CompactCodes, Universe, code_type

KEPT_CELLS = 8_000_000  # in the cache: a selection asks for hundreds of marginals, the next for most of them again
DISTINCT_ROWS = 1 << 20  # up to this many rows, deduplication takes less time than it saves in later counts
SMALL_UNIVERSE = 1 << 20  # universes of up to this many cells are counted in full at once


class Histogram(Private, ABC):
    """Exact counts of rows by cell, for universes of any size.

    Attributes:
        protection: How much one unit adds to these counts, at most. It is public, and comes from where the rows were bounded.
        classes: If rows say which class of sizes their unit is in, the number of classes; else None.
    """

    __slots__ = ("_coarse", "_columns", "_kept", "_kept_cells", "_shape", "classes", "protection")

    def __init__(self, shape: Sequence[int], *, protection: Protection, classes: int | None = None) -> None:
        self.protection = protection
        self.classes = classes
        self._shape = (*shape, *(() if classes is None else (classes,)))
        self._columns = len(self._shape)
        self._coarse: list[Coarse] = []
        self._kept: dict[Axes, Counts] = {}
        self._kept_cells = 0

    @abstractmethod
    def _counts(self, sets: Sequence[Axes]) -> list[Counts]:
        """Count the rows over each set of axes, in as few passes as possible."""

    @abstractmethod
    def _by_norm(self, axes: Axes) -> Counts:
        """Count as many rows of each unit over some axes as keep the norm of its counts within the limit on its rows."""

    def contributions(self, axes: Axes, *, by_class: bool, by_norm: bool) -> Counts:
        """Return the counts over some axes that a measurement adds noise to. Without classes of sizes, this is the marginal.

        For the curator only, after the charge: the result is private.

        Args:
            axes: The axes.
            by_class: Whether the class of the unit's size follows as the last axis.
            by_norm: Whether of each unit as many rows count as keep the norm of its counts within the limit. Otherwise as many as the limit says.
        """
        if self.classes is None:
            return self.marginal(axes)
        asked = (*map(self._place, axes), *((self._columns - 1,) if by_class else ()))
        return self._by_norm(asked) if by_norm else self._counts([asked])[0]

    def _place(self, axis: int) -> int:
        """Return the place of an axis: the class of sizes comes between the columns and their coarser versions."""
        return axis if self.classes is None or axis < self._columns - 1 else axis + 1

    def coarsen(self, column: int, groups: npt.NDArray[np.intp]) -> None:
        """Add an axis: a column with some of its cells merged. The grouping must be public."""
        column, size = self._place(column), int(groups.max()) + 1
        if column >= self._columns:
            finer = self._coarse[column - self._columns]
            column, groups = finer.column, groups[finer.groups]
        self._coarse.append(Coarse(column, groups.astype(code_type(size))))
        self._shape = (*self._shape, size)

    def marginal(self, axes: Axes) -> Counts:
        """Return the exact counts over some axes as a read-only array with these axes in order; without axes, the exact number of rows.

        For the curator only, after the charge: the result is private. Results are cached, up to `KEPT_CELLS` cells.
        """
        if axes not in self._kept:
            self.prepare([axes])
        return self._kept[axes]

    def prepare(self, sets: Sequence[Axes]) -> None:
        """Count several marginals together and cache them. Marginals that exceed the cache are left out."""
        asked = dict.fromkeys(self._that_fit(sets))
        for axes in asked:
            if axes in self._kept:
                # move it to the end of the queue, so that it is not evicted now
                self._kept[axes] = self._kept.pop(axes)
        missing = [axes for axes in asked if axes not in self._kept]
        placed = [tuple(map(self._place, axes)) for axes in missing]
        for axes, counted in zip(missing, self._counts(placed) if missing else (), strict=True):
            counted.flags.writeable = False
            self._kept[axes] = counted
            self._kept_cells += counted.size
        while self._kept_cells > KEPT_CELLS and len(self._kept) > len(asked):
            self._kept_cells -= self._kept.pop(next(iter(self._kept))).size

    def _that_fit(self, sets: Sequence[Axes]) -> Iterator[Axes]:
        cells = 0
        for place, axes in enumerate(dict.fromkeys(sets)):
            cells += prod(self._shape[self._place(axis)] for axis in axes)
            if place and cells > KEPT_CELLS:
                return
            yield axes


class LocalHistogram(Histogram):
    """Counts rows on this machine: the distinct rows if they are few, else the records chunk by chunk."""

    __slots__ = ("_chunks", "_ranked")

    def __init__(
        self,
        chunks: Iterable[Chunk],
        *,
        shape: Sequence[int],
        protection: Protection,
        ranked: Records | None = None,
    ) -> None:
        super().__init__(shape, protection=protection, classes=None if ranked is None else ranked.classes)
        self._chunks = chunks
        self._ranked = ranked

    @classmethod
    def of(
        cls, *, codes: Sequence[CompactCodes], counts: Counts, shape: Sequence[int], protection: Protection
    ) -> "LocalHistogram":
        """Make a histogram of distinct rows and how often each occurs."""
        # most rows of a large universe occur once or twice: store each count in one byte, not eight
        return cls([(tuple(codes), counts.astype(_count_type(counts)))], shape=shape, protection=protection)

    @classmethod
    def count(cls, records: Records, universe: Universe) -> "LocalHistogram":
        """Build the histogram of records: deduplicate them now if that is cheap, else count each marginal on demand."""
        shape, chunks, protection = universe.shape, _Again(records), records.protection
        if records.classes is not None:
            return cls(chunks, shape=shape, protection=protection, ranked=records)
        if prod(shape) <= SMALL_UNIVERSE:
            (counts,) = count_sets(chunks, shape=shape, sets=[tuple(range(len(shape)))])
            cells = np.nonzero(counts)
            codes = [code.astype(code_type(size)) for code, size in zip(cells, shape, strict=True)]
            return cls.of(codes=codes, counts=counts[cells], shape=shape, protection=protection)
        few = _few(chunks)
        if few is None:
            return cls(chunks, shape=shape, protection=protection)
        codes, counts = distinct_rows(few, shape=shape)
        return cls.of(codes=codes, counts=counts, shape=shape, protection=protection)

    def _counts(self, sets: Sequence[Axes]) -> list[Counts]:
        return count_sets(self._chunks, shape=self._shape, sets=sets, coarse=self._coarse)

    def _by_norm(self, axes: Axes) -> Counts:
        if self._ranked is None:
            raise StepFailed("rows without ranks cannot be counted by norm; report this")
        chunks, norm = self._ranked.ranked_chunks(), self.protection.rows_per_unit
        return count_by_norm(chunks, axes, shape=self._shape, coarse=self._coarse, norm=norm)


class _Again:
    """The chunks of records. Each iteration starts again from the first chunk."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def __iter__(self) -> Iterator[Chunk]:
        return self._records.chunks()


def _few(chunks: Iterable[Chunk]) -> list[Chunk] | None:
    """Return all chunks, or None if they have too many rows to deduplicate."""
    few: list[Chunk] = []
    rows = 0
    for chunk in chunks:
        few.append(chunk)
        rows += len(chunk[0][0])
        if rows > DISTINCT_ROWS:
            return None
    return few


def _count_type(counts: Counts) -> npt.DTypeLike:
    most = int(counts.max(initial=0))
    return np.uint64 if most >= 1 << 32 else code_type(most + 1)
