"""Recognise what `--from` names, and describe the table by it."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from posixpath import isabs, join
from typing import Any

import pyarrow as pa

from dpcore.errors import UsageError
from dpcore.spec.source import SourceSpec
from dpcore.starter.arrow_schema import describe_arrow, describe_parquet
from dpcore.starter.column_tests import (
    describe_dbt,
    describe_expectations,
    describe_pandera,
    looks_like_dbt,
    looks_like_expectations,
    looks_like_pandera,
)
from dpcore.starter.croissant import describe_croissant, looks_like_croissant
from dpcore.starter.csv_header import describe_csv, read_header, refuse_a_row
from dpcore.starter.csvw import describe_csvw, looks_like_csvw
from dpcore.starter.description import Description
from dpcore.starter.dictionary import (
    describe_dictionary,
    describe_dictionary_csv,
    header_of_dictionary,
    looks_like_dictionary,
)
from dpcore.starter.earlier_release import describe_release, looks_like_release, manifest_of
from dpcore.starter.frictionless import describe_frictionless, looks_like_frictionless
from dpcore.starter.metadata import Node, read_metadata
from dpcore.starter.values import describe_values
from dpcore.tables.sources.listing import kind_of
from dpcore.tables.sources.source import Source, check_columns, read_piece

Looks = Callable[[Node], bool]
Describe = Callable[[Node, str | None], Description]

# In this order: a later one may have the keys of an earlier one, too.
DOCUMENTS: dict[str, tuple[Looks, Describe]] = {
    "release": (looks_like_release, describe_release),
    "csvw": (looks_like_csvw, describe_csvw),
    "croissant": (looks_like_croissant, describe_croissant),
    "expectations": (looks_like_expectations, describe_expectations),
    "pandera": (looks_like_pandera, describe_pandera),
    "frictionless": (looks_like_frictionless, describe_frictionless),
    "dbt": (looks_like_dbt, describe_dbt),
    "dictionary": (looks_like_dictionary, describe_dictionary),
}
TABLES: dict[str, Callable[[Path], Description]] = {
    "csv": describe_csv,
    "parquet": describe_parquet,
    "arrow": describe_arrow,
}
KINDS = (*TABLES, "database", *DOCUMENTS)
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# `predictions` and `jurisdictions` are names of tables
_DICTIONARY_NAME = re.compile(
    r"dictionar|data_?dict|(?<![a-z])dict(?![a-z])|codebook|variables|columns|metadata|schema", re.IGNORECASE
)
_SQLITE = (".db", ".sqlite", ".sqlite3")


def describe(source: str, *, kind: str | None, table: str | None) -> Description:
    """Describe a table by its metadata.

    Args:
        source: A file, the folder of a release or of a table's files, or an environment variable that holds a database's address.
        kind: One of `KINDS`; None to recognise it.
        table: Which table, if the metadata describe several.
    """
    path, said = Path(source), kind
    kind = kind or _kind(source, path)
    if kind == "database":
        from dpcore.starter.catalogue import describe_catalogue  # noqa: PLC0415  its drivers are slow to import

        return describe_catalogue(source, table)
    if kind in TABLES:
        described = TABLES[kind](_first_file(path, kind))
        if kind == "csv" and said is None:
            refuse_a_row(path, [column.name for column in described.columns])
        return _as_named(described, path, kind)
    if kind == "dictionary" and kind_of(path.name) == "csv":
        return describe_dictionary_csv(path)
    root = read_metadata(manifest_of(path) if kind == "release" and path.is_dir() else path)
    return _from_here(DOCUMENTS[kind][1](root, table), path.parent)


def describe_public(source: str, *, private: Mapping[str, Any] | None) -> Description:
    """Describe a table by all values of a public table with the same columns.

    Args:
        source: A CSV, Parquet or Arrow file, or a folder or pattern of them.
        private: The keys of the private table's `source`, which must not be the same file; None if it is not known.
    """
    if _kind(source, Path(source)) not in TABLES:
        raise UsageError(
            f"{source}: is not a table; --like takes a public CSV, Parquet or Arrow file, and --from the metadata"
        )
    described = describe(source, kind=None, table=None)
    table = located(described.source)
    own = () if "path" not in (private or {}) or "://" in str(private) else located(private).local_files
    if {file.resolve() for file in table.local_files} & {file.resolve() for file in own}:
        raise UsageError(
            f"{source}: is the private table itself, whose values must not be copied into a spec; name another, public file with --like"
        )
    names = [column.name for column in described.columns]
    check_columns(table, columns=names)
    batches = [batch for piece in table.pieces(ids=None) for batch in read_piece(piece, columns=names)]
    parts = {name: [batch.column(name) for batch in batches] for name in names}
    columns = (
        column.filled_by(describe_values(column.name, pa.chunked_array(parts[column.name])))
        for column in described.columns
        if batches and not column.unusable
    )
    return Description(
        tuple(columns),
        caution=f"types, ranges and values that no other source gives are those of the public file {source}, rounded outwards: check "
        "that yours can have no others.",
    )


def located(source: Mapping[str, Any] | None) -> Source:
    """Find the table that a description names, from the working folder."""
    return Source.locate(SourceSpec.model_validate(source or {}), base=Path())


def _kind(source: str, path: Path) -> str:
    """Recognise the kind by the name, and by the content only of files that cannot be tables."""
    if "://" in source:
        raise UsageError(
            "--from takes no address: name a file here, or an environment variable that holds a database's address, such as CLINIC_DB"
        )
    if path.is_dir() and any((path / name).is_file() for name in ("manifest.json", "latest.json")):
        return "release"
    if not path.exists() and _VARIABLE.fullmatch(source) and "://" in os.environ.get(source, ""):
        return "database"
    if not path.exists() and not _is_pattern(source):
        raise UsageError(
            f"{source}: no such file; name the table, its metadata, or an environment variable that holds a database's address"
        )
    if path.suffix.lower() in _SQLITE:
        raise UsageError(
            f"{source} is a database; put its address into an environment variable and name that: "
            f"`export CLINIC_DB=sqlite:///{source}`, and then --from CLINIC_DB --table TABLE"
        )
    stored = kind_of(_first_file(path, None).name)
    if (
        stored == "csv"
        and path.is_file()
        and _DICTIONARY_NAME.search(path.name)
        and header_of_dictionary(read_header(path)[0])
    ):
        return "dictionary"
    return stored or _by_content(path)


def _by_content(path: Path) -> str:
    if path.suffix.lower() not in {".json", ".jsonld", ".yaml", ".yml"}:
        raise UsageError(f"{path}: its name does not say what it is; say it with --kind: {', '.join(KINDS)}")
    root = read_metadata(path)
    kind = next((kind for kind, (looks, _) in DOCUMENTS.items() if looks(root)), None)
    if kind == "dictionary" and not _DICTIONARY_NAME.search(path.name):
        raise UsageError(
            f"{path}: its name does not say that it is a data dictionary, and rows of a table can look like one. A table of rows must not be "
            "given as a description: its values would be copied into the spec. If it describes columns and holds no rows, call it "
            "dictionary.json, or say so with --kind dictionary"
        )
    if kind is not None:
        return kind
    raise root.fail(f"describes no table that can be recognised; say what it is with --kind: {', '.join(DOCUMENTS)}")


def _is_pattern(source: str) -> bool:
    return any(sign in source for sign in "*?[")


def _first_file(path: Path, kind: str | None) -> Path:
    """Return the file itself, or the first file of a folder or pattern: the files of one table have the same columns."""
    if not path.is_dir() and (path.exists() or not _is_pattern(str(path))):
        return path
    below = path.rglob("*") if path.is_dir() else Path().glob(str(path)) if not path.is_absolute() else iter(())
    kinds = {kind} if kind else TABLES.keys()
    files = sorted(file for file in below if file.is_file() and kind_of(file.name) in kinds)
    if not files:
        raise UsageError(f"{path}: holds no CSV, Parquet or Arrow file; name a file, or a folder of a release")
    return files[0]


def _as_named(description: Description, path: Path, kind: str) -> Description:
    """Let the source be what was named: a file, or the folder or pattern whose first file was described."""
    plain = kind_of(path.name) is not None or path.is_dir()
    form = {} if plain else {"format": kind}
    return replace(description, source={**(description.source or {}), "path": str(path), **form})


def _from_here(description: Description, folder: Path) -> Description:
    """Make a path in the metadata, which is relative to their file, relative to the spec."""
    source = description.source or {}
    path = source.get("path")
    if not isinstance(path, str) or "://" in path or isabs(path) or str(folder) == ".":
        return description
    return replace(description, source={**source, "path": join(str(folder), path)})
