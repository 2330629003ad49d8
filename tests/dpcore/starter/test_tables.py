"""Tables as sources: only a schema or a header is read."""

import gzip
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather, ipc

from dpcore.errors import DpflowError, SourceError, SpecError, UsageError
from dpcore.starter import describe, draft_of, spec_text

SCHEMA = pa.schema(
    [
        pa.field("age", pa.int64(), nullable=False, metadata={"description": "in years"}),
        pa.field("sex", pa.dictionary(pa.int8(), pa.string())),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("height", pa.float32()),
        pa.field("joined", pa.date32()),
        pa.field("seen", pa.timestamp("us")),
        pa.field("member", pa.bool_()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("patient_id", pa.string()),
    ]
)


def table(canary: str) -> pa.Table:
    rows = {"age": 31337, "sex": canary, "height": 4242.5, "tags": [canary], "patient_id": canary, "member": True}
    return pa.Table.from_pylist([rows], schema=SCHEMA)


def written(path: Path) -> str:
    found = describe(str(path), kind=None, table=None)
    return spec_text(draft_of(found, dataset="visits", origin="its schema"))


def data_destroyed(path: Path) -> None:
    """Overwrite everything in a Parquet file but its footer."""
    content = bytearray(path.read_bytes())
    footer = 8 + struct.unpack("<I", content[-8:-4])[0]
    content[4:-footer] = b"\xff" * (len(content) - footer - 4)
    path.write_bytes(content)


def test_a_parquet_schema_becomes_declarations(tmp_path: Path) -> None:
    path = tmp_path / "visits.parquet"
    pq.write_table(table("x"), path)
    entries = {
        entry.name: entry
        for entry in draft_of(describe(str(path), kind=None, table=None), dataset="v", origin="").entries
    }
    assert entries["age"].declaration == {"type": "integer", "min": "FILL_IN", "max": "FILL_IN"}
    assert entries["age"].about == ("in years",)
    assert entries["sex"].declaration == {"type": "categorical", "values": "FILL_IN", "missing": True}
    assert entries["price"].declaration == {
        "type": "number",
        "min": "FILL_IN",
        "max": "FILL_IN",
        "step": 0.01,
        "missing": True,
    }
    assert entries["height"].kind == "number"
    assert entries["joined"].kind == "date"
    assert entries["seen"].kind == "datetime"
    assert entries["member"].declaration == {"type": "boolean", "missing": True}
    assert "lists" in entries["tags"].left_out
    assert "looks like an id" in entries["patient_id"].left_out


def test_neither_the_rows_nor_the_statistics_of_a_parquet_file_reach_the_spec(tmp_path: Path) -> None:
    path = tmp_path / "visits.parquet"
    texts = []
    for canary in ("CANARY", "another"):
        pq.write_table(table(canary), path, compression="none")
        content = path.read_bytes()
        assert content.count(canary.encode()) >= 2  # in a data page, and in the statistics of the footer
        data_destroyed(path)
        assert canary.encode() in path.read_bytes()
        texts.append(written(path))
    assert texts[0] == texts[1]
    assert "CANARY" not in texts[0]
    assert "31337" not in texts[0]
    assert "4242" not in texts[0]


@pytest.mark.parametrize("stream", [False, True])
def test_of_an_arrow_file_only_the_first_message_is_read(tmp_path: Path, stream: bool) -> None:
    path = tmp_path / "visits.arrow"
    if stream:
        with ipc.new_stream(path, SCHEMA) as writer:
            writer.write_table(table("CANARY"))
    else:
        feather.write_feather(table("CANARY"), path, compression="uncompressed")
    whole = written(path)
    content = path.read_bytes()
    with pa.BufferReader(content) as reader:
        reader.read(0 if stream else 8)
        ipc.read_message(reader)
        end = reader.tell()
    path.write_bytes(content[:end] + b"\xff" * 1000)
    assert written(path) == whole
    assert "CANARY" not in whole


@contextmanager
def pipe(path: Path, content: bytes) -> Iterator[int]:
    """A named pipe that holds `content`; what is not read from it stays in it. Reading beyond its end would block."""
    os.mkfifo(path)
    both = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    try:
        os.write(both, content)
        yield both
    finally:
        os.close(both)


@pytest.mark.parametrize("newline", [b"\n", b"\r", b"\r\n"])
def test_not_one_byte_behind_a_csv_header_is_read(tmp_path: Path, newline: bytes) -> None:
    path, rows = tmp_path / "visits.csv", b"Jane,\xff\x00 37"
    with pipe(path, b"\xef\xbb\xbf\n\nname,age" + newline + rows) as both:
        found = describe(str(path), kind=None, table=None)
        assert [column.name for column in found.columns] == ["name", "age"]
        rest = os.read(both, 100)
    assert rest == (b"\n" if newline == b"\r\n" else b"") + rows


def test_a_compressed_header_is_unpacked_byte_by_byte(tmp_path: Path) -> None:
    rows = os.urandom(30_000)
    path, content = tmp_path / "visits.csv.gz", gzip.compress(b"sex,age\n" + rows)
    with pipe(path, content) as both:
        found = describe(str(path), kind=None, table=None)
        assert [column.name for column in found.columns] == ["sex", "age"]
        assert len(os.read(both, 1 << 16)) > 29_000


def test_a_zstd_header_is_read(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv.zst"
    with pa.CompressedOutputStream(str(path), "zstd") as file:
        file.write(b"sex,age\nF,3\n")
    assert [column.name for column in describe(str(path), kind=None, table=None).columns] == ["sex", "age"]


@pytest.mark.parametrize(
    ("header", "delimiter", "names"),
    [
        ('a;"b;c";d', ";", ["a", "b;c", "d"]),
        ('a,"b;c;d"', None, ["a", "b;c;d"]),
        ("a\tb", "\t", ["a", "b"]),
        ("only", None, ["only"]),
        ("gr\u00f6\u00dfe,b", None, ["gr\u00f6\u00dfe", "b"]),
    ],
)
def test_the_delimiter_is_seen_in_the_header(
    tmp_path: Path, header: str, delimiter: str | None, names: list[str]
) -> None:
    path = tmp_path / "visits.csv"
    path.write_text(f"{header}\n1,2\n", encoding="utf-8")
    found = describe(str(path), kind=None, table=None)
    assert [column.name for column in found.columns] == names
    assert (found.source or {}).get("delimiter") == delimiter


@pytest.mark.parametrize("row", ["Jane,37", "Jane,1987-05-02", "Jane,jane@example.org", "Jane,3.5", "1/2/1987,Jane"])
def test_a_row_is_not_taken_for_a_header(tmp_path: Path, row: str) -> None:
    path = tmp_path / "visits.csv"
    path.write_text(f"{row}\n")
    with pytest.raises(SpecError, match="looks like a row") as caught:
        describe(str(path), kind=None, table=None)
    assert "Jane" not in str(caught.value)
    assert len(describe(str(path), kind="csv", table=None).columns) == 2


def test_names_with_digits_and_years_are_a_header(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("diag_1,2019,2020,A1Cresult,18-65\n")
    assert len(describe(str(path), kind=None, table=None).columns) == 5


def test_columns_of_a_header_are_marked_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("age,age,,person_id,sex\n")
    text = written(path)
    assert "\n  sex: FILL_IN   # declare what it holds" in text
    assert "\n  # age: FILL_IN   # its name occurs twice" in text
    assert '\n  # "": FILL_IN   # it has no name' in text
    assert "\n  # person_id: FILL_IN   # it looks like an id" in text


def test_a_folder_and_a_pattern_are_described_by_their_first_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "visits").mkdir()
    (tmp_path / "visits" / "a.csv").write_text("age,sex\n")
    (tmp_path / "visits" / "readme.md").write_text("a note")
    monkeypatch.chdir(tmp_path)
    for source in ("visits", "visits/*.csv"):
        found = describe(source, kind=None, table=None)
        assert [column.name for column in found.columns] == ["age", "sex"]
        assert found.source == {"path": source}


@pytest.mark.parametrize(
    ("name", "content", "error", "words"),
    [
        ("v.parquet", b"PAR1 nothing PAR1", SourceError, "no readable Parquet schema"),
        ("v.parquet", b"", SourceError, "no readable Parquet schema"),
        ("v.arrow", b"ARROW1\0\0\xff\xff\xff\xff\xff\xff\xff\x7f", SourceError, "no readable Arrow schema"),
        ("v.csv", b"", SpecError, ":1:1: is empty"),
        ("v.csv", b"a\0b,c\n", SpecError, ":1:2: holds a NUL"),
        ("v.csv", b'a,"b\nc",d\n', SpecError, ":1:3: the header leaves a quotation open"),
        ("v.csv", b"\xff\xfea\0,\0", SpecError, "UTF-16"),
        ("v.csv.gz", b"no gzip", SourceError, "no readable header"),
        ("v.xlsx", b"PK", UsageError, "say it with --kind: csv, parquet"),
        ("v.sqlite", b"SQLite format 3\0", UsageError, "export CLINIC_DB=sqlite:///"),
    ],
)
def test_a_damaged_file_gets_one_sentence(
    tmp_path: Path, name: str, content: bytes, error: type[DpflowError], words: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(error) as caught:
        describe(str(path), kind=None, table=None)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_without_newlines_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpcore.starter.csv_header.HEADER_BYTES", 1 << 12)
    path = tmp_path / "v.csv"
    with pipe(path, b"a" * 10_000) as both:
        with pytest.raises(SpecError, match=":1:4096: the header is longer"):
            describe(str(path), kind=None, table=None)
        assert len(os.read(both, 1 << 16)) == 10_000 - (1 << 12) - 1


def test_what_does_not_exist_and_addresses_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no such file"):
        describe("nowhere.csv", kind=None, table=None)
    with pytest.raises(UsageError, match="environment variable"):
        describe("postgresql://steward:secret@host/clinic", kind=None, table=None)
