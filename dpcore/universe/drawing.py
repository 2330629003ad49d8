"""Draw values again within the cells of rows, for constraints that compare values and not only cells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpcore.universe.attribute import Attribute, Floats
from dpcore.universe.constraints import Comparison
from dpcore.universe.extremes import cell_intervals
from dpcore.universe.spread import Spread
from dpcore.universe.spreading import spread_of

Places = npt.NDArray[Any]
Rows = npt.NDArray[np.intp] | slice
Intervals = Mapping[str, tuple[Places, Places]]
"""For some columns, the places from which each row's value is drawn: the first one, and the one after the last."""

TRIES = 20
"""How often values are drawn again. What is left then is drawn one column after the other, which is always possible."""


def row_intervals(attribute: Attribute, codes: npt.NDArray[np.integer[Any]]) -> tuple[Places, Places]:
    """Return the interval of each row's cell. Rows without a declared cell get that of the first one, which nobody reads."""
    start, stop = cell_intervals(attribute)
    inside = np.where(codes < attribute.cells, codes, 0)
    return start[inside], stop[inside]


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws from intervals of some columns, for constraints of values.

    Attributes:
        constraints: The constraints, which name these columns and no others.
        intervals: Where each row's values come from.
        attributes: The columns.
        rng: Draws.
    """

    constraints: Sequence[Comparison]
    intervals: Intervals
    attributes: Mapping[str, Attribute]
    rng: np.random.Generator

    @cached_property
    def spreads(self) -> dict[str, Spread]:
        """How the values of each column are distributed within its cells."""
        return {name: spread_of(self.attributes[name]) for name in self.intervals}

    def feasible(self) -> npt.NDArray[np.bool_]:
        """Tell which rows have values in their intervals that satisfy each constraint alone."""
        allowed = []
        for constraint in self.constraints:
            ends = [
                [constraint.measured(self.attributes[name], places) for places in self.ends(name)]
                for name in constraint.columns
            ]
            low, high = zip(*ends, strict=True)
            allowed.append(constraint.allows(low, high, self.attributes))
        return np.asarray(np.logical_and.reduce(allowed))

    def ends(self, name: str, rows: Rows = slice(None)) -> tuple[Places, Places]:
        """Return the first and the last place of rows' intervals."""
        start, stop = self.intervals[name]
        return start[rows], self.spreads[name].before(stop[rows])

    def drawn(self, name: str, rows: Rows) -> Places:
        """Draw a place from each row's interval, by the distribution within its cell."""
        spread, (start, stop) = self.spreads[name], (ends[rows] for ends in self.intervals[name])
        before, after = spread.below(start), spread.below(stop)
        places = spread.quantile(before + self.rng.random(len(start)) * (after - before))
        return np.asarray(np.clip(places, start, spread.before(stop)))


def numbers_in(column: pa.ChunkedArray) -> Floats:
    """Return a column as numbers; nulls are not a number."""
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)


def with_values(table: pa.Table, name: str, rows: npt.NDArray[np.intp], values: npt.NDArray[Any]) -> pa.Table:
    """Return a table with other values of one column in these rows. Nulls stay."""
    place = table.schema.get_field_index(name)
    column = table.column(place)
    drawn = pc.if_else(pc.is_null(column), pa.scalar(None, type=column.type), replaced(column, rows, values))
    return table.set_column(place, table.schema.field(place), drawn)


def replaced(column: pa.ChunkedArray, rows: npt.NDArray[np.intp], values: npt.NDArray[Any]) -> pa.ChunkedArray:
    """Return a column with other values in these rows."""
    if pa.types.is_integer(column.type):
        values = values.astype(np.int64)
    elif pa.types.is_timestamp(column.type):
        values = values.astype("datetime64[us]")
    mask = np.zeros(len(column), dtype=np.bool_)
    mask[rows] = True
    whole = column.combine_chunks()
    return pa.chunked_array([pc.replace_with_mask(whole, pa.array(mask), pa.array(values, type=column.type))])
