"""CSV files: every column as text, in batches, whatever the rows hold.

A row is one record as RFC 4180 has it: a quoted value may hold delimiters, line breaks and doubled quotation marks. In
a file that is written so, no row has a say in how another is read. The policy, without errors that depend on a value
and without counts in clear:

- no types are guessed: text is what the universe reads, and an empty value, quoted or not, is null;
- a row with another number of fields than the header is left out, silently; so are blank lines, and so is a row that is longer than the
  largest chunk below;
- records and values are cut by their bytes alone, and then each value's bytes are decoded by themselves, in the declared encoding or, if
  there is none, as UTF-8 or else Latin-1. Only encodings are accepted in which the bytes of ASCII always mean ASCII (`spec/encodings.py`);
- a file with a quotation mark where RFC 4180 allows none, say one that is never closed, is refused as a whole before any row
  is counted: it would take in the rows that follow, and one person's value would decide about others.
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
from dpcore.tables.sources.csv_records import record_ends, whole_records
from dpcore.tables.sources.listing import COMPRESSIONS
from dpcore.tables.sources.nul_escape import NulEscape
from dpcore.tables.sources.quotation import QuotationScan
from dpcore.tables.sources.stored_file import StoredFile
from dpcore.tables.sources.text import decoder

# The first is what is read in one go. The second is how long a record may be, and bounds the memory that one can take.
CHUNK_BYTES = (1 << 22, 1 << 24)
HEADER_BYTES = 1 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")  # of UTF-16 and UTF-32
# Files are cut into values in this encoding, which gives every byte a meaning; what a value says in UTF-8 is seen after.
# Otherwise the reader writes to the standard error stream about the bytes of a row that it is to leave out.
EVERY_BYTE = "latin-1"


@dataclass(frozen=True)
class CsvFile:
    """One CSV file with a header, plain or compressed by gzip or zstd.

    Attributes:
        file: Where it is; its ending tells the compression, and .tsv the delimiter.
        delimiter: Between two values, if it is not the usual one.
        quote: Around values that hold a delimiter; None where quotation marks have no meaning.
        encoding: What its bytes say; None for UTF-8, and Latin-1 value by value where that fails.
    """

    file: StoredFile
    delimiter: str | None = None
    quote: str | None = '"'
    encoding: str | None = None

    @property
    def name(self) -> str:
        """What messages call it."""
        return repr(self.file.file_name)

    @property
    def damaged(self) -> str:
        """What is said if it cannot be read to its end."""
        return (
            f"{self.name} is not a whole CSV file: it is damaged, cut short, or leaves a quotation open; write it again"
        )

    def column_names(self) -> list[str]:
        """Read the header; an empty list if there is none."""
        self.file.check()
        record, _ = self._header()
        lines = io.StringIO(record.decode(EVERY_BYTE), newline="")
        if self.quote is None:
            records = csv.reader(lines, delimiter=self._delimiter, quoting=csv.QUOTE_NONE)
        else:
            records = csv.reader(lines, delimiter=self._delimiter, quotechar=self.quote)
        header: list[str] = attempt(lambda: next(records, []), otherwise=self._long_header)
        return [self._decode(field.encode(EVERY_BYTE)) for field in header]

    def column_types(self, columns: Sequence[str]) -> list[pa.DataType]:
        """Return text for every column: a CSV file knows no other type."""
        return [pa.string()] * len(columns)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows' named columns as text, in the order asked for."""
        self._check_quotation()
        header = self.column_names()
        positions = [header.index(column) for column in columns]
        for batch in self._records(positions, fields=len(header)):
            yield pa.RecordBatch.from_arrays([self._decoded(values) for values in batch.columns], names=list(columns))

    def split(self) -> tuple["CsvFile"]:
        """Return the file itself: where its rows begin shows only from its start."""
        return (self,)

    def _check_quotation(self) -> None:
        """Refuse a file in which a quotation mark stands where RFC 4180 allows none: nobody can tell where its rows end."""
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
        """Return the record that names the columns, and where in the file those after it begin."""
        with self._open() as stream:
            head = bytes(stream.read(HEADER_BYTES + 1))
        if head.startswith(WIDE_MARKS):
            raise SourceError(
                f"{self.name} is in UTF-16 or UTF-32, in which one value can change how others are read; convert it to UTF-8 first, as in "
                "`iconv -f UTF-16 -t UTF-8 visits.csv > visits-utf8.csv`, or to Parquet"
            )
        start = len(BYTE_ORDER_MARK) if head.startswith(BYTE_ORDER_MARK) else 0
        start = len(head) - len(head[start:].lstrip(b"\r\n"))
        # The header is the first line, whatever quotation it leaves open: otherwise the rows would decide where it ends.
        ends = record_ends(head[start:], quote=None, is_open=False)
        if not len(ends) and len(head) > HEADER_BYTES:
            raise SourceError(self._long_header)
        stop = start + int(ends[0]) if len(ends) else len(head)
        if self.quote is not None and head[start:stop].count(self.quote.encode()) % 2:
            raise SourceError(
                f"the header of {self.name} leaves a quotation open in its first line; write each column's name in one line, "
                "with a closing quotation mark"
            )
        return head[start:stop], stop

    @property
    def _long_header(self) -> str:
        return (
            f"the header of {self.name} is longer than {HEADER_BYTES >> 20} MiB, or has a name longer than {csv.field_size_limit() >> 10} KiB; "
            "write the file with shorter names, or as Parquet"
        )

    @property
    def _delimiter(self) -> str:
        plain = self.file.file_name.lower().removesuffix(".gz").removesuffix(".zst")
        return self.delimiter or ("\t" if plain.endswith(".tsv") else ",")

    def _open(self) -> pa.NativeFile:
        stream, name = self.file.open(), self.file.file_name.lower()
        for ending, compression in COMPRESSIONS.items():
            if name.endswith(ending):
                stream = pa.CompressedInputStream(stream, compression)
        return stream

    def _records(self, positions: Sequence[int], *, fields: int) -> Iterator[pa.RecordBatch]:
        """Yield the records after the header."""
        _, start = self._header()
        usual, largest = CHUNK_BYTES
        with self._open() as stream:
            stream.read(start)
            for chunk in whole_records(stream, quote=self.quote, usual=usual, largest=largest):
                yield from self._parsed(chunk, positions, fields=fields)

    def _parsed(self, chunk: bytes, positions: Sequence[int], *, fields: int) -> Iterator[pa.RecordBatch]:
        """Read a chunk of whole records in one go: where Arrow cuts by itself, it drops line feeds and trips over NUL."""
        # columns go by their place: names may repeat among those that nobody declared
        names = [str(place) for place in range(fields)]
        wanted = [names[place] for place in positions]
        escape = NulEscape.beside(f"{self._delimiter}{self.quote or ''}") if b"\0" in chunk else None
        text = escape.hide(chunk) if escape else chunk
        if not text.isascii():
            text = text.decode(EVERY_BYTE).encode()
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
                include_columns=wanted,
                column_types=dict.fromkeys(wanted, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )
        for batch in table.to_batches():
            columns = [escape.show(values) for values in batch.columns] if escape else batch.columns
            yield pa.RecordBatch.from_arrays(columns, names=wanted)

    def _decoded(self, values: pa.Array) -> pa.Array:
        """Decode what was cut byte by byte, value by value."""
        if compute.all(compute.string_is_ascii(values)).as_py() is not False:
            return values
        distinct = values.dictionary_encode()
        texts = [
            None if text is None else self._decode(text.encode(EVERY_BYTE)) for text in distinct.dictionary.to_pylist()
        ]
        return pa.array(texts, pa.string()).take(distinct.indices)

    def _decode(self, raw: bytes) -> str:
        return decoder(self.encoding)(raw)
