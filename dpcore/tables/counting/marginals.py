"""Count many marginals of coded rows exactly, in one pass, chunk by chunk.

For the private side only: arguments and results are private. Each worker of a cluster calls these functions on its own chunks, and the
counts of all workers add up.
"""

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from dpcore.marginals.workload import Axes
from dpcore.tables.counting.cover import Joint, cover
from dpcore.universe import CompactCodes, code_type

T = TypeVar("T")

Counts: TypeAlias = npt.NDArray[np.int64]
Chunk: TypeAlias = tuple[Sequence[CompactCodes], CompactCodes | None]
"""Rows, as one array of codes for each column, and how often each row counts; None if each counts once."""

BATCH_ROWS = 1 << 19  # counted at once: so many that clearing and adding up cells is a small part of the work
KEY_ROWS = 1 << 16  # keys computed at once, so that the intermediate arrays stay in the processor's cache
MOST_JOINT_CELLS = 1 << 23  # of all joint counts of one pass together
FEW_ROWS = 1 << 18  # with fewer rows, counting each marginal separately is faster than choosing joint counts


@dataclass(frozen=True, eq=False)
class Coarse:
    """An additional axis: a column with some of its cells merged."""

    column: int
    groups: CompactCodes


def count_sets(
    chunks: Iterable[Chunk], *, shape: Sequence[int], sets: Sequence[Axes], coarse: Sequence[Coarse] = ()
) -> list[Counts]:
    """Count the rows over each set of axes. Each result is an integer array with these axes in order.

    Marginals are summed from joint counts that contain several of them, which saves passes over the rows. Memory: the marginals, the joint
    counts of one pass, and a batch of rows for each thread.

    Args:
        chunks: The rows. They are iterated again if the joint counts are too large for one pass.
        shape: Number of cells of each axis, with coarse axes last.
        sets: Axes of each wanted marginal, in any order; an empty set for the number of rows.
        coarse: The axes that follow the columns.
    """
    marginals: list[Counts] = [np.empty(0, dtype=np.int64)] * len(sets)

    def cells(joint: Joint) -> int:
        return prod(shape[axis] for axis in joint.axes)

    for joints in in_groups(_joints(chunks, sets, shape=shape), cells=cells, most=MOST_JOINT_CELLS):
        totals = _count_joints(chunks, [joint.axes for joint in joints], shape=shape, coarse=coarse)
        while totals:
            total, joint = totals.pop(), joints[len(totals)]
            for number in joint.marginals:
                marginals[number] = _summed(total, joint.axes, onto=sets[number])
    return marginals


def in_groups(items: Iterable[T], *, cells: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Yield the items in order, in groups of at most `most` cells. An item with more cells is a group of its own.

    >>> list(in_groups(["aa", "b", "ccccc", "d"], cells=len, most=3))
    [['aa', 'b'], ['ccccc'], ['d']]
    """
    group: list[T] = []
    taken = 0
    for item in items:
        size = cells(item)
        if group and taken + size > most:
            yield group
            group, taken = [], 0
        group.append(item)
        taken += size
    if group:
        yield group


def _joints(chunks: Iterable[Chunk], sets: Sequence[Axes], *, shape: Sequence[int]) -> list[Joint]:
    rows = 0
    for codes, _ in chunks:
        rows += len(codes[0])
        if rows >= FEW_ROWS and len(sets) > 1:
            return cover(sets, shape=shape)
    return [Joint(axes, (number,)) for number, axes in enumerate(sets)]


def _count_joints(
    chunks: Iterable[Chunk], sets: Sequence[Axes], *, shape: Sequence[int], coarse: Sequence[Coarse]
) -> list[Counts]:
    """Count all sets in one pass. Several threads take batches of rows in turn."""
    totals: list[Counts] = [np.zeros([shape[axis] for axis in axes], dtype=np.int64) for axes in sets]
    batches, taking, adding = _batches(chunks), threading.Lock(), threading.Lock()
    used = {axis for axes in sets for axis in axes}

    def work() -> None:
        keys = np.empty(0, dtype=np.intp)
        while True:
            with taking:
                batch = next(batches, None)
            if batch is None:
                return
            rows = _rows_of(batch)
            keys = keys if len(keys) >= rows else np.empty(rows, dtype=np.intp)
            weights = _joined_weights(batch)
            columns = [axis_codes(codes, coarse, used=used) for codes, _ in batch]
            for axes, total in zip(sets, totals, strict=True):
                _make_keys(columns, axes, shape=shape, keys=keys[:rows])
                counted = np.bincount(keys[:rows], weights=weights, minlength=total.size)
                with adding:
                    # with weights NumPy sums in float64, which is exact for integers below 2^53; no table has that many rows
                    np.add(total, counted.astype(np.int64, copy=False).reshape(total.shape), out=total)

    threads = min(3, os.cpu_count() or 1)  # one counts while the others compute keys: np.bincount holds the GIL
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work) for _ in range(threads)]:
            done.result()
    return totals


def _batches(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    """Join small chunks and split large ones into batches of about BATCH_ROWS rows."""
    batch: list[Chunk] = []
    for codes, weights in chunks:
        for start in range(0, len(codes[0]), BATCH_ROWS):
            rows = slice(start, start + BATCH_ROWS)
            batch.append(([code[rows] for code in codes], None if weights is None else weights[rows]))
            if _rows_of(batch) >= BATCH_ROWS:
                yield batch
                batch = []
    if batch:
        yield batch


def _rows_of(batch: Sequence[Chunk]) -> int:
    return sum(len(codes[0]) for codes, _ in batch)


def _joined_weights(batch: Sequence[Chunk]) -> CompactCodes | None:
    if all(weights is None for _, weights in batch):
        return None
    return np.concatenate(
        [np.ones(len(codes[0]), dtype=np.uint8) if weights is None else weights for codes, weights in batch]
    )


def axis_codes(
    codes: Sequence[CompactCodes], coarse: Sequence[Coarse], *, used: Collection[int]
) -> Sequence[CompactCodes]:
    """Return the codes of a chunk by axis. Those of a coarse axis are computed only if it is used."""
    merged = (
        axis.groups.take(codes[axis.column]) if place in used else codes[0]
        for place, axis in enumerate(coarse, start=len(codes))
    )
    return [*codes, *merged]


def _make_keys(
    batch: Sequence[Sequence[CompactCodes]], axes: Axes, *, shape: Sequence[int], keys: npt.NDArray[np.intp]
) -> None:
    """Write each row's cell number over the axes into `keys`."""
    sizes = [shape[axis] for axis in axes]
    place = 0
    for columns in batch:
        codes = [columns[axis] for axis in axes]
        for start in range(0, len(columns[0]), KEY_ROWS):
            rows = slice(start, min(start + KEY_ROWS, len(columns[0])))
            keys[place : place + rows.stop - start] = _cells([code[rows] for code in codes], sizes)
            place += rows.stop - start


def _cells(codes: Sequence[CompactCodes], sizes: Sequence[int]) -> CompactCodes | int:
    """Combine each row's codes as digits of one number. Its dtype grows with the digits, since small dtypes are faster."""
    cells: CompactCodes | int = 0
    bound = 1
    for code, size in zip(codes, sizes, strict=True):
        if bound == 1 or isinstance(cells, int):
            cells = code
        else:
            kind = np.uint64 if bound * size > 1 << 32 else code_type(bound * size)
            cells = cells.astype(kind)
            cells *= kind(size)
            cells += code
        bound *= size
    return cells


def _summed(total: Counts, axes: Axes, *, onto: Axes) -> Counts:
    """Sum a joint count over the axes that the marginal lacks, and transpose the rest into the marginal's order."""
    if axes == onto:
        return total
    shared = [axis for axis in axes if axis in onto]
    marginal = np.asarray(total.sum(axis=tuple(place for place, axis in enumerate(axes) if axis not in onto)))
    return np.array(marginal.transpose([shared.index(axis) for axis in onto]), dtype=np.int64, order="C")
