"""A table from Python: of pandas, polars or Arrow, read by its types and shown to nobody."""

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpcore.errors import SourceError, UsageError
from dpcore.tables.sources import memory_table
from dpcore.tables.sources.ids import hash_ids
from dpcore.tables.sources.source import Source, check_types
from dpcore.tables.sources.values import as_text
from tests.dpcore.tables.sources.equal_values import (
    COLUMNS as KINDS_OF_COLUMN,
)
from tests.dpcore.tables.sources.equal_values import (
    COLUMNS_OF_EQUAL,
    COLUMNS_WITHOUT_IDS,
    EQUAL,
    NO_IDS,
    ROWS,
    export_addresses,
    made,
)
from tests.dpcore.tables.sources.sources import CANARY, check_silent, data_version, read_batches, rows, shared_views

KEY = bytes(range(32))


def test_python_objects_are_read_as_text_one_by_one() -> None:
    values = [
        "x",
        1,
        2.5,
        None,
        float("nan"),
        pd.NaT,
        pd.NA,
        True,
        dt.date(2025, 1, 31),
        Decimal("1E+3"),
        b"Z\xfc",
        "\ud800",
    ]
    source = Source.of(pd.DataFrame({"a": pd.Series(values, dtype=object), "never read": [object()] * len(values)}))
    wanted = ["x", "1", "2.5", None, None, None, None, "true", "2025-01-31", "1000", "Zü", "?"]
    assert rows(source, "a") == [(value,) for value in wanted]
    assert source.parts[0].column_types(("a",)) == [pa.large_string()]


def test_no_value_of_any_type_fails() -> None:
    class Rude:
        def __str__(self) -> str:
            raise RuntimeError(CANARY)

    assert [as_text(value) for value in (Rude(), 10**5000, [1], np.float64("nan"), np.int64(7), Decimal("sNaN"))] == [
        None,
        None,
        "[1]",
        None,
        "7",
        None,
    ]
    assert as_text(Decimal("1E+999999")) == "1E+999999"
    assert as_text(pd.Timestamp("2025-01-31 10:00")) == as_text(dt.datetime(2025, 1, 31, 10)) == "2025-01-31T10:00:00"


def test_no_method_of_a_derived_type_fails() -> None:
    class Text(str):
        __slots__ = ()

        def encode(self, *_: object) -> bytes:
            raise ValueError(CANARY)

    class Fraction(float):
        def __ne__(self, _: object) -> bool:
            raise ValueError(CANARY)

        __hash__ = float.__hash__

    assert [as_text(Text("x")), as_text(Fraction(0.5))] == [None, None]


def ids_of(kind: str, makers: Sequence[Callable[[], Any]]) -> int:
    """Return how many ids a table has in a column of equal values."""
    column = KINDS_OF_COLUMN[kind](made(makers))
    frame = pl.DataFrame({"id": column}) if isinstance(column, pl.Series) else pd.DataFrame({"id": column})
    (batch,) = read_batches(Source.of(frame), columns=["id"], ids="id")
    hashed, known = hash_ids(batch.column(0), key=KEY)
    return len({tuple(pair) for pair in hashed[known].tolist()})


@pytest.mark.parametrize(("kind", "makers"), COLUMNS_OF_EQUAL)
def test_equal_values_are_one_id_whatever_dtype_a_library_chooses(
    kind: str, makers: Sequence[Callable[[], Any]]
) -> None:
    assert ids_of(kind, makers) == 1


@pytest.mark.parametrize("kind", KINDS_OF_COLUMN)
def test_different_values_are_different_ids(kind: str) -> None:
    assert ids_of(kind, [lambda: UUID(int=1), lambda: UUID(int=2), lambda: None]) == 2


@pytest.mark.parametrize(("kind", "makers"), COLUMNS_WITHOUT_IDS)
def test_values_that_are_equal_and_differ_in_text_are_no_ids(kind: str, makers: Sequence[Callable[[], Any]]) -> None:
    assert ids_of(kind, makers) == 0


def test_a_conversion_to_addresses_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ids_of("polars", EQUAL["UUIDs"]) == 1
    export_addresses(monkeypatch)
    assert ids_of("polars", EQUAL["UUIDs"]) == ROWS


def test_a_text_that_is_an_address_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_table, "as_id", str)
    assert ids_of("pandas", NO_IDS["values without a text"]) == ROWS


def test_a_column_that_arrow_does_not_know_refuses_a_table_of_polars_only_where_it_is_declared() -> None:
    frame = pl.DataFrame({"a": ["x", "y"], "b": pl.Series([1, 2**100], dtype=pl.Int128)})
    assert rows(Source.of(frame), "a") == [("x",), ("y",)]
    with pytest.raises(SourceError, match="the table cannot be converted to Arrow") as refusal:
        check_types(Source.of(frame), reads={"b": lambda _: True})  # by its type, before a row is read
    check_silent(refusal.value)


class NoText(str):
    """A text that writes itself as a number."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:  # type: ignore[override]
        return NoBytes(b"x")


class NoBytes(bytes):
    """Bytes that decode to a number."""

    __slots__ = ()

    def decode(self, *_: object) -> str:  # type: ignore[override]
        return 7  # type: ignore[return-value]


class NoDay(dt.date):
    """A day that writes itself as half a pair, which is no text in UTF-8."""

    def isoformat(self) -> str:
        return "\ud800"


class NoMoment(dt.datetime):
    """A moment that writes itself as bytes."""

    def isoformat(self, *_: object) -> str:  # type: ignore[override]
        return b"x"  # type: ignore[return-value]


class NoHash(type):
    """The type of a type that nothing can look up."""

    def __hash__(cls) -> int:
        raise ValueError(CANARY)


class Lost(metaclass=NoHash):
    """A value of such a type."""

    def __str__(self) -> str:
        return "found"


DERIVED = [NoText("x"), NoBytes(b"x"), NoMoment(2025, 1, 31), Lost(), NoDay(2025, 1, 31)]
WRITTEN = [None, None, None, None, "?"]


def test_what_a_derived_type_writes_is_text_or_nothing() -> None:
    assert rows(Source.of(pd.DataFrame({"a": pd.Series([*DERIVED, "x"], dtype=object)})), "a") == [
        (text,) for text in (*WRITTEN, "x")
    ]


def test_no_value_of_a_category_or_a_dictionary_is_looked_at_for_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    categories = pd.CategoricalDtype(pd.Index(["x", NoText("y")], dtype=object))
    wild = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([1, 2]).cast(pa.string()))
    tables = [
        pd.DataFrame({"a": pd.Categorical.from_codes([0, 1], dtype=categories)}),
        pd.DataFrame({"a": pd.array(wild.to_pylist(), dtype=pd.ArrowDtype(wild.type))}),
        pa.table({"a": wild}),
    ]
    assert [rows(Source.of(table), "a") for table in tables] == [[("x",), (None,)], *[[("1",), ("2",)]] * 2]

    def looked(*_: object) -> None:
        raise AssertionError("a value was looked at")

    monkeypatch.setattr("dpcore.tables.sources.memory_table.as_text", looked)
    monkeypatch.setattr("dpcore.tables.sources.memory_table.sound", looked)
    for table in tables:
        (kind,) = Source.of(table).parts[0].column_types(("a",))
        assert pa.types.is_dictionary(kind)


def of_counts(values: list[int], kind: pa.DataType) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)})


ODD_ROWS = {
    "a far second of pandas": pd.DataFrame({"a": np.array([0, 2**55], "datetime64[s]")}),
    "half a pair": pd.DataFrame({"a": pd.array(["x", "\ud800"], dtype="string[python]")}),
    "half a pair in a category": pd.DataFrame({"a": pd.Categorical(pd.array(["x", "\ud800"], dtype="string[python]"))}),
    "a far second": of_counts([0, 2**62], pa.timestamp("s", "UTC")),
    "a day with a time": of_counts([0, 1], pa.date64()),
    "a late time": of_counts([0, 90_000], pa.time32("s")),
    "a very late time": of_counts([0, 2**62], pa.time64("us")),
    "a null in a dictionary": pa.table({"a": pa.array(["x", None]).dictionary_encode(null_encoding="encode")}),
    "a null in one dictionary of two": pa.table(
        {"a": pa.chunked_array([pa.array([one]).cast(pa.string()).dictionary_encode(null_encoding="encode") for one in ("x", None)])}
    ),
    "a null in one dictionary of two, of pandas": pd.DataFrame(
        {"a": pd.arrays.ArrowExtensionArray(pa.chunked_array([pa.array([one]).cast(pa.string()).dictionary_encode(null_encoding="encode") for one in ("x", None)]))}
    ),
    "a number with too many digits": pa.table(
        {"a": pa.Array.from_buffers(pa.decimal128(5, 2), 2, [None, pa.py_buffer(bytes(16) + b"\x7f" * 16)])}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD_ROWS)
def test_one_odd_value_does_not_refuse_a_table(name: str) -> None:
    source = Source.of(ODD_ROWS[name])
    assert sum(batch.num_rows for batch in read_batches(source, columns=("a",))) == 2
    odd, without = (Source.of(table) for table in (ODD_ROWS[name], ODD_ROWS[name][:1]))
    assert data_version(odd, columns=("a",), key=KEY) != data_version(without, columns=("a",), key=KEY)


def test_types_of_a_table_are_its_own_whatever_the_values_of_a_batch() -> None:
    rows_ = 300_000
    frame = pd.DataFrame(
        {"a": np.where(np.arange(rows_) < rows_ - 1, np.nan, 1.0), "b": pd.Series([None] * rows_, dtype=object)}
    )
    batches = list(read_batches(Source.of(frame), columns=("a", "b")))
    assert {tuple(batch.schema.types) for batch in batches} == {(pa.float64(), pa.large_string())}
    assert max(batch.num_rows for batch in batches) <= 1 << 17
    assert sum(batch.num_rows for batch in batches) == rows_


def test_text_that_is_not_utf8_becomes_valid_text() -> None:
    raw = pa.array([b"Z\xfcrich"])
    text = pa.StringArray.from_buffers(1, raw.buffers()[1], raw.buffers()[2])
    assert rows(Source.of(pa.table({"a": text})), "a") == [("Zürich",)]


@pytest.mark.parametrize("chunks", [1, 2])
def test_views_of_more_text_than_32_bits_can_count_are_read(chunks: int) -> None:
    long, last = "x" * (1 << 15), "y" * 33
    views = pa.chunked_array([shared_views(long, 100_000, last=last), pa.array([None], pa.string_view())][:chunks])
    (batch,) = read_batches(Source.of(pa.table({"a": views})), columns=["a"])
    column = batch.column(0)
    assert [str(value) for value in column.dictionary.cast(pa.large_string()).to_pylist()] == [long, last]
    assert column.indices.to_pylist() == ([0] * 100_000 + [1, None])[: len(views)]


def test_views_in_a_dictionary_are_read() -> None:
    views = pa.array(["x", "y" * 33, None], pa.string_view())
    column = pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 2, 1]), views)
    assert rows(Source.of(pa.table({"a": column})), "a") == [("y" * 33,), ("x",), (None,), (None,), ("y" * 33,)]


def test_what_is_no_table_is_refused_with_what_to_hand_over() -> None:
    for wrong in ([CANARY], {"a": [1]}, pl.LazyFrame({"a": [1]}), np.zeros((2, 2))):
        with pytest.raises(UsageError, match="pandas, polars or Arrow") as refusal:
            Source.of(wrong)
        assert CANARY not in str(refusal.value)


def test_a_query_of_another_library_is_not_run() -> None:
    class Relation:
        """Runs when it is asked for its rows, and fails by one of them."""

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            raise AssertionError("a lazy table was run before anything was reserved")

    with pytest.raises(UsageError, match="collect a lazy one before handing it over"):
        Source.of(Relation())


def test_a_doubled_column_is_refused_as_in_a_file() -> None:
    twice = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(SourceError, match="the table has more than one of the declared column 'a'"):
        rows(Source.of(twice), "a")


def test_a_type_that_arrow_does_not_know_is_refused_by_one_sentence() -> None:
    frame = pd.DataFrame({"a": [1 + 2j], "b": [1]})
    assert rows(Source.of(frame), "b") == [(1,)]
    with pytest.raises(SourceError, match="the table cannot be converted to Arrow") as refusal:
        rows(Source.of(frame), "a")
    check_silent(refusal.value)


def test_the_version_tells_values_and_not_how_they_are_stored() -> None:
    def version(table: object) -> str:
        return data_version(Source.of(table), columns=("a",), key=KEY)

    # what lies under a null is no part of it
    masked = [
        pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\1"), pa.py_buffer(bytes(8) + bytes([x] * 8))])
        for x in (1, 2)
    ]
    assert version(pa.table({"a": masked[0]})) == version(pa.table({"a": masked[1]}))
    # nor is how the table is stored
    text = pa.array(["x", None, "longer than twelve bytes"])
    whole, cut = pa.table({"a": text}), pa.table({"a": pa.chunked_array([text[:1], text[1:]])})
    shifted = pa.table({"a": pa.concat_arrays([text, text])[3:]})
    assert version(whole) == version(cut) == version(shifted)
    flags = pa.array([True, None, False])
    assert version(pa.table({"a": flags})) == version(pa.table({"a": pa.concat_arrays([flags, flags])[3:]}))
    # and an empty text is no null, and a second no millisecond
    assert version(whole) != version(pa.table({"a": text.fill_null("")}))
    assert version(of_counts([1], pa.timestamp("s"))) != version(of_counts([1], pa.timestamp("ms")))
