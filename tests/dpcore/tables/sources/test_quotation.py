"""Quotation marks: a properly quoted file passes whatever it holds, any other is told."""

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.tables.sources.quotation import QuotationScan


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


@pytest.mark.parametrize("chunk", [1, 2, 3, 1000])
@pytest.mark.parametrize(
    "bad",
    [
        b'a,b\n"hi,F\nok,M\n',
        b'a\n"x"y\n',
        b'a\nx"y"\n',
        b'a\n5" pipe\n',
        b'a\n"x\n',
        b'"',
        b'a\n"x" ,y\n',
        b'a\n"one,1\ntwo,2\n"three,3\n',
    ],
)
def test_a_mark_out_of_place_is_told(bad: bytes, chunk: int) -> None:
    assert not well_formed(bad, chunk=chunk)


@pytest.mark.parametrize(
    "good",
    [b"", b"a,b\n1,2\n", b'"a","b"\r\n"1","2"', b'a\n""\n', b'a\n""""\n', b'a\n"x\ny"\n', b'a\n"say ""hi"""\n'],
)
@pytest.mark.parametrize("chunk", [1, 2, 1000])
def test_marks_in_their_place_pass(good: bytes, chunk: int) -> None:
    assert well_formed(good, chunk=chunk)


def test_the_delimiter_of_the_file_counts() -> None:
    assert well_formed(b'"a"\t"b"\n', delimiter="\t")
    assert not well_formed(b'"a"\t"b"\n', delimiter=",")
