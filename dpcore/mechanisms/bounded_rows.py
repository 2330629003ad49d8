"""Bound contributions: keep no more rows of a unit than declared, which is what a sensitivity relies on.

Each mechanism bounds contributions itself, so that no caller can forget to. Columns, ids and weights are read by the same
functions as in a run: each row is read independently of all others, and no value raises an error.
"""

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SourceBroken, UsageError
from dpcore.mechanisms.grid import ValueGrid
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.protection import Protection
from dpcore.tables.ingest.bounding import smallest_draws
from dpcore.tables.ingest.coding import UNIT_IS_ROW, read_weights
from dpcore.tables.reading.encoding import reads
from dpcore.tables.sources.attempt import attempt
from dpcore.tables.sources.ids import can_identify, hash_ids
from dpcore.tables.sources.memory_table import MemoryTable
from dpcore.universe import Integer

Wholes: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

Column: TypeAlias = Any
"""A column of pandas, polars, Arrow or NumPy, or a list."""

_NAME = "column"
_TEXTS_AND_OBJECTS = "OTU"  # kinds of NumPy


def read_column(column: Column, *, reads: Callable[[pa.DataType], bool]) -> list[pa.Array]:
    """Convert a private column to Arrow arrays, by its type alone. Values of an object column or a list are read as text.

    >>> read_column(np.array([1.5, np.nan]), reads=pa.types.is_floating)[0].to_pylist()
    [1.5, None]
    >>> read_column({"age": [1]}, reads=pa.types.is_floating)
    Traceback (most recent call last):
    dpcore.errors.UsageError: a column must be one of pandas, polars, Arrow or NumPy, or a list; pick it from its table
    """
    # the number of rows or their values may decide whether this works, so failing raises SourceBroken, which is not refunded
    table = attempt(lambda: _as_table(column), otherwise=MemoryTable.damaged, failure=SourceBroken)
    if table is None:
        raise UsageError("a column must be one of pandas, polars, Arrow or NumPy, or a list; pick it from its table")
    read = MemoryTable(table, ids=_NAME if reads is can_identify else None)
    # a type does not depend on any value, so a type that Arrow does not know is rejected, and costs nothing
    types = attempt(lambda: read.column_types([_NAME]), otherwise=MemoryTable.damaged)
    if not all(reads(kind) for kind in types):
        raise UsageError("a column's type cannot hold the declared values; pass the right column, or convert it")

    def parts() -> list[pa.Array]:
        return [batch.column(0) for batch in read.batches([_NAME])]

    return attempt(parts, otherwise=MemoryTable.damaged, failure=SourceBroken)


def kept_rows(  # noqa: PLR0913  a column, how it is read, and whose rows they are
    column: Column,
    *,
    reads: Callable[[pa.DataType], bool],
    code: Callable[[pa.Array], tuple[Wholes, Mask]],
    protection: Protection,
    ids: Column,
    weights: Column,
) -> tuple[Wholes, Wholes]:
    """Return the whole number of each kept row, and how often it counts, as private arrays.

    Args:
        column: The private column.
        reads: Whether a type can hold the declared values.
        code: Returns each row's whole number, and which rows have a usable value.
        protection: The unit to protect.
        ids: The ids, or None.
        weights: How often each row counts, or None.
    """
    check_given(protection, ids=ids, weights=weights)
    coded = [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.bool_)), *map(code, read_column(column, reads=reads))]
    values, usable = map(np.concatenate, zip(*coded, strict=True))
    return bounded_rows(values, usable, protection=protection, ids=ids, weights=weights)


def kept_steps(
    column: Column, *, grid: ValueGrid, protection: Protection, ids: Column, weights: Column
) -> tuple[Wholes, Wholes]:
    """Return the steps of a grid of each kept row, and how often it counts, as private arrays."""
    return kept_rows(column, reads=grid.reads, code=grid.read, protection=protection, ids=ids, weights=weights)


def bounded_rows(
    values: Wholes, counts: Mask, *, protection: Protection, ids: Column, weights: Column
) -> tuple[Wholes, Wholes]:
    """Return the values of the kept rows, and how often each counts.

    Of the rows that count, each unit keeps at most as many as declared, chosen uniformly by one random word per row. A row
    without an id belongs to no unit and is dropped.

    Args:
        values: One whole number per row.
        counts: Which rows have a usable value.
        protection: The unit to protect, which decides whether there are ids and weights.
        ids: The ids, or None.
        weights: How often each row counts, or None.
    """
    rows = len(values)
    times = np.ones(rows, dtype=np.int64)
    if weights is not None:
        parts = [read_weights(part, protection=protection) for part in read_column(weights, reads=_reads_number)]
        times = _joined(parts, rows=rows).astype(np.int64)
        counts = counts & (times > 0)
    if ids is None:
        return values[counts], times[counts]
    columns = read_column(ids, reads=can_identify)
    _check_rows(sum(map(len, columns)), rows=rows)
    key = entropy.random_words(4).tobytes()
    hashed = [hash_ids(part, key=key) for part in columns]
    persons = _joined([hashes for hashes, _ in hashed], rows=rows).reshape(-1, 2)
    counts = counts & _joined([usable for _, usable in hashed], rows=rows).astype(np.bool_)
    words = entropy.random_words(rows)
    chosen = smallest_draws(
        persons[counts],
        words[counts],
        rows_per_unit=protection.rows_per_unit,
        ties=(values[counts], times[counts]),
    )
    return values[counts][chosen], times[counts][chosen]


def check_given(protection: Protection, *, ids: Column, weights: Column) -> None:
    """Raise, before anything is read, if ids or weights are missing, or given although the protection has none."""
    if protection.unit == UNIT_IS_ROW and ids is not None:
        raise UsageError("the unit is a row, so ids cannot be used; name the id column as unit of the Protection")
    if protection.unit != UNIT_IS_ROW and ids is None:
        raise UsageError(
            f"the unit is {protection.unit!r}; pass that column as ids, to keep no more rows than declared"
        )
    if protection.weight is None and weights is not None:
        raise UsageError(
            "weights were passed, but the Protection declares none; name the weight column and its maximum there"
        )
    if protection.weight is not None and weights is None:
        raise UsageError(f"rows are weighted by {protection.weight!r}; pass that column as weights")


def _as_table(column: Column) -> Any:
    """Return a table with this one column, or None if it is not a column."""
    import pandas as pd  # noqa: PLC0415  a run never needs it, and it takes long to load

    if isinstance(column, list | tuple):
        column = pd.Series(column, dtype=object)
    if isinstance(column, np.ndarray):
        # without a dtype pandas would infer Arrow text, which fails for the whole column if one value has a lone surrogate
        dtype = object if column.dtype.kind in _TEXTS_AND_OBJECTS else None
        column = pd.Series(column, dtype=dtype) if column.ndim == 1 else None
    if isinstance(column, pd.Series | pd.Index):
        return column.to_frame(name=_NAME)
    if (polars := sys.modules.get("polars")) and isinstance(column, polars.Series):
        return column.to_frame(_NAME)
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return pa.table({_NAME: column})
    if isinstance(column, pa.Table | pd.DataFrame) or not hasattr(column, "__arrow_c_stream__"):
        return None
    stream = pa.chunked_array(column)
    return None if pa.types.is_struct(stream.type) else pa.table({_NAME: stream})  # a whole table is a struct


def _reads_number(kind: pa.DataType) -> bool:
    return reads(Integer(minimum=0, maximum=1), kind)


def _joined(parts: list[Any], *, rows: int) -> npt.NDArray[Any]:
    joined = np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)
    _check_rows(len(joined), rows=rows)
    return joined


def _check_rows(length: int, *, rows: int) -> None:
    if length != rows:
        raise UsageError("values, ids and weights must be columns of the same table, with the same number of rows")
