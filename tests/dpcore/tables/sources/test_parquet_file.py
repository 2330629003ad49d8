"""Parquet files: what a footer holds of the rows has no say, and text comes as it is stored, whatever type it was written from."""

import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from dpcore.errors import SourceBroken, SourceError
from dpcore.tables.sources import parquet_file
from dpcore.tables.sources.source import Source, check_columns, check_types
from tests.dpcore.tables.sources.sources import check_silent, located, parquet_bytes, read_batches, rows, write

ROOT = Path(__file__).parents[4]
LIMIT = 2000
HEADERS: dict[str, Callable[[Source], object]] = {
    "names": lambda source: check_columns(source, columns=("sex",)),
    "types": lambda source: check_types(source, reads={"sex": lambda _: True}),
    "pieces": lambda source: source.pieces(ids=None),
}


def footer(folder: Path, *, note: int = 1, groups: int = 1) -> Source:
    """Write a file whose footer has a note in full, as its greatest value, and so many row groups."""
    table = pa.table({"sex": ["F"] * groups, "note": ["z" * note] * groups})
    write(folder, "t.parquet", parquet_bytes(table, row_group_size=1, store_schema=False))
    return located(folder, "t.parquet")


def test_the_limits_of_a_footer_are_the_largest_that_there_are(tmp_path: Path) -> None:
    footer(tmp_path)
    for limit in ("thrift_string_size_limit", "thrift_container_size_limit"):
        with pytest.raises(OverflowError):
            parquet.ParquetFile(tmp_path / "t.parquet", **{limit: parquet_file.LARGEST_FOOTER + 1})


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("rows_decide", [{"note": LIMIT + 1}, {"groups": LIMIT + 1}], ids=["a value", "row groups"])
def test_a_footer_that_rows_make_unreadable_is_no_failure_before_the_first_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_decide: dict[str, int], header: str
) -> None:
    source = footer(tmp_path, **rows_decide)
    HEADERS[header](source)  # as it is read
    monkeypatch.setattr(parquet_file, "LARGEST_FOOTER", LIMIT)
    with pytest.raises(SourceBroken) as refusal:
        HEADERS[header](source)
    check_silent(refusal.value)
    HEADERS[header](footer(tmp_path))  # the limit alone refuses nothing


@pytest.mark.parametrize("header", HEADERS)
def test_only_a_file_that_does_not_end_as_a_parquet_file_is_none(tmp_path: Path, header: str) -> None:
    source = footer(tmp_path)
    whole = (tmp_path / "t.parquet").read_bytes()
    for content in (whole[:-1], whole[:3], b"x", whole[:-4] + b"PARE"):
        write(tmp_path, "t.parquet", content)
        with pytest.raises(SourceError) as refusal:
            HEADERS[header](source)
        assert type(refusal.value) is SourceError
    for content in (whole[:-88] + b"\xff" * 80 + whole[-8:], b"PAR1", b"\xff" * 8 + b"PAR1"):
        write(tmp_path, "t.parquet", content)
        with pytest.raises(SourceBroken):
            HEADERS[header](source)


INDICES = (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64())


def written_from(values: list[bytes | None], *, index: pa.DataType, text: pa.DataType) -> pa.Array:
    """Make an array by dictionary, of text that nobody has checked."""
    raw = pa.array(values, pa.large_binary() if text == pa.large_string() else pa.binary()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(raw.indices.cast(index), raw.dictionary.view(text))


@pytest.mark.parametrize(
    ("index", "text"), [*zip(INDICES, cycle((pa.string(), pa.large_string())), strict=False)], ids=str
)
def test_one_value_that_is_not_utf_8_is_read_whatever_dictionary_it_was_written_from(
    tmp_path: Path, index: pa.DataType, text: pa.DataType
) -> None:
    values = [b"F", b"M", b"Z\xfcrich", None, b"F"]
    table = pa.table({"x": written_from(values, index=index, text=text)})
    write(tmp_path, "t.parquet", parquet_bytes(table))
    assert rows(located(tmp_path, "t.parquet"), "x") == [("F",), ("M",), ("Z\u00fcrich",), (None,), ("F",)]
    if index not in {pa.int32(), pa.uint32()}:  # the control: left to itself, Arrow converts it and fails
        with pytest.raises(pa.ArrowInvalid):
            parquet.read_table(tmp_path / "t.parquet")


def test_row_groups_may_have_more_values_together_than_the_type_of_their_dictionaries_can_number(
    tmp_path: Path,
) -> None:
    parts = [[b"%d" % value for value in range(start, start + 100)] for start in (0, 100, 200)]
    tables = [pa.table({"x": written_from(part, index=pa.int8(), text=pa.string())}) for part in parts]
    with parquet.ParquetWriter(tmp_path / "t.parquet", tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)
    assert rows(located(tmp_path, "t.parquet"), "x") == [(str(value),) for value in range(300)]


def test_of_a_long_dictionary_only_the_used_values_are_kept_and_none_is_written_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long, rows_of_it = "x" * (1 << 15), 100_000  # 3.3 GB, if it were written out
    texts = [long, *map(str, range(rows_of_it + 1))]
    places = [0] * rows_of_it + list(range(len(texts)))
    column = pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(texts))
    write(tmp_path, "t.parquet", parquet_bytes(pa.table({"a": column}), dictionary_pagesize_limit=1 << 24))
    monkeypatch.setattr("dpcore.tables.sources.parquet_file.BATCH_ROWS", rows_of_it)
    first, *_ = read_batches(located(tmp_path, "t.parquet"), columns=("a",))
    assert first.column(0).dictionary.to_pylist() == [long]
    assert first.column(0).indices.to_pylist() == [0] * rows_of_it


def extended(folder: Path, storage: pa.Array) -> Source:
    column = pa.ExtensionArray.from_storage(pa.opaque(storage.type, "type", "vendor"), storage)
    write(folder, "t.parquet", parquet_bytes(pa.table({"sex": column, "age": [1, 2]})))
    return located(folder, "t.parquet")


def test_an_extension_of_a_dictionary_is_refused_before_it_ends_the_process(tmp_path: Path) -> None:
    storage = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), ["F", "M"])
    source = extended(tmp_path, storage)
    with pytest.raises(SourceError, match=r"'t\.parquet' holds the declared column 'sex' as an extension") as refusal:
        check_types(source, reads={"sex": lambda _: True})
    check_silent(refusal.value)
    assert rows(source, "age") == [(1,), (2,)]
    assert rows(extended(tmp_path, pa.array(["F", "M"])), "sex") == [("F",), ("M",)]
    # the control: what would be read, if nothing refused it, ends the process
    program = f"""
from pathlib import Path
from dpcore.tables.sources import parquet_file
from tests.dpcore.tables.sources.sources import located, rows
parquet_file._aborts = lambda _: False
rows(located(Path({str(tmp_path)!r}), "t.parquet"), "sex")
"""
    extended(tmp_path, storage)
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True)
    assert ended.returncode == -signal.SIGABRT


@pytest.mark.parametrize("first", [True, False], ids=["column first", "struct first"])
def test_a_column_that_shares_its_path_with_a_nested_field_is_refused_whatever_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    def table(value: bytes) -> Source:
        texts = pa.array([b"x", value]).dictionary_encode()
        column = pa.DictionaryArray.from_arrays(texts.indices.cast(pa.int8()), texts.dictionary.view(pa.string()))
        pair = [("s.x", column), ("s", pa.array([{"x": "F"}, {"x": "M"}]))]
        write(tmp_path, "t.parquet", parquet_bytes(pa.table(dict(pair if first else pair[::-1]))))
        return located(tmp_path, "t.parquet")

    for value in (b"y", b"\xff"):
        with pytest.raises(SourceError, match=r"has the declared column 's\.x' and a nested field") as refusal:
            check_types(table(value), reads={"s.x": lambda _: True})
        check_silent(refusal.value)
    if first:  # the control: one value decides, if nothing refuses the name
        monkeypatch.setattr(parquet_file, "_is_ambiguous", lambda *_: False)
        assert rows(table(b"y"), "s.x") == [("x",), ("y",)]
        with pytest.raises(SourceBroken):
            rows(table(b"\xff"), "s.x")
