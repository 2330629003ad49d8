"""What reading a column costs: how many of its values lie outside its cells, and how far its bins blur it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.private import Private
from dpcore.tables.reading.encoding import encode
from dpcore.tables.reading.finest import Finest
from dpcore.universe import Attribute, Date, Datetime, Every, Integer, Number, Outside, Universe
from dpcore.universe.formats import month_format
from dpcore.universe.leaves import Fine

FINEST_CELLS = 1 << 16
"""Into about so many places an ordered column is divided to see what its bins blur."""

Counted = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FinePlaces:
    """The places of an ordered column that are finer than its cells: `divided` cells of `attribute` are one place."""

    attribute: Attribute
    divided: int

    @property
    def size(self) -> int:
        """The number of places."""
        return -(-self.attribute.cells // self.divided)

    @classmethod
    def of(cls, attribute: Attribute) -> "FinePlaces | None":
        """Return the places of a column; None if its cells have no order."""
        finest = _finest(attribute)
        return None if finest is None else cls(finest, max(1, -(-finest.cells // FINEST_CELLS)))

    @classmethod
    def of_all(cls, universe: Universe) -> "dict[str, FinePlaces]":
        """Return the places of all columns with an order."""
        every = {name: cls.of(attribute) for name, attribute in universe.attributes.items()}
        return {name: places for name, places in every.items() if places is not None}

    def count(self, column: pa.Array | pa.ChunkedArray, weights: Counted | None) -> Counted:
        """Count the values at each place. Nulls, and values that no cell holds, are left out."""
        codes = encode(self.attribute, column).astype(np.int64)
        inside = (codes >= 0) & (codes < self.attribute.cells)
        weighing = None if weights is None else weights[inside]
        return np.bincount(codes[inside] // self.divided, weights=weighing, minlength=self.size).astype(np.float64)


def _finest(attribute: Attribute) -> Attribute | None:
    match attribute:
        case Fine():
            return Finest.of(attribute)
        case Integer():
            span = attribute.maximum - attribute.minimum + 1
            width = max(1, -(-span // FINEST_CELLS))
            return Integer(minimum=attribute.minimum, maximum=attribute.maximum, width=width, **attribute.policy)
        case Number():
            parts = max(1, min(64, FINEST_CELLS // attribute.cells))
            edges = [np.linspace(low, high, parts, endpoint=False) for low, high in pairwise(attribute.edges)]
            rising = np.unique([*np.concatenate(edges).tolist(), attribute.edges[-1]])
            return replace(attribute, edges=tuple(rising.tolist()))
        case Datetime():
            return replace(attribute, every=min(attribute.every, Every.HOUR, key=list(Every).index))
        case Date():
            return replace(attribute, every=Every.MONTH if month_format(attribute.formats) else Every.DAY)
    return None


class ColumnCounts(Private):
    """The values of one column of the true table, as they lie in the source.

    Attributes:
        values: The number of values, each as often as its row counts.
        outside: How many of them lie in no declared cell, or cannot be read.
        dropped: How many of them drop their row.
        places: The counts at each fine place; None if the column has no order.
    """

    __slots__ = ("dropped", "outside", "places", "values")

    def __init__(self, places: Counted | None) -> None:
        self.values = self.outside = self.dropped = 0.0
        self.places = places


def count_columns(
    batches: Iterable[tuple[pa.RecordBatch, Counted | None]], universe: Universe
) -> Mapping[str, ColumnCounts]:
    """Count the values of each column: those outside its cells, and all at their fine places."""
    fine = FinePlaces.of_all(universe)
    open_cells = {name: _with_other(attribute) for name, attribute in universe.attributes.items()}
    counts = {name: ColumnCounts(np.zeros(fine[name].size) if name in fine else None) for name in open_cells}
    for batch, weights in batches:
        ones = np.ones(batch.num_rows) if weights is None else weights
        for name, counted in counts.items():
            column, attribute = batch.column(name), open_cells[name]
            counted.values += float(ones.sum())
            counted.outside += float(ones[encode(attribute, column) == attribute.other_cell].sum())
            counted.dropped += float(ones[encode(universe.attributes[name], column) < 0].sum())
            if counted.places is not None:
                counted.places += fine[name].count(column, weights)
    return counts


def _with_other(attribute: Attribute) -> Attribute:
    """Return the column with a cell for values outside its declared ones."""
    if isinstance(attribute, Fine):
        return replace(Finest.of(attribute), outside=Outside.OTHER)
    return replace(attribute, outside=Outside.OTHER)


def largest_gap(left: Counted, right: Counted) -> float:
    """Return the Kolmogorov-Smirnov distance of two distributions on a line, from 0 to 1.

    >>> largest_gap(np.array([1.0, 1.0]), np.array([3.0, 1.0]))
    0.25
    """
    shares = [np.cumsum(counts) / max(counts.sum(), 1.0) for counts in (left, right)]
    return float(np.abs(shares[0] - shares[1]).max(initial=0.0))
