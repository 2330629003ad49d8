"""Place every row of a private column, whatever its Arrow type and content.

Two promises. Nothing raises, warns or is reported. And the place of a row depends on its own value and on the column's
type alone, never on another row: if one row could change how the others are read, a neighbour step would move more
counts than the stated sensitivity says.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from dpcore.universe import reading
from dpcore.universe.places import ALIEN, NULL, Places, all_of, spread

Place = Callable[[pa.Array], Places]

CHUNK_ROWS = 1 << 15  # bounds the memory of intermediate arrays, which then stay near the processor


def place_column(column: pa.Array | pa.ChunkedArray, place: Place) -> Places:
    """Place every row of a column.

    Args:
        column: Any Arrow column.
        place: Places the values of one flat array. Text and decimals come to it as distinct values, text always as
            `large_binary`. What it says about a null does not matter.

    Returns:
        One place a row: a cell, or NULL, BELOW, ABOVE, ALIEN.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    placed = [_place_array(chunk, place) for chunk in chunks]
    return placed[0] if len(placed) == 1 else np.concatenate([all_of(0, ALIEN), *placed])


def _place_array(array: pa.Array, place: Place) -> Places:
    return _total(array, lambda part: _place_layout(part, place))


def _place_layout(array: pa.Array, place: Place) -> Places:
    """Undo what only concerns how an array is stored, and place the flat values below it."""
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
    if reading.is_parsed(kind):
        encoded = reading.distinct(array)
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
    """Place an array, and if that breaks, halve it until the row at fault stands alone: only that row becomes alien."""
    try:
        with np.errstate(all="ignore"):
            return attempt(array)
    except Exception:  # noqa: BLE001  no value may raise or be told of; the text goes nowhere, and no other row is touched
        if len(array) <= 1:
            return all_of(len(array), ALIEN)
        half = len(array) // 2
        return np.concatenate([_total(array[:half], attempt), _total(array[half:], attempt)])
