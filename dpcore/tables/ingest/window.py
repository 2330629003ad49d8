"""Select the rows of the blocks that a run was granted, row by row."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.tables.reading import values
from dpcore.tables.reading.column import place_column
from dpcore.tables.reading.places import Places, outside_or
from dpcore.tables.sources.layout import stored_type
from dpcore.universe.attribute import DAY, EPOCH
from dpcore.universe.blocks import Calendar, Days

_EPOCH = EPOCH.toordinal()


@dataclass(frozen=True)
class Window:
    """The rows of some blocks of a calendar. A window is public.

    A row without a readable day is in no block and is dropped.
    """

    calendar: Calendar
    on_time: tuple[int, ...]
    late: tuple[int, ...]

    @classmethod
    def of(cls, calendar: Calendar, names: Iterable[str]) -> Self:
        """Make the window of the named blocks."""
        blocks = [calendar.block(name) for name in names]
        on_time, late = (
            tuple(sorted(block.period for block in blocks if block.late is kind)) for kind in (False, True)
        )
        return cls(calendar, on_time=on_time, late=late)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that determine a row's block."""
        arrived = self.calendar.arrived
        return (self.calendar.column,) if arrived is None else (self.calendar.column, arrived)

    def keeps(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Tell for each row whether it is in the window. Row-wise and total: never raises or logs."""
        calendar = self.calendar
        own, *arrivals = (_days(batch.column(name), calendar.formats) for name in self.columns)
        readable = own >= 0
        periods = calendar.periods(np.where(readable, own, 0))
        on_time = np.isin(periods, np.array(self.on_time, dtype=np.int64))
        declared = readable & (periods >= calendar.first)
        if not arrivals:
            return declared & on_time
        (arrived,) = arrivals
        has_arrived = arrived >= 0
        arrived = np.where(has_arrived, arrived, 0)
        late = np.isin(calendar.periods(arrived), np.array(self.late, dtype=np.int64))
        return declared & has_arrived & np.where(arrived <= calendar.closes(periods), on_time, late)


def has_days(kind: pa.DataType) -> bool:
    """Tell whether a column of this type can hold days."""
    kind = stored_type(kind)
    return values.is_text(kind) or values.is_moment(kind) or bool(pa.types.is_null(kind))


def _days(column: pa.Array | pa.ChunkedArray, formats: tuple[str, ...]) -> Days:
    """Read each row's day, in UTC; negative where there is none."""
    # place_column returns the smallest sufficient dtype
    return place_column(column, partial(_place, formats=formats)).astype(np.int64)


def _place(array: pa.Array, *, formats: tuple[str, ...]) -> Places:
    seconds, states = values.moments(array, formats)
    # clipped to days that no calendar reaches, so that no sum overflows
    return outside_or(np.clip(seconds // DAY + _EPOCH, 0, 4_000_000), states)
