"""Each row of a CSV file is read by itself: no other row's bytes or length have a say in it."""

import csv
import gzip
import io
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv

from dpcore.errors import SourceError
from dpcore.tables.sources import csv_file
from dpcore.tables.sources.csv_file import CHUNK_BYTES, HEADER_BYTES, CsvFile
from dpcore.tables.sources.csv_records import record_ends
from dpcore.tables.sources.stored_file import StoredFile
from dpcore.tables.sources.text import text_of
from tests.campaign import often
from tests.dpcore.tables.sources.sources import write

Row = tuple[str | None, ...]
COLUMNS = ("x", "y", "z")
CHUNK = CHUNK_BYTES[0]
ALPHABET = ("a", "b", "\xff", "\xc3\xbc", "\xef\xbb\xbf", ",", '"', "\n", "\r", "\r\n", "\0", "\1", "\2", "\3", " ")


def read(folder: Path, content: bytes, *, name: str = "t.csv", **options: str | None) -> list[Row]:
    file = CsvFile(StoredFile(str(write(folder, name, content))), **options)
    return [tuple(row.values()) for batch in file.batches(COLUMNS) for row in batch.to_pylist()]


def as_python_reads(content: bytes, *, quote: str | None) -> list[Row]:
    lines = io.StringIO(content.decode("latin-1"), newline="")
    quoting = csv.QUOTE_NONE if quote is None else csv.QUOTE_MINIMAL
    records = list(csv.reader(lines, quoting=quoting, quotechar=quote))[1:]
    return [tuple(text_of(f.encode("latin-1")) or None for f in record) for record in records if len(record) == 3]


def value(chance: random.Random, *, quote: str | None) -> str:
    text = "".join(chance.choices(ALPHABET, k=chance.choice((0, 0, 1, 2, 3, 8, 40))))
    if quote is None:
        return "".join(character for character in text if character not in ",\r\n")
    needed = any(character in text for character in ',"\r\n')
    return '"' + text.replace('"', '""') + '"' if needed or chance.random() < 0.3 else text


def record(chance: random.Random, *, quote: str | None) -> str:
    fields = chance.choice((3, 3, 3, 3, 3, 3, 0, 1, 2, 4))
    return ",".join(value(chance, quote=quote) for _ in range(fields))


@pytest.mark.campaign
@pytest.mark.parametrize("quote", ['"', None])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("usual", [7, 48, 4096])
def test_any_proper_file_is_read_as_python_reads_it_and_without_a_row_only_that_row_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usual: int, line_end: str, quote: str | None
) -> None:
    monkeypatch.setattr(csv_file, "CHUNK_BYTES", (usual, 4096))
    chance = random.Random(f"{usual}{line_end}{quote}")  # noqa: S311  not for secrets
    for _ in range(often(5, campaign=25)):
        records = [record(chance, quote=quote) for _ in range(chance.randrange(1, 12))]
        left_out = chance.randrange(len(records))
        tables = []
        for some in (records, records[:left_out] + records[left_out + 1 :]):
            content = line_end.join((",".join(COLUMNS), *some, "")).encode("latin-1")
            tables.append(read(tmp_path, content, quote=quote))
            assert tables[-1] == as_python_reads(content, quote=quote)
        whole, rest = map(Counter, tables)
        assert not rest - whole
        assert (whole - rest).total() <= 1


@pytest.mark.parametrize("before", range(6))
def test_a_line_break_in_a_value_stays_whole_wherever_a_block_ends(tmp_path: Path, before: int) -> None:
    head = b'x,y,z\r\no,o,"'
    filler = b"x" * (CHUNK - len(head) - len(b'"\r\n"yes\r') + 3 - before)
    found = read(tmp_path, head + filler + b'"\r\n' + b'"yes\r\nno",a,b\r\n' * 3)
    assert found[1:] == [("yes\r\nno", "a", "b")] * 3


@pytest.mark.parametrize(
    "after", [b'","\na\n"\naaa","aaa",""\n', b'"\naaa","aaa",""\n', b'b,"l1\nl2","c"\n', b'a\n"\naaa","aaa",""\n']
)
@pytest.mark.parametrize("row", [b'"a","\0",aaaaaaaaaaaaaaa\n', b'"a","0",aaaaaaaaaaaaaaa\n'])
def test_a_nul_byte_where_a_block_ends_changes_no_row_after_it(tmp_path: Path, row: bytes, after: bytes) -> None:
    filler = b"p,q," + b"a" * (CHUNK - len(b"x,y,z\np,q,\n") - 13) + b"\n"
    without = read(tmp_path, b"x,y,z\n" + filler + after)
    assert len(without) == 2
    found = read(tmp_path, b"x,y,z\n" + filler + row + after)
    assert found == [without[0], ("a", row.split(b'"')[3].decode(), "a" * 15), *without[1:]]


def test_nul_bytes_among_long_values_end_no_search_for_delimiters(tmp_path: Path) -> None:
    long = b",".join([b"y" * 40] * 3) + b"\n"
    content = b"x,y,z\n" + long * 12_000 + b"\0a,b\0,\1\0\2\n" + long * 5
    found = read(tmp_path, content)
    assert len(found) == 12_006
    assert found[12_000] == ("\0a", "b\0", "\1\0\2")


@pytest.mark.parametrize("value", [b"a\0b", b"\xfc\0", b"\xc4\x80\0"])
def test_arrow_meets_no_nul_byte_and_values_keep_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: bytes
) -> None:
    met, read_csv = b"", arrow_csv.read_csv

    def watched(chunk: pa.BufferReader, **options: Any) -> pa.Table:
        nonlocal met
        met += chunk.read()
        chunk.seek(0)
        return read_csv(chunk, **options)

    monkeypatch.setattr(arrow_csv, "read_csv", watched)
    assert read(tmp_path, b"x\1y\1z\n" + value + b"\1\2\1\3\n", delimiter="\1") == [(text_of(value), "\2", "\3")]
    assert b"\2" in met
    assert b"\0" not in met


@pytest.mark.parametrize("encoding", [None, "utf-8-sig", "cp1252"])
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_packed_and_encoded_files_are_cut_where_a_record_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, encoding: str | None
) -> None:
    monkeypatch.setattr(csv_file, "CHUNK_BYTES", (48, 4096))
    wanted = [(f"Zürich {place}\r\n", "a\rb" * (place % 5), "\0€\n") for place in range(60)]
    text = "x,y,z\r\n" + "".join(f'"{x}","{y}","{z}"\r\n' for x, y, z in wanted)
    content = text.encode(encoding or "utf-8-sig")
    content = gzip.compress(content) if name.endswith(".gz") else content
    found = read(tmp_path, content, name=name, encoding=encoding)
    assert found == [(x, y or None, z) for x, y, z in wanted]


@pytest.mark.parametrize("blank", [b"", b"\n\r\n\r", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n\n"])
def test_the_first_record_that_is_not_blank_is_the_header(tmp_path: Path, blank: bytes) -> None:
    assert read(tmp_path, blank + b'x,"y",z,"a,b"\r\n\r\n1,2,3,4\r\n') == [("1", "2", "3")]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(b",".join(b"c%d" % place for place in range(200_000)), id="many columns"),
        pytest.param(b"q" * (HEADER_BYTES >> 2), id="a long name"),
    ],
)
def test_a_header_that_is_too_long_is_refused_in_a_sentence_and_no_row_left_out(tmp_path: Path, more: bytes) -> None:
    content = b"x,y,z," + more + b"\n1,2,3" + b"," * (more.count(b",") + 1) + b"\n"
    file = CsvFile(StoredFile(str(write(tmp_path, "t.csv", content))))
    with pytest.raises(SourceError, match=r"the header of 't\.csv' is longer than 1 MiB"):
        file.column_names()


def test_a_header_as_long_as_may_be_is_read(tmp_path: Path) -> None:
    head = b"x,y,z," + b"," * (HEADER_BYTES - 7) + b"\n"
    file = CsvFile(StoredFile(str(write(tmp_path, "t.csv", head + b"1,2,3\n"))))
    assert len(head) == HEADER_BYTES
    assert len(file.column_names()) == head.count(b",") + 1


@pytest.mark.parametrize("head", [b'x,"y,z', b'x,y,z"', b'"', b'x,"y""z', b'"x,y",z,"'])
def test_where_a_header_ends_is_not_for_the_rows_to_decide(tmp_path: Path, head: bytes) -> None:
    """A row that closes the quotation of the header, and a file without one, are refused alike, whatever the rows hold."""
    said = set()
    for number, below in enumerate(
        (b"1,2,3\n", b'1,2,3"\n4,5,6\n', b'"\n1,2,3\n', b"1,2,3\n" * (HEADER_BYTES // 6), b"")
    ):
        file = CsvFile(StoredFile(str(write(tmp_path / str(number), "t.csv", head + b"\n" + below))))
        with pytest.raises(SourceError) as refusal:
            file.column_names()
        assert type(refusal.value) is SourceError  # which is free, since no row has a say
        said.add(str(refusal.value))
    assert len(said) == 1
    assert "leaves a quotation open at the end of its first line" in said.pop()


def test_with_the_header_as_a_record_of_its_own_a_row_would_decide_where_it_ends() -> None:
    head = b'x,"y,z\n'
    lengths = {int(record_ends(head + row, quote='"', is_open=False)[0]) for row in (b'1,"\n', b'1,2\n3,"\n')}
    assert len(lengths) == 2
