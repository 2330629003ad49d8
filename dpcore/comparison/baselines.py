"""Rows to compare a release with, and samples of rows, by a fixed seed: a comparison of the same tables gives the same figures.

Nothing here protects anything: the results are as private as the true table.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.comparison.rows import CodedRows
from dpcore.universe import Attribute

T = TypeVar("T")

_SEED = 20_261_116


def independent_rows(truth: CodedRows, shape: Sequence[int], *, number: int) -> CodedRows:
    """Draw each column on its own from the true table: rows that keep every column and no dependence."""
    rng = np.random.default_rng([_SEED, 1])
    codes = []
    for axis, size in enumerate(shape):
        shares = truth.shares((axis,), shape)
        drawn = rng.choice(size, size=number, p=shares / shares.sum())
        codes.append(drawn.astype(truth.codes[axis].dtype))
    return CodedRows(codes)


def bootstrap_rows(truth: CodedRows, *, number: int) -> CodedRows:
    """Draw whole rows of the true table with replacement: rows that have no error but that of their number."""
    rng = np.random.default_rng([_SEED, 2])
    chances = None if truth.weights is None else truth.weights / truth.weights.sum()
    return truth.take(rng.choice(truth.number, size=number, p=chances))


def two_samples(rows: CodedRows, *, most: int) -> tuple[CodedRows, CodedRows]:
    """Draw two disjoint samples of at most `most` rows each, for learning and for testing."""
    rng = np.random.default_rng([_SEED, 3])
    size = min(most, rows.number // 2)
    chances = None if rows.weights is None else rows.weights / rows.weights.sum()
    if chances is not None:
        size = min(size, int(np.count_nonzero(chances)) // 2)
    drawn = rng.choice(rows.number, size=2 * size, replace=False, p=chances)
    return rows.take(drawn[:size]), rows.take(drawn[size:])


def some_of(items: Sequence[T], *, most: int) -> list[T]:
    """Return all items, or a sample of `most` of them in their order."""
    if len(items) <= most:
        return list(items)
    chosen = np.random.default_rng([_SEED, 4]).choice(len(items), size=most, replace=False)
    return [items[place] for place in np.sort(chosen).tolist()]


def decoded(attribute: Attribute, counts: npt.NDArray[np.float64], *, most: int = 200_000) -> pa.Array:
    """Draw values from cells as a release does: at most `most`, in proportion to exact counts."""
    total = counts.sum()
    whole = np.floor(counts * min(1.0, most / max(total, 1.0))).astype(np.int64)
    return attribute.decode(np.repeat(np.arange(len(whole)), whole), np.random.default_rng([_SEED, 5]))
