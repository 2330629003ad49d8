"""Read Arrow files: the IPC file format, which includes Feather, and the IPC stream format."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import ipc

from dpcore.tables.sources.part import BATCH_ROWS, FilePart
from dpcore.tables.sources.text import sound

FILE_MAGIC = b"ARROW1"


@dataclass(frozen=True)
class ArrowFile(FilePart):
    """One Arrow or Feather file."""

    KIND = "Arrow"

    def column_names(self) -> list[str]:
        """Read the names of all columns from the file's schema."""
        self.file.check()
        return list(self._schema().names)

    def column_types(self, columns: Sequence[str]) -> list[pa.DataType]:
        """Read the types of the named columns from the file's schema."""
        schema = self._schema()
        return [schema.field(column).type for column in columns]

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the named columns in the given order, in batches no larger than the file's own.

        A file can hold arbitrary offsets to its values, and Arrow follows them unchecked. `sound` therefore checks every array in full.
        """
        schema = self._schema()
        places = sorted(schema.get_field_index(column) for column in columns)
        with self._reader(ipc.IpcReadOptions(included_fields=places)) as reader:
            for batch in _record_batches(reader):
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    piece = batch.slice(start, BATCH_ROWS)
                    values = [sound(piece.column(column)) for column in columns]
                    yield pa.RecordBatch.from_arrays(values, names=list(columns))

    def _schema(self) -> pa.Schema:
        with self._reader(ipc.IpcReadOptions()) as reader:
            return reader.schema

    @contextmanager
    def _reader(self, options: ipc.IpcReadOptions) -> Iterator[ipc.RecordBatchFileReader | ipc.RecordBatchStreamReader]:
        with self.file.open() as stream:
            start = stream.read(len(FILE_MAGIC))
            stream.seek(0)
            of = ipc.open_file if start == FILE_MAGIC else ipc.open_stream
            with of(stream, options=options) as reader:
                yield reader


def _record_batches(reader: ipc.RecordBatchFileReader | ipc.RecordBatchStreamReader) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, ipc.RecordBatchFileReader):
        yield from map(reader.get_batch, range(reader.num_record_batches))
    else:
        yield from reader
