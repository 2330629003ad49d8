"""Encode private columns: the code that a declared attribute gives to each value. `encode` is total, and row-wise.

| attribute | types that it reads | a value's cell |
|---|---|---|
| categorical | text, numbers, dates, times | its canonical text, or the longest declared prefix |
| boolean | text, numbers | the word, or 0 and 1 |
| integer, number | text, numbers | the bin of the nearest double |
| date, datetime | text, dates | the bin of the second |
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, singledispatch
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SourceError, UsageError
from dpcore.tables.reading import values
from dpcore.tables.reading.column import place_column
from dpcore.tables.reading.grid import Grid
from dpcore.tables.reading.nulls import named_nulls
from dpcore.tables.reading.places import ALIEN, NULL, Places, SignedCodes, all_of, outside_or, signed_type, spread
from dpcore.tables.sources.layout import stored_type
from dpcore.universe import CompactCodes, Universe, code_type
from dpcore.universe.attribute import Attribute, Ordered
from dpcore.universe.categorical import Boolean, Categorical, canonical
from dpcore.universe.numeric import Integer, Number
from dpcore.universe.temporal import CalendarColumn

_FALSE = ("false", "f", "no", "n", "0")
_TRUE = ("true", "t", "yes", "y", "1")


@dataclass(frozen=True)
class Reader:
    """How an attribute reads values.

    Attributes:
        types: Each tells whether a flat type can hold values of the attribute.
        place: Returns the place of each value of a flat array, independently of the others (`place_column`).
    """

    types: tuple[Callable[[pa.DataType], bool], ...]
    place: Callable[[pa.Array], Places]


@singledispatch
def reader(attribute: Attribute) -> Reader:
    """Return how a kind of attribute reads values."""
    raise UsageError(f"no column of a table is read as {type(attribute).__name__}; report this")


@reader.register
def _(attribute: Categorical) -> Reader:
    types = values.is_text, values.is_number, values.is_moment, pa.types.is_time

    def place(array: pa.Array) -> Places:
        return _categories(array, attribute) if _reads(types, array.type) else all_of(len(array), ALIEN)

    return Reader(types, place)


@reader.register
def _(attribute: Boolean) -> Reader:
    del attribute
    return Reader((values.is_text, values.is_number), _truths)


@reader.register
def _(attribute: Integer | Number) -> Reader:
    grid = _grid(attribute)

    def place(array: pa.Array) -> Places:
        numbers, states = values.numbers(array)
        return outside_or(grid.place(numbers), states)

    return Reader((values.is_text, values.is_number), place)


@reader.register
def _(attribute: CalendarColumn) -> Reader:
    grid = _grid(attribute)

    def place(array: pa.Array) -> Places:
        seconds, states = values.moments(array, attribute.formats)
        return outside_or(grid.place(seconds // attribute.tick), states)

    return Reader((values.is_text, values.is_moment), place)


@lru_cache(maxsize=64)
def _grid(attribute: Ordered) -> Grid:
    return Grid(attribute.bin_bounds / (attribute.tick if isinstance(attribute, CalendarColumn) else 1))


def reads(attribute: Attribute, kind: pa.DataType) -> bool:
    """Return whether a column of this Arrow type can hold values of an attribute.

    `encode` accepts any other type too, but treats every row as unreadable. A release of such a column would waste its budget.
    """
    flat = stored_type(kind)
    return bool(pa.types.is_null(flat)) or _reads(reader(attribute).types, flat)


def _reads(types: tuple[Callable[[pa.DataType], bool], ...], kind: pa.DataType) -> bool:
    return any(test(kind) for test in types)


def encode(attribute: Attribute, column: pa.Array | pa.ChunkedArray) -> SignedCodes:
    """Return the code of each row of a private column, or -1 for a row to drop. Never raises or logs.

    >>> encode(Categorical(("F", "M"), missing=True), pa.array(["M ", None, "x", "F"])).tolist()
    [1, 2, -1, 0]
    """
    kind, place = signed_type(attribute.size), reader(attribute).place

    def place_or_null(array: pa.Array) -> Places:
        places = place(array).astype(kind, copy=False)
        if attribute.nulls:
            places[named_nulls(array, attribute.nulls)] = NULL
        return places

    codes = place_column(column, place_or_null).astype(kind, copy=False)
    # A cell's place is its code. The other places are replaced one by one. NULL comes first, because a dropped row gets -1 too.
    for mark in range(NULL, int(codes.min(initial=0)) - 1, -1):
        np.putmask(codes, codes == mark, attribute.outside_codes[mark])
    return codes


def encode_rows(
    universe: Universe, table: pa.Table | pa.RecordBatch, *, read: Mapping[str, SignedCodes] = MappingProxyType({})
) -> tuple[tuple[CompactCodes, ...], npt.NDArray[np.bool_]]:
    """Encode a private table; also return which rows were kept, so that other columns can be filtered alike.

    Args:
        universe: The declared columns.
        table: Any table or batch that has each declared column once. Other columns are ignored.
        read: The codes of columns that were encoded before, -1 for rows to drop. These columns may be of other universes, too.

    Returns:
        The codes of the kept rows, attribute by attribute, each in the smallest unsigned type for its size; and for
        each row of the table whether it was kept. Both are as private as the table itself.
    """
    for name in universe.names:
        if (present := table.schema.names.count(name)) != 1:
            raise SourceError(
                f"the table has {present} columns named {name!r}, but the universe declares one: "
                "rename columns in the source, or correct the universe"
            )
    columns = [
        read[name] if name in read else encode(attribute, table.column(name))
        for name, attribute in universe.attributes.items()
    ]
    keep: npt.NDArray[np.bool_] = np.ones(table.num_rows, dtype=np.bool_)
    for codes in (*columns, *read.values()):
        if codes.min(initial=0) < 0:
            keep &= codes >= 0
    if not keep.all():
        columns = [codes[keep] for codes in columns]
    return tuple(_compact(codes, size=size) for codes, size in zip(columns, universe.shape, strict=True)), keep


def _compact(codes: SignedCodes, *, size: int) -> CompactCodes:
    """Convert non-negative codes to their unsigned type, without a copy if the width is the same."""
    kind = np.dtype(code_type(size))
    return codes.view(kind) if codes.dtype.itemsize == kind.itemsize else codes.astype(kind)


def _truths(array: pa.Array) -> Places:
    if values.is_text(array.type):
        words = {"": NULL} | dict.fromkeys(_FALSE, 0) | dict.fromkeys(_TRUE, 1)
        return np.array([words.get(text.strip().lower(), ALIEN) for text in values.texts(array)], dtype=np.int64)
    numbers, states = values.numbers(array)
    if pa.types.is_boolean(array.type):
        return numbers.astype(np.int8)
    places = np.select([numbers == 0, numbers == 1, np.isnan(numbers)], [0, 1, NULL], default=ALIEN)
    return outside_or(places, states)


def _categories(array: pa.Array, attribute: Categorical) -> Places:
    if values.is_parsed(array.type):  # `place_column` gives distinct values
        return _distinct_categories(array, attribute)
    encoded = array.dictionary_encode()
    return spread(encoded, _distinct_categories(encoded.dictionary, attribute))


def _distinct_categories(array: pa.Array, attribute: Categorical) -> Places:
    place = _place_text if values.is_text(array.type) else _place_value
    return np.array([place(value, attribute) for value in values.python_values(array)], dtype=np.int64)


def _place_value(value: object, attribute: Categorical) -> int:
    text = canonical(value)
    return ALIEN if text is None else _place_canonical(text, attribute)


def _place_text(text: str, attribute: Categorical) -> int:
    """Return the place of a text as it stands, or else without blanks around it."""
    place = _place_written(text, attribute)
    if place == ALIEN and not attribute.exact and (trimmed := text.strip()) != text:
        return _place_written(trimmed, attribute)
    return place


def _place_written(text: str, attribute: Categorical) -> int:
    if text not in attribute.cells_by_text and attribute.cells_by_number:
        with suppress(ValueError):
            place = attribute.cells_by_number.get(canonical(values.number(text)))
            if place is not None:
                return place
    return _place_canonical(text, attribute)


def _place_canonical(text: str, attribute: Categorical) -> int:
    """Return the cell of a canonical text, or of the longest declared prefix that stands for it."""
    if not text:
        return NULL
    place = attribute.cells_by_text.get(text)
    if place is None and len(text) <= attribute.longest:
        shorter = (text[:length] for length in attribute.prefix_lengths if length < len(text))
        place = next((attribute.cells_by_text[stem] for stem in shorter if stem in attribute.cells_by_text), None)
    return ALIEN if place is None else place
