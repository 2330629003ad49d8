"""Describe a table by the schema of a Parquet or Arrow file. Row groups, their statistics and record batches are never used."""

from pathlib import Path

import pyarrow as pa
from pyarrow import ipc, parquet

from dpcore.starter.description import Column, Description, Stored
from dpcore.tables.sources.arrow_file import FILE_MAGIC
from dpcore.tables.sources.attempt import attempt
from dpcore.tables.sources.parquet_file import LARGEST_FOOTER

_ABOUT = (b"description", b"comment", b"PARQUET:description")


def describe_parquet(path: Path) -> Description:
    """Describe the columns of a Parquet file by the schema in its footer.

    The footer also holds the minimum and maximum of every column in each row group. They are values of rows, so they are not used.
    """

    def schema() -> pa.Schema:
        with path.open("rb") as file:
            limits = {"thrift_string_size_limit": LARGEST_FOOTER, "thrift_container_size_limit": LARGEST_FOOTER}
            return parquet.ParquetFile(file, **limits).schema_arrow

    return _described(attempt(schema, otherwise=_damaged(path, "Parquet")), path)


def describe_arrow(path: Path) -> Description:
    """Describe the columns of an Arrow or Feather file by its first message, which is the schema. Nothing after it is read."""

    def schema() -> pa.Schema:
        with path.open("rb", buffering=0) as file:
            if file.read(len(FILE_MAGIC)) == FILE_MAGIC:
                file.seek(8)  # the magic bytes are padded, and then a stream begins, schema first
            else:
                file.seek(0)
            with pa.PythonFile(file, mode="r") as stream:
                return ipc.read_schema(ipc.read_message(stream))

    return _described(attempt(schema, otherwise=_damaged(path, "Arrow")), path)


def _damaged(path: Path, kind: str) -> str:
    return f"{path}: has no readable {kind} schema: it is damaged, truncated, or in another format; write it again, or name its kind with --kind"


def _described(schema: pa.Schema, path: Path) -> Description:
    return Description(tuple(map(_column, schema)), source={"path": str(path)})


def _column(field: pa.Field) -> Column:
    kind = field.type
    extension = ""
    while isinstance(kind, pa.BaseExtensionType):
        extension, kind = kind.extension_name, kind.storage_type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    stored = _stored(kind)
    metadata = field.metadata or {}
    about = next((metadata[key].decode("utf-8", "replace") for key in _ABOUT if key in metadata), "")
    return Column(
        field.name,
        stored=stored,
        step=10.0**-kind.scale if pa.types.is_decimal(kind) and 0 < kind.scale <= 15 else None,
        nullable=field.nullable,
        about=about,
        identifies="it is a UUID" if extension == "arrow.uuid" else "",
        unusable="" if stored or extension == "arrow.uuid" else f"it is stored as {_words(kind)}",
    )


def _words(kind: pa.DataType) -> str:
    return "lists or records" if pa.types.is_nested(kind) else str(kind)


def _stored(kind: pa.DataType) -> Stored | None:
    types = pa.types
    if types.is_decimal(kind):
        return "number" if kind.scale > 0 else "integer"
    table: dict[Stored, tuple[bool, ...]] = {
        "text": (types.is_string(kind), types.is_large_string(kind), types.is_string_view(kind), types.is_null(kind)),
        "boolean": (types.is_boolean(kind),),
        "integer": (types.is_integer(kind),),
        "number": (types.is_floating(kind),),
        "date": (types.is_date(kind),),
        "datetime": (types.is_timestamp(kind),),
    }
    return next((stored for stored, matches in table.items() if any(matches)), None)
