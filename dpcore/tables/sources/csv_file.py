"""Read CSV files in batches, with every column as text.

A row is a record as in RFC 4180: a quoted value may contain delimiters, newlines and doubled quotation marks. In a well-formed
file, no row can change how another row is read. Errors do not depend on a single value, and no counts are reported:

- Types are not inferred. The universe parses the text; an empty value, quoted or not, is null.
- A row is skipped silently if its number of fields differs from the header's, if it is blank, or if it is longer than the largest chunk
  below.
- Records and values are split by their bytes alone. Each value is then decoded on its own: in the declared encoding, or without one as
  UTF-8 with Latin-1 as the fallback. Only encodings in which ASCII bytes always mean ASCII are accepted (`spec/encodings.py`).
- A file with a quotation mark where RFC 4180 allows none, such as one that is never closed, is rejected before any row is counted.
  Such a mark would swallow the rows after it, so one person's value would affect other rows.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import compute
from pyarrow import csv as arrow_csv

from dpcore.errors import SourceBroken, SourceError
from dpcore.tables.sources.attempt import attempt
from dpcore.tables.sources.csv_records import QuotationScan, record_ends, whole_records
from dpcore.tables.sources.listing import COMPRESSIONS
from dpcore.tables.sources.part import FilePart
from dpcore.tables.sources.text import decoder

# The usual size of one read, and the maximum length of a record, which bounds memory.
CHUNK_BYTES = (1 << 22, 1 << 24)
HEADER_BYTES = 1 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")  # of UTF-16 and UTF-32
# Files are split into values in this encoding, which maps every byte to a character; values are decoded afterwards.
# With UTF-8, Arrow's reader would write to stderr about invalid bytes in the rows that it skips.
EVERY_BYTE = "latin-1"
# Stands for NUL, and for no byte. Arrow scans several bytes at a time for the end of a value or row and stops at a NUL among them, so a
# row with a NUL may swallow the next one. Which code paths do this depends on the Arrow version and the machine; without a NUL none does.
NUL = "\u0100"


@dataclass(frozen=True)
class CsvFile(FilePart):
    """One CSV file with a header, plain or compressed by gzip or zstd.

    Attributes:
        file: Its extension determines the compression; .tsv also sets the delimiter to a tab.
        delimiter: Between two values; None for the extension's default.
        quote: The quotation mark; None if the file has no quoting.
        encoding: Of the text; None for UTF-8, with Latin-1 for each value that is not valid UTF-8.
    """

    KIND = "CSV"
    DAMAGE = "is damaged, truncated, or leaves a quotation open"
    delimiter: str | None = None
    quote: str | None = '"'
    encoding: str | None = None

    def column_names(self) -> list[str]:
        """Read the header. Return an empty list if there is none."""
        self.file.check()
        record, _ = self._header()
        lines = io.StringIO(record.decode(EVERY_BYTE), newline="")
        records = csv.reader(
            lines,
            delimiter=self._delimiter,
            quotechar=self.quote,
            quoting=csv.QUOTE_NONE if self.quote is None else csv.QUOTE_MINIMAL,
        )
        header: list[str] = attempt(lambda: next(records, []), otherwise=self._long_header)
        return [self._decode(field.encode(EVERY_BYTE)) for field in header]

    def column_types(self, columns: Sequence[str]) -> list[pa.DataType]:
        """Return text for every column: CSV has no other type."""
        return [pa.string()] * len(columns)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the named columns as text, in the given order."""
        self._check_quotation()
        header = self.column_names()
        positions = [header.index(column) for column in columns]
        for batch in self._records(positions, fields=len(header)):
            yield pa.RecordBatch.from_arrays([self._decoded(values) for values in batch.columns], names=list(columns))

    def _check_quotation(self) -> None:
        """Reject a file with a quotation mark where RFC 4180 allows none: its record boundaries are ambiguous."""
        if self.quote is None:
            return
        scan = QuotationScan(self._delimiter, quote=self.quote)
        with self._open() as stream:
            scan.take(stream.read(CHUNK_BYTES[0]).removeprefix(BYTE_ORDER_MARK))
            while chunk := stream.read(CHUNK_BYTES[0]):
                scan.take(chunk)
        if not scan.well_formed():
            raise SourceBroken(
                f"{self.name} has quotation marks that are not closed, or not doubled inside a value; "
                "write it again with proper quoting (RFC 4180), or as Parquet"
            )

    def _header(self) -> tuple[bytes, int]:
        """Return the header record, and the offset of the first record after it."""
        with self._open() as stream:
            head = bytes(stream.read(HEADER_BYTES + 1))
        if head.startswith(WIDE_MARKS):
            raise SourceError(
                f"{self.name} is in UTF-16 or UTF-32, where one value can change how others are read; convert it to UTF-8 first, as in "
                "`iconv -f UTF-16 -t UTF-8 visits.csv > visits-utf8.csv`, or to Parquet"
            )
        start = len(BYTE_ORDER_MARK) if head.startswith(BYTE_ORDER_MARK) else 0
        start = len(head) - len(head[start:].lstrip(b"\r\n"))
        # The header is the first line even if it leaves a quotation open: otherwise the rows would determine where it ends.
        ends = record_ends(head[start:], quote=None, is_open=False)
        if not len(ends) and len(head) > HEADER_BYTES:
            raise SourceError(self._long_header)
        stop = start + int(ends[0]) if len(ends) else len(head)
        if self.quote is not None and head[start:stop].count(self.quote.encode()) % 2:
            raise SourceError(
                f"the header of {self.name} leaves a quotation open at the end of its first line; write all column names in one line, "
                "and close every quotation mark"
            )
        return head[start:stop], stop

    @property
    def _long_header(self) -> str:
        return (
            f"the header of {self.name} is longer than {HEADER_BYTES >> 20} MiB, or has a name longer than "
            f"{csv.field_size_limit() >> 10} KiB; write the file with shorter names, or as Parquet"
        )

    @property
    def _delimiter(self) -> str:
        plain = self.file.file_name.lower().removesuffix(self._compressed)
        return self.delimiter or ("\t" if plain.endswith(".tsv") else ",")

    @property
    def _compressed(self) -> str:
        """The extension of a compressed file; empty for any other."""
        name = self.file.file_name.lower()
        return next((ending for ending in COMPRESSIONS if name.endswith(ending)), "")

    def _open(self) -> pa.NativeFile:
        stream = self.file.open()
        return pa.CompressedInputStream(stream, COMPRESSIONS[self._compressed]) if self._compressed else stream

    def _records(self, positions: Sequence[int], *, fields: int) -> Iterator[pa.RecordBatch]:
        """Yield the records after the header."""
        _, start = self._header()
        usual, largest = CHUNK_BYTES
        with self._open() as stream:
            stream.read(start)
            for chunk in whole_records(stream, quote=self.quote, usual=usual, largest=largest):
                yield from self._parsed(chunk, positions, fields=fields)

    def _parsed(self, chunk: bytes, positions: Sequence[int], *, fields: int) -> Iterator[pa.RecordBatch]:
        """Parse a chunk of whole records as one block: at its own block boundaries, Arrow drops line feeds and mishandles NUL."""
        # columns are named by position, because undeclared columns may share a name
        names = [str(place) for place in range(fields)]
        chosen = [names[place] for place in positions]
        text = chunk
        if b"\0" in text or not text.isascii():
            text = text.decode(EVERY_BYTE).replace("\0", NUL).encode()
        table = arrow_csv.read_csv(
            pa.BufferReader(text),
            read_options=arrow_csv.ReadOptions(column_names=names, block_size=len(text) + 1, use_threads=False),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self._delimiter,
                quote_char=self.quote or False,
                newlines_in_values=self.quote is not None,
                invalid_row_handler=lambda _: "skip",
            ),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=chosen,
                column_types=dict.fromkeys(chosen, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )
        yield from table.to_batches()

    def _decoded(self, values: pa.Array) -> pa.Array:
        """Decode each value from the bytes it was split from."""
        if compute.all(compute.string_is_ascii(values)).as_py() is not False:
            return values
        distinct = values.dictionary_encode()
        texts = [
            None if text is None else self._decode(text.replace(NUL, "\0").encode(EVERY_BYTE))
            for text in distinct.dictionary.to_pylist()
        ]
        return pa.array(texts, pa.string()).take(distinct.indices)

    def _decode(self, raw: bytes) -> str:
        return decoder(self.encoding)(raw)
