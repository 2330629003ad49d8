"""Read Parquet files in batches. Columns keep their types, and long files are split by row groups."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from dpcore.errors import SourceBroken, SourceError
from dpcore.tables.sources.part import BATCH_ROWS, FilePart
from dpcore.tables.sources.text import is_text, readable

PIECE_ROWS = 1_000_000
PIECE_BYTES = 1 << 26
TRIAL_ROWS = 1 << 13
LARGEST_FOOTER = 2**31 - 1  # bytes of a string and items of a list in the footer: the highest limits that Arrow accepts
MAGIC = b"PAR1"


@dataclass(frozen=True)
class ParquetFile(FilePart):
    """One Parquet file, or some of its row groups.

    Attributes:
        groups: The row groups; None for all.
    """

    KIND = "Parquet"
    groups: tuple[int, ...] | None = None

    def column_names(self) -> list[str]:
        """Read the names of the top-level columns from the file's footer."""
        self.file.check()
        with self._open() as file:
            return list(file.schema_arrow.names)

    def column_types(self, columns: Sequence[str]) -> list[pa.DataType]:
        """Read the types of the named columns from the file's footer.

        Raises:
            SourceError: If Arrow cannot read a column of that type or name, whatever its values.
        """
        with self._open() as file:
            kinds = [file.schema_arrow.field(column).type for column in columns]
            paths = [file.schema.column(place).path for place in range(len(file.schema))]
        for column, kind in zip(columns, kinds, strict=True):
            if _aborts(kind):
                raise SourceError(
                    f"{self.name} holds the declared column {column!r} as an extension of a dictionary, which Arrow cannot read; "
                    "write the file again with that column as plain text"
                )
            if _is_ambiguous(column, paths):
                raise SourceError(
                    f"{self.name} has the declared column {column!r} and a nested field of the same name, which Arrow cannot tell apart; "
                    "rename one of them"
                )
        return kinds

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the named columns in the given order. Text is checked; all other types are passed through.

        Text with repeated values is read as a dictionary, as the file stores it, which is ten times as fast. So is text that was written
        from a dictionary: by default Arrow would convert it back to the original dictionary type, and fail if a value is not UTF-8 or
        if there are more values than the index type can count.
        """
        kinds = dict(zip(columns, self.column_types(columns), strict=True))
        written = [column for column, kind in kinds.items() if pa.types.is_dictionary(kind)]
        repeating = self._repeating([column for column, kind in kinds.items() if kind == pa.string()])
        with self._open(read_dictionary=written + repeating) as file:
            for batch in file.iter_batches(batch_size=BATCH_ROWS, row_groups=self._groups(file), columns=list(columns)):
                chosen = (_column(batch, column) for column in columns)
                values = [readable(value) if is_text(value.type) else value for value in chosen]
                yield pa.RecordBatch.from_arrays(values, names=list(columns))

    def split(self) -> tuple["ParquetFile", ...]:
        """Split the file into runs of consecutive row groups, each as long as the limits allow and at least one group."""
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
        """Return the text columns whose first rows have few distinct values. With many, a dictionary is slower than plain text.

        The footer holds this information too, but Arrow aborts the process if that part of it is damaged.
        """
        if not texts:
            return []
        with self._open(read_dictionary=texts) as file:
            first = next(file.iter_batches(batch_size=TRIAL_ROWS, row_groups=self._groups(file), columns=texts), None)
        if first is None:
            return []
        columns = {name: _column(first, name) for name in texts}
        # values that occur at least four times on average
        return [name for name, values in columns.items() if 4 * len(values.dictionary) <= len(values)]

    def _groups(self, file: parquet.ParquetFile) -> list[int]:
        return list(range(file.metadata.num_row_groups) if self.groups is None else self.groups)

    def _open(self, **options: Any) -> parquet.ParquetFile:
        """Open the file and parse its footer.

        Raises:
            SourceBroken: If the file ends with Parquet's magic bytes but its footer cannot be parsed. The footer holds the minimum and
                maximum of columns, of any length, so a row may be the cause.
            SourceError: If the file does not end with these bytes.
        """
        stream = self.file.open()
        with suppress(Exception):  # its message may quote a value
            return parquet.ParquetFile(
                stream,
                pre_buffer=self.file.is_remote,  # for remote files, few large requests are worth the memory
                thrift_string_size_limit=LARGEST_FOOTER,
                thrift_container_size_limit=LARGEST_FOOTER,
                **options,
            )
        raise (SourceBroken if _last_bytes(stream, len(MAGIC)) == MAGIC else SourceError)(self.damaged)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column by its full name: "a" also selects a column named "a.b"."""
    return batch.column(batch.schema.get_field_index(name))


def _aborts(kind: pa.DataType) -> bool:
    """Tell whether Arrow 26 would abort the process when it reads a column of this type to its end."""
    return isinstance(kind, pa.BaseExtensionType) and bool(pa.types.is_dictionary(kind.storage_type))


def _is_ambiguous(column: str, paths: Sequence[str]) -> bool:
    """Tell whether a column shares its path with a nested field, as "s.x" does with field "x" of a struct "s".

    Arrow may then read the wrong one as a dictionary, and convert the other so that one value can make it fail.
    """
    return paths.count(column) > 1


def _last_bytes(stream: pa.NativeFile, count: int) -> bytes:
    stream.seek(max(stream.size() - count, 0))
    return bytes(stream.read(count))
