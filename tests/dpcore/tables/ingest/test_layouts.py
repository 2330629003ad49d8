"""Columns of every type and layout: what becomes of a row does not depend on whether others are left out."""

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import compute

from dpcore.privacy.protection import Neighbours, Protection
from dpcore.tables.ingest.coding import Coding
from dpcore.tables.ingest.draws import Draws
from dpcore.tables.ingest.stored_words import stored_words
from dpcore.tables.ingest.window import Window
from dpcore.tables.sources.ids import hash_ids
from dpcore.tables.sources.layout import stored_values
from dpcore.tables.sources.source import Source
from dpcore.universe import Attribute, Categorical, Date, Every, Outside, Universe
from dpcore.universe.blocks import Calendar
from tests.dpcore.tables.sources.sources import read_batches, shared_views

KEY = b"k" * 32
CALENDAR = Calendar("day", Every.MONTH, start=dt.date(2025, 1, 1), arrived=None, grace_days=0)
INSIDE, OUTSIDE = "2025-01-05", "2025-02-01"
NUMBERS = [1, 2, None, 1, 3]
DAYS = [None if number is None else dt.date(2025, 1, number) for number in NUMBERS]
TEXTS = ["1", "2", None, "1", "3"]
BYTES = [None if text is None else text.encode() for text in TEXTS]
DECIMALS = [None if number is None else Decimal(number) for number in NUMBERS]
PLAIN = {
    **{str(kind): pa.array(NUMBERS, kind) for kind in (pa.int8(), pa.uint64(), pa.int64(), pa.float32(), pa.float64())},
    **{str(kind): pa.array(TEXTS, kind) for kind in (pa.string(), pa.large_string(), pa.string_view())},
    **{str(kind): pa.array(BYTES, kind) for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1))},
    **{
        str(kind): pa.array(DECIMALS, kind)
        for kind in (pa.decimal32(5, 2), pa.decimal64(12, 2), pa.decimal128(12, 2), pa.decimal256(50, 2))
    },
    **{
        str(kind): pa.array(DAYS).cast(kind)
        for kind in (pa.date32(), pa.date64(), pa.timestamp("us"), pa.timestamp("ns", "Europe/Zurich"))
    },
    "float16": pa.array(np.array([1, 2, np.nan, 1, 3], dtype=np.float16)),
    "bool": pa.array([True, False, None, True, True]),
    "null": pa.nulls(5),
    "time": pa.array(NUMBERS, pa.int64()).view(pa.time64("us")),
    "duration": pa.array(NUMBERS, pa.int64()).view(pa.duration("ns")),
}
ROWS = [0, 1, 2, 3, 4]


def layouts(name: str, plain: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield the same five values in every layout that Arrow can make of them, and as the end of a longer column."""
    yield name, plain
    by_dictionary = [pa.DictionaryArray.from_arrays(pa.array(ROWS, kind), plain) for kind in (pa.int8(), pa.uint64())]
    for array in by_dictionary:
        yield f"{name} by {array.indices.type}", array
    ends = pa.array(range(1, len(plain) + 1), pa.int32())
    yield f"{name} in runs", pa.RunEndEncodedArray.from_arrays(ends, plain)
    yield f"{name} by int8 in runs", pa.RunEndEncodedArray.from_arrays(ends, by_dictionary[0])
    if name != "null":
        yield f"{name} extended", pa.ExtensionArray.from_storage(Extension(plain.type), plain)
        twice = pa.DictionaryArray.from_arrays(pa.array(ROWS + ROWS), plain)
        yield f"{name} sliced", pa.RunEndEncodedArray.from_arrays(pa.array(range(1, 11), pa.int16()), twice)[5:]


class Extension(pa.ExtensionType):  # type: ignore[misc]
    """A type of somebody else's."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "somebody.else")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


COLUMNS = {
    name: column
    for place, (kind, plain) in enumerate(PLAIN.items())
    for name, column in [*layouts(kind, plain)][:: 2 + place % 3]
}
"""Every type in its plain layout and in some others: together, every layout with many types."""
BY_ROW = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
BY_PERSON = Protection(unit="x", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
WEIGHTED = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE, weight="x", row_weight=9)
SEX = Categorical(("F", "M"))
ATTRIBUTES: tuple[Attribute, ...] = (
    Categorical(("1", "3"), outside=Outside.OTHER, missing=True),
    Date(minimum=dt.date(2025, 1, 1), maximum=dt.date(2025, 1, 31), every=Every.DAY, missing=True),
)
ROLES = {
    **{type(each).__name__: (Universe({"sex": SEX, "x": each}), BY_ROW) for each in ATTRIBUTES},
    "id": (Universe({"sex": SEX}), BY_PERSON),
    "weight": (Universe({"sex": SEX}), WEIGHTED),
}
Rows = list[tuple[int, ...]]
WHOLE, FIRST, LAST = {0, 1, 2, 3, 4}, {0, 1, 2, 3}, {4}


def coding(role: str) -> Coding:
    universe, protection = ROLES[role]
    return Coding(universe=universe, protection=protection, window=Window.of(CALENDAR, ["2025-01"]))


def told(column: pa.Array, role: str, *, inside: set[int], cells: set[int]) -> tuple[Rows, Rows]:
    """Return what is told of the rows of a column, as cells and as words, if these are in the window and have a cell."""
    days = [INSIDE if row in inside else OUTSIDE for row in range(len(column))]
    sexes = ["F" if row in cells else "x" for row in range(len(column))]
    batch = pa.RecordBatch.from_arrays([pa.array(sexes), pa.array(days), column], names=["sex", "day", "x"])
    undecided = {"x"} & {*ROLES[role][0].names}
    coded = coding(role).code(batch, draws=Draws(KEY), piece=0, start=0).columns()
    words = coding(role).words(batch, undecided=undecided, key=KEY)
    rows, versions = (list(zip(*(each.tolist() for each in one), strict=True)) for one in (coded, words))
    return rows, versions


def differences(column: pa.Array) -> list[str]:
    """Name the roles in which rows are told otherwise if another one is outside of the window, or has no cell; nothing may raise."""
    found = []
    for role in ROLES:
        if not coding(role).reads["x"](column.type):
            continue
        try:
            whole, first, last = (told(column, role, inside=rows, cells=WHOLE) for rows in (WHOLE, FIRST, LAST))
            with_cells, _ = told(column, role, inside=WHOLE, cells=FIRST)
        except (pa.ArrowException, ValueError, TypeError):
            found.append(role)
            continue
        if whole != (first[0] + last[0], first[1] + last[1]) or with_cells != first[0]:
            found.append(role)
    return found


def test_rows_are_told_alike_whether_or_not_others_are_left_out() -> None:
    assert {name: roles for name, column in COLUMNS.items() if (roles := differences(column))} == {}


def test_every_role_has_columns_of_most_types() -> None:
    counts = {role: sum(coding(role).reads["x"](column.type) for column in COLUMNS.values()) for role in ROLES}
    assert min(counts.values()) > len(COLUMNS) / 5
    assert counts["id"] == len(COLUMNS)


def test_a_layout_has_no_say_in_words_and_ids() -> None:
    for name, column in COLUMNS.items():
        plain = PLAIN[next(kind for kind in PLAIN if name == kind or name.startswith(f"{kind} "))]
        for one, other in zip(stored_words(column, key=KEY), stored_words(plain, key=KEY), strict=True):
            assert one.tolist() == other.tolist(), name
        (units, known), (same_units, same_known) = hash_ids(column, key=KEY), hash_ids(plain, key=KEY)
        assert known.tolist() == same_known.tolist(), name
        assert units[known].tolist() == same_units[known].tolist(), name


def test_a_table_in_chunks_says_the_same() -> None:
    for name, column in COLUMNS.items():
        chunks = pa.chunked_array([column[:2], column[2:2], column[2:]], column.type)
        words = []
        for values in (chunks, pa.chunked_array([column])):
            (batch,) = read_batches(Source.of(pa.table({"x": values})), columns=["x"])
            words.append([word.tolist() for word in stored_words(batch.column(0), key=KEY)])
        assert words[0] == words[1], name


def test_text_and_bytes_have_the_same_words_in_every_type() -> None:
    texts = [PLAIN[str(kind)] for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())]
    texts += [PLAIN[str(kind)] for kind in (pa.string_view(), pa.binary_view())]
    assert len({tuple(map(tuple, stored_words(text, key=KEY))) for text in texts}) == 1


def test_a_value_that_many_rows_share_is_never_written_out() -> None:
    long = pa.array([b"x" * (1 << 20), b"y", b"unused"])
    rows = pa.array([0] * 100_000 + [1])
    for column in (
        pa.DictionaryArray.from_arrays(rows, long),
        pa.RunEndEncodedArray.from_arrays(pa.array([100_000, 100_001], pa.int32()), long[:2]),
        shared_views("x" * (1 << 20), 100_000, last="y"),
    ):
        values, places = stored_values(column)
        assert (len(values), places.to_pylist()) == (2, rows.to_pylist())
        assert len(np.unique(hash_ids(column, key=KEY)[0], axis=0)) == 2
        assert len(np.unique(stored_words(column, key=KEY)[1])) == 2


def as_it_was(column: pa.Array, rows: pa.Array) -> pa.Array:
    """Take rows as they are stored, and undo only what stands in the way of that, only if some are left out."""
    if len(rows) == len(column):
        return column
    if isinstance(column, pa.ExtensionArray):
        return as_it_was(column.storage, rows)
    if pa.types.is_run_end_encoded(column.type):
        return as_it_was(compute.run_end_decode(column), rows)
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        return column.cast(pa.large_binary()).take(rows)
    return column.take(rows)


def test_rows_that_are_taken_in_another_way_than_all_of_them_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpcore.tables.ingest.coding.taken", as_it_was)
    monkeypatch.setattr("dpcore.tables.ingest.stored_words._family", str)
    monkeypatch.setattr("dpcore.tables.ingest.stored_words.stored_values", lambda column: (column, None))
    assert differences(COLUMNS["binary_view"]) == ["Categorical", "Date"]
    assert differences(COLUMNS["binary"]) == []
    assert "weight" in differences(dict(layouts("string", PLAIN["string"]))["string by int8 in runs"])
