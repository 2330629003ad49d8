"""Sources for tests: written to a folder, located, read to the end."""

import gzip
import io
import sqlite3
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import ipc, parquet

from dpcore.errors import SourceError
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.spec.source import SourceSpec
from dpcore.tables.ingest import Coding, Fingerprint, readable_version
from dpcore.tables.sources.source import Source, check_columns, read_piece
from dpcore.universe import Categorical, Universe

CANARY = "Jane Doe 4711"


def located(folder: Path, path: str, **options: Any) -> Source:
    return Source.locate(SourceSpec(path=path, **options), base=folder)


def read_batches(source: Source, *, columns: Sequence[str], ids: str | None = None) -> Iterator[pa.RecordBatch]:
    """Yield all rows as a run reads them: every header is checked, then piece after piece."""
    check_columns(source, columns=columns)
    for piece in source.pieces(ids=ids):
        yield from read_piece(piece, columns=columns)


def rows(source: Source, *columns: str) -> list[tuple[object, ...]]:
    batches = list(read_batches(source, columns=columns))
    assert all(tuple(batch.schema.names) == columns for batch in batches)
    return [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


def data_version(source: Source, *, columns: Sequence[str], key: bytes) -> str:
    """Return the version of some columns as they are stored: what a run is bound to before the cells are found."""
    coding = Coding(
        universe=Universe({column: Categorical(values=("F", "M")) for column in columns}),
        protection=Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE),
        window=None,
    )
    check_columns(source, columns=columns)
    return readable_version(source, coding=coding, undecided=columns, fingerprint=Fingerprint(key))


def write(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def shared_views(value: str, times: int, *, last: str) -> pa.Array:
    """Return a column of views of which all but the last lead to one long value, so that it takes 16 bytes a row."""
    _, views, *texts = pa.array([value, last], pa.string_view()).buffers()
    one, other = views[:16].to_pybytes(), views[16:32].to_pybytes()
    return pa.Array.from_buffers(pa.string_view(), times + 1, [None, pa.py_buffer(one * times + other), *texts])


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(table, sink, **options)
    return sink.getvalue()


def arrow_bytes(table: pa.Table, *, stream: bool = False, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    new = ipc.new_stream if stream else ipc.new_file
    with new(sink, table.schema, options=ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def sqlite_bytes(folder: Path, *statements: str) -> bytes:
    path = folder / "made.sqlite"
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return path.read_bytes()


def gzipped(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def check_silent(error: SourceError, words: Iterable[str] = ()) -> None:
    """Check that an error is one line, linked to no other, with nothing of the data or of a library in it."""
    assert "\n" not in str(error)
    assert error.__context__ is None
    assert error.__cause__ is None
    told = "".join(traceback.format_exception_only(error)) + repr(error) + repr(error.args)
    forbidden = ("Jane", "Doe", "4711", "undeclared", "arrow.", "sqlite3", "psycopg", "Error:", *words)
    assert not any(word in told.replace("SourceError:", "") for word in forbidden), told
