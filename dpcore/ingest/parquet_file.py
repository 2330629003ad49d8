"""Parquet files: columns as they are typed, in batches."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from dpcore.ingest.text import is_text, readable

BATCH_ROWS = 1 << 17


class ParquetFile:
    """One Parquet file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def column_names(self) -> list[str]:
        """Read the names of the top-level columns from the file's footer."""
        with parquet.ParquetFile(self._path) as file:
            return list(file.schema_arrow.names)

    def column_types(self, columns: Sequence[str]) -> list[pa.DataType]:
        """Read the types of the named columns from the file's footer."""
        with parquet.ParquetFile(self._path) as file:
            return [file.schema_arrow.field(column).type for column in columns]

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the named columns in the order asked for; text is checked, all other types are passed through."""
        with parquet.ParquetFile(self._path) as file:
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(columns)):
                # "a" also asks for a column named "a.b", hence the selection by whole name
                chosen = [batch.column(batch.schema.get_field_index(column)) for column in columns]
                values = [readable(value) if is_text(value.type) else value for value in chosen]
                yield pa.RecordBatch.from_arrays(values, names=list(columns))
