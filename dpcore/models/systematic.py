"""Sample rows from a public distribution, as close to it as whole rows can be.

Systematic sampling: the cells' expected counts are laid end to end, and a row is taken at every whole number after one random offset. Every
cell, and every run of neighbouring cells, gets its expected count rounded down or up, and on average over the offset exactly its expected
count. Independent draws would add their own noise to every marginal: on a seven-column table with 48,842 rows and 201,600 cells they add
0.028 to the L1 error of a three-way marginal, systematic rows 0.004 to 0.007. Other orders of the cells (by size of axis, serpentine)
change that by less than a tenth. `exchange` takes away a part of it afterwards.

A large sample is drawn in chunks, so that memory does not grow with the number of rows. With K chunks, each takes every K-th of the whole
numbers. So each chunk is a systematic sample by itself, and all chunks together are the sample that would have been drawn at once: for any
number of rows, no cell is off by more than one.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import UsageError

Cells = NDArray[np.int64]


CHUNK_ROWS = 1 << 20
"""The most rows that are drawn at once."""


def sample_cells(probabilities: NDArray[np.float64], rows: int, *, rng: np.random.Generator) -> Cells:
    """Return the flat cell indices of sampled rows, in random order, so that the position in a file carries no information.

    The expectation of every cell's count is its share of the rows, and each count is that share rounded down or up. A cell of weight zero
    is never drawn. Time is a pass over the cells and a search for each row; memory is linear in both. See `sample_chunks` for many rows.

    Args:
        probabilities: The weight of every cell: finite, not negative, up to a constant factor.
        rows: How many rows to draw.
        rng: Decides the offset and the order of rows.

    Raises:
        UsageError: The number of rows is negative, or the weights are not a distribution.
    """
    chunks = list(sample_chunks(probabilities, rows, rng=rng))
    return chunks[0] if len(chunks) == 1 else np.concatenate([np.empty(0, dtype=np.int64), *chunks])


def sample_chunks(
    probabilities: NDArray[np.float64], rows: int, *, rng: np.random.Generator, chunk_rows: int | None = None
) -> Iterator[Cells]:
    """Return an iterator over the same sample in chunks of about equal size, each in random order.

    A chunk has at most `chunk_rows` rows, or CHUNK_ROWS if None. Memory is linear in the cells and in the rows of a chunk. The arguments
    are checked by this call, not by the first chunk.
    """
    if rows < 0:
        raise UsageError("The number of rows must not be negative: use 0 or more.")
    if rows == 0:
        return iter(())
    ends = np.cumsum(probabilities)
    if not (ends.size and math.isfinite(ends[-1]) and ends[-1] > 0 and probabilities.min() >= 0):
        raise UsageError("Rows need a distribution: finite weights, none negative and at least one positive.")
    return _chunks(ends, rows, chunks=math.ceil(rows / (chunk_rows or CHUNK_ROWS)), rng=rng)


def _chunks(ends: NDArray[np.float64], rows: int, *, chunks: int, rng: np.random.Generator) -> Iterator[Cells]:
    offset = rng.random()
    # In random order: otherwise each chunk would start a little later in the first cell than the chunk before it.
    for first in rng.permutation(chunks).tolist() if chunks > 1 else [0]:
        positions = (np.arange(first, rows, chunks) + offset) * (ends[-1] / rows)
        # Rounding may move the last position to the very end, beyond the last cell.
        np.minimum(positions, np.nextafter(ends[-1], 0.0), out=positions)
        cells: Cells = np.searchsorted(ends, positions, side="right").astype(np.int64, copy=False)
        rng.shuffle(cells)
        yield cells
