"""CSV files: every column as text, in batches, whatever the rows hold.

A row is one record as RFC 4180 has it: a quoted value may hold delimiters, line breaks and doubled quotation marks. In
a file that is written so, no row has a say in how another is read. The policy, without errors that depend on a value
and without counts in clear:

- no types are guessed: text is what the universe reads, and an empty value, quoted or not, is null;
- a row with another number of fields than the header is left out, silently; so are blank lines;
- without a declared encoding, bytes that are not UTF-8 are read as Latin-1, value by value;
- a file with a quotation mark where RFC 4180 allows none, say one that is never closed, is refused as damaged before any row
  is read: it would take in the rows that follow, and one person's value would decide about others. So is a record that is
  longer than the largest block below.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import compute
from pyarrow import csv as arrow_csv

from dpcore.errors import SourceError
from dpcore.ingest.listing import COMPRESSIONS
from dpcore.ingest.quotation import QuotationScan
from dpcore.ingest.stored_file import StoredFile
from dpcore.ingest.text import text_of
from dpcore.ingest.transcoding import transcoded

# The first is for speed. The second is for records that are larger than the first, and bounds the memory they can take.
BLOCK_BYTES = (1 << 22, 1 << 27)
HEADER_BYTES = 1 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
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
        text = self._head().removeprefix(BYTE_ORDER_MARK).decode(EVERY_BYTE)
        lines = io.StringIO(text, newline="")
        if self.quote is None:
            records = csv.reader(lines, delimiter=self._delimiter, quoting=csv.QUOTE_NONE)
        else:
            records = csv.reader(lines, delimiter=self._delimiter, quotechar=self.quote)
        header = next((record for record in records if record), [])
        return [text_of(field.encode(EVERY_BYTE)) for field in header]

    def column_types(self, columns: Sequence[str]) -> list[pa.DataType]:
        """Return text for every column: a CSV file knows no other type."""
        return [pa.string()] * len(columns)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows' named columns as text, in the order asked for."""
        self._check_quotation()
        header = self.column_names()
        positions = [header.index(column) for column in columns]
        for batch in self._records(positions, fields=len(header)):
            yield pa.RecordBatch.from_arrays([_decoded(values) for values in batch.columns], names=list(columns))

    def version(self, columns: Sequence[str], *, key: bytes) -> bytes:  # noqa: ARG002  all bytes have a say in each column
        """Return a keyed digest of the file."""
        return self.file.version(key)

    def split(self) -> tuple["CsvFile"]:
        """Return the file itself: where its rows begin shows only from its start."""
        return (self,)

    def _check_quotation(self) -> None:
        """Refuse a file in which a quotation mark stands where RFC 4180 allows none: nobody can tell where its rows end."""
        if self.quote is None:
            return
        scan = QuotationScan(self._delimiter, quote=self.quote)
        with self._open() as stream:
            scan.take(stream.read(BLOCK_BYTES[0]).removeprefix(BYTE_ORDER_MARK))
            while block := stream.read(BLOCK_BYTES[0]):
                scan.take(block)
        if not scan.well_formed():
            raise SourceError(
                f"{self.name} has quotation marks that are not closed, or not doubled inside a value; "
                "write it again with proper quoting (RFC 4180), or as Parquet"
            )

    def _head(self) -> bytes:
        with self._open() as stream:
            return bytes(stream.read(HEADER_BYTES))

    @property
    def _delimiter(self) -> str:
        plain = self.file.file_name.lower().removesuffix(".gz").removesuffix(".zst")
        return self.delimiter or ("\t" if plain.endswith(".tsv") else ",")

    def _open(self) -> pa.NativeFile:
        stream, name = self.file.open(), self.file.file_name.lower()
        for ending, compression in COMPRESSIONS.items():
            if name.endswith(ending):
                stream = pa.CompressedInputStream(stream, compression)
        return transcoded(stream, encoding=self.encoding) if self.encoding else stream

    def _records(self, positions: Sequence[int], *, fields: int) -> Iterator[pa.RecordBatch]:
        """Yield the records after the header, beginning again with larger blocks if one does not fit."""
        done = 1  # the header, which is the first record
        for block_bytes in BLOCK_BYTES[:-1]:
            with suppress(pa.ArrowInvalid):
                for batch in _after(done, self._blocks(positions, fields=fields, block_bytes=block_bytes)):
                    done += batch.num_rows
                    yield batch
                return
        yield from _after(done, self._blocks(positions, fields=fields, block_bytes=BLOCK_BYTES[-1]))

    def _blocks(self, positions: Sequence[int], *, fields: int, block_bytes: int) -> Iterator[pa.RecordBatch]:
        # columns go by their place: names may repeat among those that nobody declared
        names = [str(place) for place in range(fields)]
        wanted = [names[place] for place in positions]
        marked = self._head().startswith(BYTE_ORDER_MARK)
        with self._open() as stream:
            stream.read(len(BYTE_ORDER_MARK) if marked else 0)
            reader = arrow_csv.open_csv(
                stream,
                read_options=arrow_csv.ReadOptions(column_names=names, block_size=block_bytes, encoding=EVERY_BYTE),
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
            with reader:
                yield from reader


def _decoded(values: pa.Array) -> pa.Array:
    """Read as UTF-8 what was cut byte by byte, value by value."""
    if compute.all(compute.string_is_ascii(values)).as_py() is not False:
        return values
    distinct = values.dictionary_encode()
    texts = [None if text is None else text_of(text.encode(EVERY_BYTE)) for text in distinct.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(distinct.indices)


def _after(count: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Leave out the first `count` rows."""
    for batch in batches:
        rest = batch.slice(min(count, batch.num_rows))
        count -= batch.num_rows - rest.num_rows
        yield rest
