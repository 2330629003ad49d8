"""Read a pandas, polars or Arrow table that a Python program hands over."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dpcore.errors import UsageError
from dpcore.private import Private
from dpcore.tables.sources.attempt import attempt
from dpcore.tables.sources.layout import joined
from dpcore.tables.sources.object_ids import as_id
from dpcore.tables.sources.part import BATCH_ROWS, Part
from dpcore.tables.sources.text import sound
from dpcore.tables.sources.values import as_text

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


class MemoryTable(Private, Part):
    """A table in memory. It never leaves this process.

    Columns of Python objects, in pandas and polars, and pandas string columns that are not stored as Arrow, are converted to text value
    by value. All other columns keep their type. Only the declared columns are converted to Arrow.
    """

    __slots__ = ("_ids", "_table")
    _table: Any
    _ids: str | None

    name = "the table"
    damaged = (
        "the table cannot be converted to Arrow; give its declared columns a type that pandas, polars and Arrow share"
    )

    def __init__(self, table: Any, *, ids: str | None = None) -> None:
        self._ids = ids
        if _is_of("pandas", table) or _is_of("polars", table):
            self._table = table
        elif isinstance(table, pa.Table | pa.RecordBatch):
            self._table = attempt(lambda: pa.table(table), otherwise=self.damaged)
        else:  # a lazy frame is a query: it would run before anything is reserved, and one value may make it fail
            raise UsageError(
                "a table must be a pandas, polars or Arrow table in memory; collect a lazy one before handing it over"
            )

    def column_names(self) -> list[str]:
        """Return the names of all columns."""
        is_arrow = isinstance(self._table, pa.Table)
        return [str(name) for name in (self._table.column_names if is_arrow else self._table.columns)]

    def column_types(self, columns: Sequence[str]) -> list[pa.DataType]:
        """Return the types of the named columns without looking at any value in a row, dictionary or category."""
        return [array.type for array in self._arrays(columns, start=0, stop=0)]

    def with_ids(self, column: str) -> "MemoryTable":
        """Return the table with a column read as ids."""
        return MemoryTable(self._table, ids=column)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the named columns, in that order."""
        for start in range(0, self._table.shape[0], BATCH_ROWS):
            arrays = self._arrays(columns, start=start, stop=start + BATCH_ROWS)
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def _arrays(self, columns: Sequence[str], *, start: int, stop: int) -> list[pa.Array]:
        names = self.column_names()
        places = [names.index(column) for column in columns]
        converts = [as_id if column == self._ids else as_text for column in columns]
        if _is_of("pandas", self._table):
            return list(map(_of_pandas, (self._table.iloc[start:stop, place] for place in places), converts))
        if _is_of("polars", self._table):
            chosen = (self._table.to_series(place).slice(start, stop - start) for place in places)
            return list(map(_of_polars, chosen, converts))
        return [_joined(self._table.column(place).slice(start, stop - start)) for place in places]


def _is_of(library: str, table: Any) -> bool:
    """Tell whether a table is a data frame of a library, without importing it: the caller has already imported it."""
    loaded = sys.modules.get(library)
    return loaded is not None and isinstance(table, loaded.DataFrame)


def _joined(values: pa.ChunkedArray) -> pa.Array:
    if not len(values):
        return pa.nulls(0, values.type)
    # skip empty chunks: they may have a dictionary or invalid buffers
    first, *others = (sound(chunk) for chunk in values.chunks if len(chunk))
    return joined([first, *others]) if others else first


def _of_pandas(values: "pd.Series[Any] | pd.Index[Any]", convert: Callable[[Any], str | None]) -> pa.Array:
    """Convert a column by its dtype alone, and Python objects by `convert`, so that no value changes how others are read."""
    import pandas as pd  # noqa: PLC0415  already imported by the caller

    if isinstance(values.dtype, pd.CategoricalDtype):
        codes = pa.array(values.array.codes, pa.int32(), mask=values.array.codes < 0)
        categories = values.dtype.categories if len(values) else values.dtype.categories[:0]
        return pa.DictionaryArray.from_arrays(codes, _of_pandas(categories, convert))
    if values.dtype == object or (isinstance(values.dtype, pd.StringDtype) and values.dtype.storage == "python"):
        return pa.array(map(convert, values.array), pa.large_string())
    array = pa.array(values, from_pandas=True)
    return _joined(array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array]))


def _of_polars(values: "pl.Series", convert: Callable[[Any], str | None]) -> pa.Array:
    """Convert a column by its dtype alone, and Python objects by `convert`.

    Polars itself would export a column of Python objects as their addresses in memory.
    """
    import polars as pl  # noqa: PLC0415  already imported by the caller

    if values.dtype == pl.Object:
        return pa.array(map(convert, values.to_list()), pa.large_string())
    return _joined(pa.chunked_array(values))
