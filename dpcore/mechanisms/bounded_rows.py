"""The rows of a private column that count, with no more of one unit than is declared: what a sensitivity relies on.

A mechanism bounds contributions itself, so that nobody can forget to. Columns, ids and weights are read by the functions
that read them in a run: what becomes of a row depends on that row alone, and no value raises anything.
"""

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SourceBroken, UsageError
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.protection import Protection
from dpcore.tables.ingest.bounding import smallest_draws
from dpcore.tables.ingest.coding import UNIT_IS_ROW, read_weights
from dpcore.tables.sources.attempt import attempt
from dpcore.tables.sources.ids import can_identify, hash_ids
from dpcore.tables.sources.memory_table import MemoryTable
from dpcore.universe import Integer

Wholes: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

Column: TypeAlias = Any
"""A column of pandas, polars, Arrow or NumPy, or a list."""

_NAME = "column"
_KEY_WORDS = 4
_TEXTS_AND_OBJECTS = "OTU"  # kinds of NumPy


def read_column(column: Column, *, reads: Callable[[pa.DataType], bool]) -> list[pa.Array]:
    """Return a private column as Arrow arrays, read by its type alone; of objects, and of a list, each value as text.

    >>> read_column(np.array([1.5, np.nan]), reads=pa.types.is_floating)[0].to_pylist()
    [1.5, None]
    >>> read_column({"age": [1]}, reads=pa.types.is_floating)
    Traceback (most recent call last):
    dpcore.errors.UsageError: a column must be one of pandas, polars, Arrow or NumPy, or a list; pick it from its table
    """
    # how many rows there are, or what is in them, may decide whether it can be had: hence broken, not refused
    table = attempt(lambda: _as_table(column), otherwise=MemoryTable.damaged, failure=SourceBroken)
    if table is None:
        raise UsageError("a column must be one of pandas, polars, Arrow or NumPy, or a list; pick it from its table")
    read = MemoryTable(table)
    # no value has a say in a type, so a type that Arrow does not know is refused and costs nothing
    types = attempt(lambda: read.column_types([_NAME]), otherwise=MemoryTable.damaged)
    if not all(reads(kind) for kind in types):
        raise UsageError(
            "a column's type can't hold what was declared, in any row; give the right column, or convert it"
        )

    def parts() -> list[pa.Array]:
        return [batch.column(0) for batch in read.batches([_NAME])]

    return attempt(parts, otherwise=MemoryTable.damaged, failure=SourceBroken)


def bounded_rows(
    values: Wholes, counts: Mask, *, protection: Protection, ids: Column, weights: Column
) -> tuple[Wholes, Wholes]:
    """Return the values of the rows that are kept, and how often each counts.

    Of the rows that count, each unit keeps as many as declared, chosen uniformly by one random word a row. A row without an
    id belongs to nobody and is left out.

    Args:
        values: One whole number a row.
        counts: Which of the rows say anything.
        protection: Whom to protect, and so whether there are ids and weights.
        ids: The ids, or None.
        weights: How often each row counts, or None.
    """
    rows = len(values)
    times = np.ones(rows, dtype=np.int64)
    if weights is not None:
        found = [read_weights(part, protection=protection) for part in read_column(weights, reads=_reads_number)]
        times = _joined(found, rows=rows).astype(np.int64)
        counts = counts & (times > 0)
    if ids is None:
        return values[counts], times[counts]
    columns = read_column(ids, reads=can_identify)
    _check_rows(sum(map(len, columns)), rows=rows)
    key = entropy.random_words(_KEY_WORDS).tobytes()
    hashed = [hash_ids(part, key=key) for part in columns]
    persons = _joined([hashes for hashes, _ in hashed], rows=rows).reshape(-1, 2)
    counts = counts & _joined([known for _, known in hashed], rows=rows).astype(np.bool_)
    words = entropy.random_words(rows)
    kept = smallest_draws(
        persons[counts],
        words[counts],
        rows_per_unit=protection.rows_per_unit,
        ties=(values[counts], times[counts]),
    )
    return values[counts][kept], times[counts][kept]


def check_given(protection: Protection, *, ids: Column, weights: Column) -> None:
    """Refuse, before anything is read, columns that the protection needs and were not given, or the other way round."""
    if protection.unit == UNIT_IS_ROW and ids is not None:
        raise UsageError("the unit is a row, so that ids mean nothing; name the ids' column as unit of the Protection")
    if protection.unit != UNIT_IS_ROW and ids is None:
        raise UsageError(
            f"the unit is {protection.unit!r}; give that column as ids, to keep no more rows than declared"
        )
    if protection.weight is None and weights is not None:
        raise UsageError("each row counts once; name the weights' column and their maximum in the Protection")
    if protection.weight is not None and weights is None:
        raise UsageError(f"rows count as often as {protection.weight!r} says; give that column as weights")


def _as_table(column: Column) -> Any:
    """Return a table of one column; None of what is no column."""
    import pandas as pd  # noqa: PLC0415  a run never needs it, and it takes long to load

    if isinstance(column, list | tuple):
        column = pd.Series(column, dtype=object)
    if isinstance(column, np.ndarray):
        # without a type pandas would infer text of Arrow, which one lone surrogate makes fail for all
        given = object if column.dtype.kind in _TEXTS_AND_OBJECTS else None
        column = pd.Series(column, dtype=given) if column.ndim == 1 else None
    if isinstance(column, pd.Series | pd.Index):
        return column.to_frame(name=_NAME)
    if (polars := sys.modules.get("polars")) and isinstance(column, polars.Series):
        return column.to_frame(_NAME)
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return pa.table({_NAME: column})
    if isinstance(column, pa.Table | pd.DataFrame) or not hasattr(column, "__arrow_c_stream__"):
        return None
    stream = pa.chunked_array(column)
    return None if pa.types.is_struct(stream.type) else pa.table({_NAME: stream})  # which a whole table is


def _reads_number(kind: pa.DataType) -> bool:
    return Integer(minimum=0, maximum=1).reads(kind)


def _joined(parts: list[Any], *, rows: int) -> npt.NDArray[Any]:
    joined = np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)
    _check_rows(len(joined), rows=rows)
    return joined


def _check_rows(found: int, *, rows: int) -> None:
    if found != rows:
        raise UsageError(
            "values, ids and weights must be columns of one table, with a row of one for each of the others"
        )
