"""Locate the raw table and read its rows in batches.

Only the declared columns are read. Every failure is a SourceError with one line that names the file and declared columns. The message
never quotes the file's content, the names of other columns, or the text of a reader's error.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpcore.errors import SourceBroken, SourceError
from dpcore.spec.source import NO_QUOTE, SourceSpec
from dpcore.tables.sources.arrow_file import ArrowFile
from dpcore.tables.sources.attempt import attempt
from dpcore.tables.sources.csv_file import CsvFile
from dpcore.tables.sources.ids import can_identify, family, is_number
from dpcore.tables.sources.listing import (
    ARROW,
    CSV,
    ENDINGS,
    PARQUET,
    TEXT_ENDINGS,
    files_at,
    kind_of,
    partition_of,
    same_rows,
)
from dpcore.tables.sources.memory_table import MemoryTable
from dpcore.tables.sources.parquet_file import ParquetFile
from dpcore.tables.sources.part import FilePart, Part
from dpcore.tables.sources.partition import Partition
from dpcore.tables.sources.stored_file import StoredFile


@dataclass(frozen=True)
class Source:
    """The parts that together hold the raw table, in a fixed order."""

    parts: tuple[Part, ...]

    @classmethod
    def locate(cls, spec: SourceSpec, *, base: Path) -> "Source":
        """Find the files or the query that a spec's source names. Read no row.

        Args:
            spec: As written.
            base: The folder that a relative path starts from: the spec's own.

        Raises:
            SourceError: If there is no table of a known kind, or if files may hold the same rows twice: files of two kinds, a link to
                another file, or a file and its compressed copy.
        """
        if spec.sql is not None and spec.url_env is not None:
            from dpcore.tables.sources.query import Query  # noqa: PLC0415  its drivers are slow to import

            query = Query(spec.sql, spec.url_env)
            query.check()
            return cls((query,))
        if spec.path is None:
            raise SourceError("the spec names no `source`; add one, or hand the table over from Python")
        return cls(tuple(_part(file, spec) for file in _files(spec.path, spec, base=base)))

    @classmethod
    def of(cls, table: Any) -> "Source":
        """Wrap a pandas, polars or Arrow table from a Python program."""
        return cls((MemoryTable(table),))

    @property
    def local_files(self) -> tuple[Path, ...]:
        """The files on this machine that hold the table; empty for a query, a table in memory, or remote files."""
        inner = [part.inner if isinstance(part, Partition) else part for part in self.parts]
        files = [part.file for part in inner if isinstance(part, FilePart)]
        return tuple(Path(file.path) for file in files if not file.is_remote)

    def with_ids(self, ids: str | None) -> tuple[Part, ...]:
        """Return the parts with a column read as ids, if there are ids."""
        return self.parts if ids is None else tuple(part.with_ids(ids) for part in self.parts)

    def pieces(self, *, ids: str | None) -> tuple[Part, ...]:
        """Split all parts as far as possible: the same rows, in the same order.

        Args:
            ids: The column that holds the ids, if there are ids. If some parts hold numbers in it, the others read numbers in text.
        """
        parts = self.with_ids(ids)
        if ids is not None and len(parts) > 1 and any(is_number(_type(part, ids)) for part in parts):
            files = (part if isinstance(part, Partition) else Partition(part, ()) for part in parts)
            parts = tuple(replace(file, numbers=ids) for file in files)
        return tuple(piece for part in parts for piece in attempt(part.split, otherwise=part.damaged))


def check_columns(source: Source, *, columns: Sequence[str]) -> None:
    """Raise if a part of the source cannot be opened or lacks or repeats a declared column. Read headers only, never a row."""
    for part in source.parts:
        names = attempt(part.column_names, otherwise=part.damaged)
        _check_names(part, names, columns=columns)


def check_types(source: Source, *, reads: Mapping[str, Callable[[pa.DataType], bool]]) -> None:
    """Raise if the type of a declared column cannot hold declared values, or if the id types of two parts cannot be compared.

    Args:
        source: Only its headers are read, never a row.
        reads: For each declared column, a function that tells whether a type is acceptable. The column with `can_identify` holds the ids.
    """
    columns = tuple(reads)
    ids = next((column for column in columns if reads[column] is can_identify), None)
    families: dict[str, str] = {}  # of the ids in the parts checked so far
    for part in source.with_ids(ids):
        types = attempt(lambda part=part: part.column_types(columns), otherwise=part.damaged)  # type: ignore[misc]
        wrong = [column for column, kind in zip(columns, types, strict=True) if not reads[column](kind)]
        if wrong:
            raise SourceError(
                f"{part.name} holds the declared {_listed(wrong)} in a type that cannot be read as declared; "
                "convert it, or correct the spec"
            )
        for column, kind in zip(columns, types, strict=True):
            if reads[column] is can_identify and (named := family(kind)):
                _check_family(part, column, families.setdefault(column, named), named)


def _type(part: Part, column: str) -> pa.DataType:
    (kind,) = attempt(lambda: part.column_types([column]), otherwise=part.damaged)
    return kind


def read_piece(piece: Part, *, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece with the named columns in order. Any failure raises the piece's `damaged` message.

    Memory is bounded by a batch. CSV columns are text; Parquet columns keep their type, which may differ between files.

    Args:
        piece: From `Source.pieces`.
        columns: The columns to read.

    Raises:
        SourceBroken: If reading fails, since a row may be the cause.
    """
    rows = piece.batches(columns)
    while batch := _next_batch(rows, otherwise=piece.damaged):
        yield from batch


def _next_batch(rows: Iterator[pa.RecordBatch], *, otherwise: str) -> tuple[pa.RecordBatch, ...]:
    """Return one more batch, or nothing at the end."""

    def step() -> tuple[pa.RecordBatch, ...]:
        for batch in rows:
            return (batch,)
        return ()

    try:
        return attempt(step, otherwise=otherwise)
    except SourceError as error:
        failure = SourceBroken(*error.args)
    raise failure


def _files(path: str, spec: SourceSpec, *, base: Path) -> list[StoredFile]:
    """List the files that are tables, all of one kind."""
    named_text = path.lower().endswith(TEXT_ENDINGS)

    def taken(name: str) -> bool:
        return bool(spec.format or kind_of(name) or (named_text and name.lower().endswith(TEXT_ENDINGS)))

    files = attempt(
        lambda: files_at(path, base=base, taken=taken),
        otherwise=f"source.path {path!r} cannot be listed; check the path, and who may read that folder",
    )
    if not files:
        endings_named = ", ".join(ending for endings in ENDINGS.values() for ending in endings)
        brackets = "; `[` begins a pattern, so write [[] for a bracket in a name" if "[" in path else ""
        raise SourceError(
            f"source.path {path!r} leads to no table; name a file, a folder or a pattern of {endings_named}, or set `format`; "
            f"a relative path starts from the spec's own folder{brackets}"
        )
    if len({_kind(file, spec) for file in files}) > 1:
        raise SourceError(
            f"source.path {path!r} mixes files of several kinds, which may hold the same rows twice; "
            "name one kind, such as 'folder/*.parquet'"
        )
    if twice := same_rows(files):
        first, second = (file.file_name for file in twice)
        raise SourceError(
            f"source.path {path!r} leads to {first!r} and {second!r}, which are the same file by a link or the same table in two forms, so "
            "its rows would count twice; remove one of them, or write a pattern that leaves it out"
        )
    return files


def _kind(file: StoredFile, spec: SourceSpec) -> str:
    return spec.format or kind_of(file.file_name) or CSV


def _part(file: StoredFile, spec: SourceSpec) -> Part:
    kind = _kind(file, spec)
    part: Part
    if kind == PARQUET:
        part = ParquetFile(file)
    elif kind == ARROW:
        part = ArrowFile(file)
    else:
        quote = None if spec.quote == NO_QUOTE else spec.quote or '"'
        part = CsvFile(file, delimiter=spec.delimiter, quote=quote, encoding=spec.encoding)
    keys = partition_of(file)
    return Partition(part, keys) if keys else part


def _check_names(part: Part, names: Sequence[str], *, columns: Sequence[str]) -> None:
    missing = [column for column in columns if column not in names]
    if missing:
        inner = part.inner if isinstance(part, Partition) else part
        delimiter = (
            "; does the file use another `delimiter`?"
            if isinstance(inner, CsvFile) and missing == list(columns)
            else ""
        )
        raise SourceError(
            f"{part.name} lacks the declared {_listed(missing)}; it needs all columns of universe and unit{delimiter}"
        )
    repeated = [column for column in columns if names.count(column) > 1]
    if repeated:
        raise SourceError(f"{part.name} has more than one of the declared {_listed(repeated)}; rename the others")


def _check_family(part: Part, column: str, before: str, now: str) -> None:
    if now != before:
        raise SourceError(
            f"{part.name} holds the ids of column {column!r} as {now}, and an earlier file as {before}, so one person may have two ids; "
            "write them in the same type in all files"
        )


def _listed(columns: Sequence[str]) -> str:
    return f"column{'s' if len(columns) > 1 else ''} {', '.join(repr(column) for column in columns)}"
