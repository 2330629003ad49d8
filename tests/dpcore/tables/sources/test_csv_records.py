"""The bytes of a CSV file: quotation marks are checked, chunks end at record boundaries."""

import csv
import io

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.tables.sources.csv_records import QuotationScan, record_ends, whole_records

RECORDS = st.lists(st.sampled_from([b"a", b"", b'"\r\n"', b'"""\r"', b'"\n",b', b"abcdef", b'"' + b"\r" * 9 + b'"']))


def chunks(content: bytes, *, usual: int, largest: int = 1 << 20, quote: str | None = '"') -> list[bytes]:
    return list(whole_records(pa.BufferReader(content), quote=quote, usual=usual, largest=largest))


@given(RECORDS, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.integers(1, 40), st.booleans())
@settings(deadline=None)
def test_every_block_ends_where_a_record_does(records: list[bytes], line_end: bytes, usual: int, ended: bool) -> None:
    content = line_end.join(records) + (line_end if ended else b"")
    found = chunks(content, usual=usual)
    assert b"".join(found) == content
    places, place = {0, len(content)}, 0
    for record in records:
        place += len(record) + len(line_end)
        places.add(place)
    place = 0
    for chunk in found:
        assert chunk
        place += len(chunk)
        assert place in places


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("before", [0, 3, 4, 5, 9])
def test_whether_a_record_is_too_long_depends_on_nothing_before_it(before: int, line_end: bytes) -> None:
    start = b"x" * before + line_end + b"y" + line_end
    fits = b'"' + b"\n" * (38 - len(line_end)) + b'"' + line_end
    assert len(fits) == 40
    assert b"".join(chunks(start + fits * 3, usual=8, largest=40)) == start + fits * 3
    long = b"z" + fits
    largest = 40 - len(line_end)  # which does not count
    for content in (start + long + fits * 2, start + fits + long + fits, start + fits * 2 + long):
        assert b"".join(chunks(content, usual=8, largest=largest)) == start + fits * 2
        without_end = content.removesuffix(line_end)
        assert b"".join(chunks(without_end, usual=8, largest=largest)).removesuffix(line_end) == (
            start + fits * 2
        ).removesuffix(line_end)


def test_without_quoting_every_line_end_ends_a_record() -> None:
    content = b'a"\nb\r\nc\rd'
    assert record_ends(content, quote=None, is_open=False).tolist() == [3, 6, 8]
    assert chunks(content, usual=1, quote=None) == [b'a"\n', b"b\r\n", b"c\r", b"d"]


def test_a_block_that_begins_inside_a_quotation_has_no_end_before_its_mark() -> None:
    assert record_ends(b'\n"\n"\n', quote='"', is_open=True).tolist() == [3]


def test_a_record_end_far_before_the_end_of_a_block_is_found() -> None:
    content = b"a\n" + b'""' * (1 << 16) + b"x" * (1 << 17)
    assert [len(chunk) for chunk in chunks(content, usual=1 << 18)] == [2, (1 << 18)]


def well_formed(data: bytes, *, chunk: int = 1 << 20, delimiter: str = ",") -> bool:
    scan = QuotationScan(delimiter)
    for start in range(0, len(data), chunk):
        scan.take(data[start : start + chunk])
    return scan.well_formed()


@given(
    st.lists(st.lists(st.text(st.sampled_from('ab",;\n\r ö'), max_size=6), min_size=2, max_size=3), max_size=6),
    st.integers(1, 7),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
@settings(deadline=None)
def test_whatever_a_proper_writer_writes_passes_in_blocks_of_any_size(
    rows: list[list[str]], chunk: int, quoting: int
) -> None:
    file = io.StringIO(newline="")
    csv.writer(file, quoting=quoting).writerows(rows)
    assert well_formed(file.getvalue().encode(), chunk=chunk)


MARKS = {
    b'a,b\n"hi,F\nok,M\n': False,
    b'a\n"x"y\n': False,
    b'a\nx"y"\n': False,
    b'a\n5" pipe\n': False,
    b'"': False,
    b'a\n"x" ,y\n': False,
    b'a\n"one,1\ntwo,2\n"three,3\n': False,
    b"": True,
    b'"a","b"\r\n"1","2"': True,
    b'a\n""""\n': True,
    b'a\n"x\ny"\n': True,
    b'a\n"say ""hi"""\n': True,
}


@pytest.mark.parametrize("content", MARKS)
def test_a_mark_out_of_place_is_told(content: bytes) -> None:
    assert [well_formed(content, chunk=size) for size in (1, 2, 3, 1000)] == [MARKS[content]] * 4


def test_the_delimiter_of_the_file_counts() -> None:
    assert well_formed(b'"a"\t"b"\n', delimiter="\t")
    assert not well_formed(b'"a"\t"b"\n', delimiter=",")
