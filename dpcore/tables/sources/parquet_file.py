"""Parquet files: columns as they are typed, in batches; long files in pieces of some row groups each."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from dpcore.errors import SourceBroken, SourceError
from dpcore.tables.sources.layout import stored_values
from dpcore.tables.sources.stored_file import StoredFile
from dpcore.tables.sources.text import is_text, readable

BATCH_ROWS = 1 << 17
PIECE_ROWS = 1_000_000
PIECE_BYTES = 1 << 26
TRIAL_ROWS = 1 << 13
LARGEST_FOOTER = 2**31 - 1  # bytes of one text in it, and items of one list: the most that Arrow can be told
MAGIC = b"PAR1"
REPEATS = 4  # how often each value of a text occurs, at least, where it is read by dictionary


@dataclass(frozen=True)
class ParquetFile:
    """One Parquet file, or the rows of some of its row groups.

    Attributes:
        file: Where it is.
        groups: The row groups; None for all of them.
    """

    file: StoredFile
    groups: tuple[int, ...] | None = None

    @property
    def name(self) -> str:
        """What messages call it."""
        return repr(self.file.file_name)

    @property
    def damaged(self) -> str:
        """What is said if it cannot be read to its end."""
        return f"{self.name} is not a whole Parquet file: it is damaged, cut short, or of another kind; write it again"

    def column_names(self) -> list[str]:
        """Read the names of the top-level columns from the file's footer."""
        self.file.check()
        with self._open() as file:
            return list(file.schema_arrow.names)

    def column_types(self, columns: Sequence[str]) -> list[pa.DataType]:
        """Read the types of the named columns from the file's footer."""
        with self._open() as file:
            return [file.schema_arrow.field(column).type for column in columns]

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the named columns in the order asked for; text is checked, all other types are passed through.

        Text that repeats comes as the file holds it, with each value once: ten times as fast, and no value is looked at twice. So does text
        that was written from a dictionary: unasked, Arrow would convert it to the type of that one, and fail if a value is not UTF-8 or if
        there are more values than that type can number.
        """
        kinds = dict(zip(columns, self.column_types(columns), strict=True))
        written = [column for column, kind in kinds.items() if pa.types.is_dictionary(kind)]
        repeating = self._repeating([column for column, kind in kinds.items() if kind == pa.string()])
        with self._open(read_dictionary=written + repeating) as file:
            for batch in file.iter_batches(batch_size=BATCH_ROWS, row_groups=self._groups(file), columns=list(columns)):
                # "a" also asks for a column named "a.b", hence the selection by whole name
                chosen = [batch.column(batch.schema.get_field_index(column)) for column in columns]
                values = [_short(readable(value)) if is_text(value.type) else value for value in chosen]
                yield pa.RecordBatch.from_arrays(values, names=list(columns))

    def split(self) -> tuple["ParquetFile", ...]:
        """Return runs of neighbouring row groups, each as long as it may be, and of one group at least."""
        with self._open() as file:
            groups = [file.metadata.row_group(place) for place in range(file.metadata.num_row_groups)]
        pieces: list[list[int]] = []
        rows = size = 0
        for place, group in enumerate(groups):
            rows, size = rows + group.num_rows, size + group.total_byte_size
            if not pieces or rows > PIECE_ROWS or size > PIECE_BYTES:
                pieces.append([])
                rows, size = group.num_rows, group.total_byte_size
            pieces[-1].append(place)
        return tuple(replace(self, groups=tuple(piece)) for piece in pieces) or (self,)

    def _repeating(self, texts: Sequence[str]) -> list[str]:
        """Return the columns of text of which the first rows have few distinct values; many cost more by dictionary than without.

        The footer would tell as well, but Arrow ends the process over one that is damaged in there.
        """
        if not texts:
            return []
        with self._open(read_dictionary=texts) as file:
            first = next(file.iter_batches(batch_size=TRIAL_ROWS, row_groups=self._groups(file), columns=texts), None)
        if first is None:
            return []
        found = {name: first.column(first.schema.get_field_index(name)) for name in texts}
        return [name for name, values in found.items() if REPEATS * len(values.dictionary) <= len(values)]

    def _groups(self, file: parquet.ParquetFile) -> list[int]:
        return list(range(file.metadata.num_row_groups) if self.groups is None else self.groups)

    def _open(self, **options: Any) -> parquet.ParquetFile:
        """Open the file and parse its footer.

        Raises:
            SourceBroken: If the file ends as a Parquet file does, and its footer cannot be parsed all the same. The footer holds the least and
                the greatest value of columns, of any length, so that a row may have made it fail.
            SourceError: If it does not end so.
        """
        stream = self.file.open()
        with suppress(Exception):  # whose text may quote a value
            return parquet.ParquetFile(
                stream,
                pre_buffer=self.file.is_remote,  # far away, few large requests are worth the memory of a row group's columns
                thrift_string_size_limit=LARGEST_FOOTER,
                thrift_container_size_limit=LARGEST_FOOTER,
                **options,
            )
        raise (SourceBroken if _last_bytes(stream, len(MAGIC)) == MAGIC else SourceError)(self.damaged)


def _last_bytes(stream: pa.NativeFile, count: int) -> bytes:
    stream.seek(max(stream.size() - count, 0))
    return bytes(stream.read(count))


def _short(values: pa.Array) -> pa.Array:
    """Keep only the used values of a dictionary that is longer than its rows, as a sorted column may bring batch after batch.

    They are not written out row by row: many rows may share a long value, and together exceed what Arrow counts in 32 bits.
    """
    if pa.types.is_dictionary(values.type) and len(values.dictionary) > len(values):
        used, rows = stored_values(values)
        return pa.DictionaryArray.from_arrays(rows, used)
    return values
