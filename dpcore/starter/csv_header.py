"""Describe a table by the header of a CSV file. Not one byte after the header is decoded."""

import csv
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from dpcore.errors import SpecError
from dpcore.starter.description import Column, Description
from dpcore.tables.sources.attempt import attempt
from dpcore.tables.sources.csv_file import BYTE_ORDER_MARK, HEADER_BYTES, WIDE_MARKS

DELIMITERS = ",;\t|"
_LINE_ENDS = b"\r\n"
# a number other than a year, a date, or an address: no usual name of a column
_LIKE_A_VALUE = re.compile(
    r"(?!(?:19|20)\d\d$)[-+]?\d+(?:[.,]\d+)?|\d{4}-\d\d-\d\d.*|\d{1,2}[./]\d{1,2}[./]\d{2,4}|\S+@\S+\.\S+"
)


class _Bytes(Protocol):
    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes."""


def describe_csv(path: Path) -> Description:
    """Describe the columns of a CSV file by their names: a header says nothing else."""
    names, delimiter = read_header(path)
    source: dict[str, Any] = {"path": str(path)}
    if delimiter != usual_delimiter(path.name):
        source["delimiter"] = delimiter
    return Description(tuple(map(Column, names)), source=source)


def usual_delimiter(name: str) -> str:
    """Return the delimiter that a file has by its name."""
    return "\t" if ".tsv" in name.lower() else ","


def refuse_a_row(path: Path, names: Sequence[str]) -> None:
    """Raise if the first line of a CSV file looks like a row: the names in it would be values of a person."""
    if any(_LIKE_A_VALUE.fullmatch(name.strip()) for name in names):
        raise SpecError(
            f"{path}:1:1: the first line looks like a row, not like a header; write the names of the columns there, or, if it is the header, say so "
            "with --kind csv"
        )


def read_header(path: Path) -> tuple[list[str], str]:
    """Read the first record of a CSV file byte by byte, and stop at its end. Return the names in it and their delimiter.

    The record ends at the first newline, as it does when a run reads the file.
    """

    def header() -> bytes:
        with _opened(path) as stream:
            return _first_line(stream)

    line = attempt(
        header, otherwise=f"{path}: has no readable header; check that it is a CSV file, and who may read it"
    )
    if line.startswith(WIDE_MARKS):
        raise SpecError(f"{path}:1:1: is in UTF-16 or UTF-32; convert it to UTF-8 first")
    if len(line) > HEADER_BYTES:
        raise SpecError(
            f"{path}:1:{HEADER_BYTES}: the header is longer than {HEADER_BYTES >> 20} MiB; check that it is a CSV file"
        )
    if not line:
        raise SpecError(f"{path}:1:1: is empty; the first line must hold the names of the columns")
    if b"\0" in line:
        raise SpecError(
            f"{path}:1:{line.index(0) + 1}: holds a NUL byte; check that it is a CSV file, or name its kind with --kind"
        )
    return _names(path, _decoded(line))


def _decoded(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("latin-1")


def _names(path: Path, line: str) -> tuple[list[str], str]:
    if line.count('"') % 2:
        column = line.rindex('"') + 1
        raise SpecError(
            f"{path}:1:{column}: the header leaves a quotation open at the end of its first line; write all names in one line"
        )
    outside = "".join(line.split('"')[::2])  # what stands between quotations
    usual = usual_delimiter(path.name)
    delimiter = usual if usual in outside else max(DELIMITERS, key=outside.count)
    delimiter = delimiter if delimiter in outside else usual
    try:
        return next(csv.reader(io.StringIO(line, newline=""), delimiter=delimiter), []), delimiter
    except csv.Error:
        raise SpecError(
            f"{path}:1:1: has a name longer than {csv.field_size_limit() >> 10} KiB; check that it is a CSV file"
        ) from None


def _first_line(stream: _Bytes) -> bytes:
    """Return the first line that is not blank, without its newline and without a byte order mark."""
    line = bytearray()
    while len(line) <= HEADER_BYTES and (byte := stream.read(1)):
        if byte in _LINE_ENDS:
            if bytes(line) in {b"", BYTE_ORDER_MARK}:
                line.clear()
                continue
            break
        line += byte
    return bytes(line.removeprefix(BYTE_ORDER_MARK))


@contextmanager
def _opened(path: Path) -> Iterator[_Bytes]:
    """Open a file so that reading a byte reads no more than that byte, or than its compression needs."""
    with path.open("rb", buffering=0) as file:
        if path.name.lower().endswith(".gz"):
            yield _Gunzipped(file)
        elif path.name.lower().endswith(".zst"):
            with pa.PythonFile(file, mode="r") as raw, pa.CompressedInputStream(raw, "zstd") as stream:
                yield stream
        else:
            yield file


class _Gunzipped:
    """The content of a gzip file. It takes one compressed byte at a time, and unpacks one byte at a time."""

    def __init__(self, file: _Bytes) -> None:
        self._file = file
        self._unpack = zlib.decompressobj(wbits=31)

    def read(self, _size: int, /) -> bytes:
        """Return the next byte; nothing at the end."""
        packed = self._unpack.unconsumed_tail
        while True:
            if byte := self._unpack.decompress(packed, 1):
                return byte
            if self._unpack.eof or not (packed := self._file.read(1)):
                return b""
