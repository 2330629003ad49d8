"""Place every row of a private column, whatever its Arrow type and content.

This code never raises because of a value, and never warns or logs. What the column's type alone makes fail is not caught: then the spec or
this code is wrong, and its rows must not be taken for values that nobody declared. The place of a row depends only on its own value and on
the column's type, never on another row: if one row could change how others are read, neighbouring tables would differ in more counts than the stated sensitivity.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from dpcore.tables.reading import values
from dpcore.tables.reading.places import ALIEN, NULL, Places, all_of, spread
from dpcore.tables.sources.layout import stored_type

Place = Callable[[pa.Array], Places]

CHUNK_ROWS = 1 << 15  # bounds the memory of intermediate arrays, which then fit in the processor's cache


def place_column(column: pa.Array | pa.ChunkedArray, place: Place) -> Places:
    """Return the place of every row of a column.

    Args:
        column: Any Arrow column.
        place: Returns the places of the values of one flat array. It receives text and decimals as distinct values, and text always as
            `large_binary`. Its result for a null is ignored.

    Returns:
        One place per row: a cell, or NULL, BELOW, ABOVE, ALIEN.
    """
    _prove(column.type, place)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    placed = [_place_array(chunk, place) for chunk in chunks]
    return placed[0] if len(placed) == 1 else np.concatenate([all_of(0, ALIEN), *placed])


def _prove(kind: pa.DataType, place: Place) -> None:
    """Place no rows of a type, so that whatever fails without any value does so here, outside of the catch-all."""
    flat = stored_type(kind)
    if not pa.types.is_null(flat):
        place(pa.nulls(0, pa.large_binary() if values.is_text(flat) else flat))


def _place_array(array: pa.Array, place: Place) -> Places:
    return _total(array, lambda part: _place_layout(part, place))


def _place_layout(array: pa.Array, place: Place) -> Places:
    """Unwrap an array's storage layout, such as a dictionary, and place the flat values inside it."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _place_array(array.storage, place)
    if pa.types.is_null(kind):
        return all_of(len(array), NULL)
    if pa.types.is_dictionary(kind):
        return spread(array, _place_array(array.dictionary, place))
    if pa.types.is_run_end_encoded(kind):
        ends = array.run_ends.to_numpy(zero_copy_only=False)
        runs = np.searchsorted(ends, np.arange(array.offset, array.offset + len(array)), side="right")
        return _place_array(array.values, place)[runs]
    if values.is_parsed(kind):
        encoded = values.distinct(array)
        return spread(encoded, _place_chunks(encoded.dictionary, place))
    return _place_chunks(array, place)


def _place_chunks(array: pa.Array, place: Place) -> Places:
    starts = range(0, max(len(array), 1), CHUNK_ROWS)
    chunks = (array[start : start + CHUNK_ROWS] for start in starts)
    placed = [_total(chunk, lambda part: _place_flat(part, place)) for chunk in chunks]
    return placed[0] if len(placed) == 1 else np.concatenate(placed)


def _place_flat(array: pa.Array, place: Place) -> Places:
    places = place(array)
    if array.null_count:
        np.putmask(places, array.is_null().to_numpy(zero_copy_only=False), NULL)
    return places


def _total(array: pa.Array, attempt: Place) -> Places:
    """Place an array. If that fails, halve it until the offending row is alone, so that only this row becomes ALIEN."""
    try:
        with np.errstate(all="ignore"):
            return attempt(array)
    except Exception:  # noqa: BLE001  a private value must not surface in an error; the message is discarded
        if len(array) <= 1:
            return all_of(len(array), ALIEN)
        half = len(array) // 2
        return np.concatenate([_total(array[:half], attempt), _total(array[half:], attempt)])
