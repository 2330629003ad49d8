"""Where the raw table is, and its rows in batches.

Only the declared columns are read. Every failure is one SourceError of one line that names the file and declared
columns: nothing of what is in the file, not even the names of other columns, and nothing that a reader wrote about it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from dpcore.errors import SourceError
from dpcore.ingest.attempt import attempt, attempt_each
from dpcore.ingest.csv_file import CsvFile
from dpcore.ingest.parquet_file import ParquetFile


class TableFile(Protocol):
    """A file that holds rows of one table. To read a new kind of file, write one of these and name its ending below."""

    def column_names(self) -> list[str]:
        """Return the names of all columns, as often as they occur."""

    def column_types(self, columns: Sequence[str]) -> list[pa.DataType]:
        """Return the types of the named columns."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the named columns, in that order, in batches of bounded size."""


CSV_ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
PARQUET_ENDINGS = (".parquet",)
KNOWN = ", ".join((*CSV_ENDINGS, *PARQUET_ENDINGS))


@dataclass(frozen=True)
class Source:
    """The files that together hold the raw table, in sorted order."""

    paths: tuple[Path, ...]

    @classmethod
    def locate(cls, path: str, *, base: Path) -> "Source":
        """Find the files that a spec's path stands for: a file, a pattern, or a folder of files of one kind.

        Args:
            path: As written in the spec.
            base: The folder that a relative path starts from: the spec's own.

        Raises:
            SourceError: If that is no file of a known kind, or files of two kinds, which may be the same rows twice.
        """
        found = attempt(
            lambda: sorted(file for file in _matches(path, base=base) if _is_table(file)),
            otherwise=f"source.path {path!r} cannot be looked up; check it, and who may read that folder",
        )
        if not found:
            raise SourceError(
                f"source.path {path!r} leads to no table; give a file, a folder or a pattern of {KNOWN}, "
                "and mind that a relative path starts from the spec's own folder"
            )
        if len({_is_parquet(file) for file in found}) > 1:
            raise SourceError(
                f"source.path {path!r} mixes CSV and Parquet files, which may hold the same rows twice; "
                "name one kind, such as 'folder/*.parquet'"
            )
        return cls(tuple(found))


def check_columns(source: Source, *, columns: Sequence[str]) -> None:
    """Refuse a source of which a file cannot be opened or does not hold each of the declared columns once.

    Reads the files' headers only, never a row.
    """
    for path in source.paths:
        _check_file(path)
        names = attempt(_table(path).column_names, otherwise=_damaged(path))
        _check_names(path, names, columns=columns)


def check_types(source: Source, *, reads: Mapping[str, Callable[[pa.DataType], bool]]) -> None:
    """Refuse a source that holds a declared column in a type of which no value can be what was declared.

    Args:
        source: Whose headers are read, never a row.
        reads: For each declared column, whether it can be read from a type.
    """
    columns = tuple(reads)
    for path in source.paths:
        types = attempt(lambda path=path: _table(path).column_types(columns), otherwise=_damaged(path))  # type: ignore[misc]
        wrong = [column for column, kind in zip(columns, types, strict=True) if not reads[column](kind)]
        if wrong:
            raise SourceError(
                f"{path.name!r} holds the declared {_listed(wrong)} in a type that cannot be read as declared; "
                "convert it, or correct the spec"
            )


def read_batches(source: Source, *, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all files, with the named columns in that order, after checking every file's header.

    Memory is bounded by a batch. CSV columns are text; Parquet columns keep their type, which may differ between files.
    """
    check_columns(source, columns=columns)
    for path in source.paths:
        yield from attempt_each(_table(path).batches(columns), otherwise=_damaged(path))


def _matches(path: str, *, base: Path) -> list[Path]:
    place = base / path
    if place.is_dir():
        return [file for file in place.iterdir() if not file.name.startswith((".", "_"))]
    if place.is_file():
        return [place]
    if not any(mark in path for mark in "*?["):
        return []
    if Path(path).is_absolute():
        base, path = Path(place.anchor), str(place.relative_to(place.anchor))
    return [file for file in set(base.glob(path)) if not file.name.startswith(".")]


def _is_table(path: Path) -> bool:
    return path.name.lower().endswith((*CSV_ENDINGS, *PARQUET_ENDINGS)) and not path.is_dir()


def _is_parquet(path: Path) -> bool:
    return path.name.lower().endswith(PARQUET_ENDINGS)


def _table(path: Path) -> TableFile:
    return ParquetFile(path) if _is_parquet(path) else CsvFile(path)


def _damaged(path: Path) -> str:
    if _is_parquet(path):
        return (
            f"{path.name!r} is not a whole Parquet file: it is damaged, cut short, or of another kind; write it again"
        )
    return (
        f"{path.name!r} is not a whole CSV file: it is damaged, cut short, or leaves a quotation open; write it again"
    )


def _check_file(path: Path) -> None:
    """Tell an unreadable or empty file from a damaged one."""

    def first_byte() -> bytes:
        with path.open("rb") as file:
            return file.read(1)

    first = attempt(first_byte, otherwise=f"{path.name!r} cannot be opened; check that it exists and who may read it")
    if not first:
        raise SourceError(f"{path.name!r} is empty; a table without rows still has its header")


def _check_names(path: Path, names: Sequence[str], *, columns: Sequence[str]) -> None:
    missing = [column for column in columns if column not in names]
    if missing:
        raise SourceError(
            f"{path.name!r} lacks the declared {_listed(missing)}; each file needs all columns of universe and unit"
        )
    repeated = [column for column in columns if names.count(column) > 1]
    if repeated:
        raise SourceError(f"{path.name!r} has more than one of the declared {_listed(repeated)}; rename the others")


def _listed(columns: Sequence[str]) -> str:
    return f"column{'s' if len(columns) > 1 else ''} {', '.join(repr(column) for column in columns)}"
