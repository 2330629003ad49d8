"""Every kind of source that a table of records, whose values are bytes, can be written as."""

import random
import shutil
import sqlite3
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any
from urllib.parse import quote as percent_encoded

import fsspec
import pandas as pd
import polars as pl
import psycopg
import pyarrow as pa

from dpcore.spec.source import SourceSpec
from dpcore.tables.ingest import Source
from dpcore.tables.sources.text import text_of
from tests.dpcore.tables.sources.one_record import (
    COLUMNS,
    GOOD,
    MOST_WORLDS,
    Kind,
    Record,
    good_record,
    odd_record,
    value,
)
from tests.dpcore.tables.sources.sources import arrow_bytes, gzipped, located, parquet_bytes, write, zstd

RAW = "raw"  # a record of this one value is written as it stands
ZURICH = "Z\u00fcrich"


@dataclass(frozen=True)
class Csv:
    """CSV files of one dialect, encoding and compression."""

    delimiter: str
    quote: str
    line_end: bytes
    encoding: str | None
    packed: str
    ended: bool = True

    def __call__(self, folder: Path, records: Sequence[Record]) -> Source:
        mark = b"\xef\xbb\xbf" if self.encoding == "utf-8-sig" else b""
        lines = [self.delimiter.join(COLUMNS).encode(), *map(self.line, records)]
        content = mark + self.line_end.join(lines) + (self.line_end if self.ended else b"")
        name = f"t.csv{self.packed}"
        write(folder, name, {"": bytes, ".gz": gzipped, ".zst": zstd}[self.packed](content))
        return located(folder, name, delimiter=self.delimiter, quote=self.quote, encoding=self.encoding)

    def line(self, record: Record) -> bytes:
        if RAW in record:
            return record[RAW]
        return self.delimiter.encode().join(self.value(record[name]) for name in COLUMNS)

    def value(self, raw: bytes) -> bytes:
        raw = raw.replace(ZURICH.encode(), ZURICH.encode(self.encoding or "utf-8", "replace"))
        if self.quote == "none":
            return raw.replace(b"\r", b"").replace(b"\n", b"")
        mark = self.quote.encode()
        if any(byte in raw for byte in (b"\r", b"\n", mark, self.delimiter.encode())) or len(raw) % 3 == 0:
            return mark + raw.replace(mark, mark * 2) + mark
        return raw


def raw_record(delimiter: str, without: bytes) -> Callable[[random.Random, str], Record]:
    """Make up lines of arbitrary bytes but some, with any number of values in them."""

    def make(chance: random.Random, world: str) -> Record:
        values = [value(chance) for _ in range(chance.choice((0, 0, 1, 4, 5, 6, 6, 7)))]
        line = delimiter.encode().join([chance.choice((world.encode(), value(chance))), *values])
        return {RAW: line.translate(None, without)}

    return make


ENCODINGS = (
    None,
    "utf-8",
    "utf-8-sig",
    "latin-1",
    "cp1252",
    "koi8-r",
    "cp437",
    "mac_roman",
    "ascii",
    "gb2312",
    "tis_620",
    "iso8859_15",
)
DIALECTS = ((",", '"'), (";", "'"), ("\t", "none"), ("|", '"'), ("\1", '"'), (",", "none"), (" ", "'"))
LINE_ENDS = (b"\n", b"\r\n", b"\r")


def csv_kinds() -> list[Kind]:
    """Return every dialect, as properly written records and as lines of any bytes, with encodings, line ends and compressions in turn."""
    encodings, line_ends, ended = cycle(ENCODINGS), cycle(LINE_ENDS), cycle((True, True, False, True))
    kinds = []
    for (delimiter, quote), packed, raw in product(DIALECTS, ("", ".gz", ".zst"), (False, True)):
        csv = Csv(delimiter, quote, next(line_ends), next(encodings), packed, ended=next(ended))
        marks = b"" if quote == "none" else quote.encode()
        odd = raw_record(delimiter, b"\r\n" + marks) if raw else odd_record
        kinds.append(Kind(f"{csv}{' of any lines' if raw else ''}", csv, odd=odd))
    return kinds


def quotation_kinds() -> list[Kind]:
    """Return quoted files with lines of any bytes, quotation marks among them: such a file may be refused as a whole."""
    return [
        Kind(f"{csv} of any marks", csv, "'t.csv' has quotation marks", raw_record(csv.delimiter, b"\r\n"), worlds=1)
        for csv in (
            Csv(",", '"', b"\n", None, ""),
            Csv(";", "'", b"\r\n", "cp1252", ""),
            Csv("|", '"', b"\r", "utf-8", ""),
        )
    ]


def encoding_kinds() -> list[Kind]:
    """Return one dialect in every family of encodings."""
    return [Kind(f"CSV in {name}", Csv(",", '"', b"\r\n", name, "")) for name in ENCODINGS]


def unchecked_text(values: Sequence[bytes | None]) -> pa.Array:
    """Make an array of text whose bytes nobody has checked."""
    raw = pa.array(values, pa.binary())
    return pa.StringArray.from_buffers(len(raw), raw.buffers()[1], raw.buffers()[2], raw.buffers()[0], raw.null_count)


ARRAYS: dict[str, Callable[[Sequence[bytes | None]], pa.Array]] = {
    "bytes": lambda values: pa.array(values, pa.binary()),
    "text": unchecked_text,
    "large bytes": lambda values: pa.array(values, pa.large_binary()),
    "dictionary": lambda values: pa.array(values, pa.binary()).dictionary_encode(),
    "views": lambda values: pa.array(values, pa.binary_view()),
}


def arrow_table(records: Sequence[Record], *, form: str) -> pa.Table:
    """Make a table of columns of bytes, with an empty value for a null."""
    columns = {name: ARRAYS[form]([record[name] or None for record in records]) for name in COLUMNS}
    return pa.table(columns)


def typed_table(records: Sequence[Record], *, age: pa.DataType) -> pa.Table:
    """Make a table of numbers, days and text, in which any eight bytes may be a number or a day."""
    texts = {
        name: unchecked_text([record[name] or None for record in records])
        for name in ("world", "sex", "code", "person")
    }
    return pa.table(
        {
            **texts,
            "age": _of_bits([record["age"] for record in records], age),
            "day": _of_bits([record["day"] for record in records], pa.timestamp("ms")),
            "note": _of_bits([record["note"] for record in records], pa.float64()),
        }
    )


def _of_bits(values: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    usual = {b"1": 1, b"7": 7, b"03": 3, b"2025-01-31": 20_119 * 86_400_000, b"2025-06-01": 20_240 * 86_400_000}
    words = b"".join(_eight(usual[one], kind) if one in usual else (one + bytes(8))[:8] for one in values)
    known = pa.array([bool(one) for one in values], pa.bool_())
    return pa.Array.from_buffers(kind, len(values), [known.buffers()[1], pa.py_buffer(words)])


def _eight(number: int, kind: pa.DataType) -> bytes:
    return struct.pack("<d" if pa.types.is_floating(kind) else "<q", number)


def dictionary_table(records: Sequence[Record], *, turned: int) -> pa.Table:
    """Make a table of text by dictionary, each column with other indices, and text of both lengths."""
    kinds = cycle(product((pa.string(), pa.large_string()), (pa.int8(), pa.uint8(), pa.int16(), pa.int64())))
    columns = {}
    for name, (text, index) in zip(COLUMNS, islice(kinds, turned, None), strict=False):
        long = text == pa.large_string()
        raw = pa.array([record[name] or None for record in records], pa.large_binary() if long else pa.binary())
        encoded = raw.dictionary_encode()
        columns[name] = pa.DictionaryArray.from_arrays(encoded.indices.cast(index), encoded.dictionary.view(text))
    return pa.table(columns)


DICTIONARIES = {f"dictionaries turned {turned}": partial(dictionary_table, turned=turned) for turned in (0, 4)}
FEW_WORLDS = 10  # as many distinct values as 8 bits can number, at most
TABLES: dict[str, Callable[[Sequence[Record]], pa.Table]] = {
    **{form: partial(arrow_table, form=form) for form in ARRAYS},
    "whole numbers": partial(typed_table, age=pa.int64()),
    "floats": partial(typed_table, age=pa.float64()),
    **DICTIONARIES,
}


def _parquet(folder: Path, records: Sequence[Record], *, form: str, **options: Any) -> Source:
    write(folder, "t.parquet", parquet_bytes(TABLES[form](records), **options))
    return located(folder, "t.parquet")


def _arrow(folder: Path, records: Sequence[Record], *, form: str, name: str, **options: Any) -> Source:
    write(folder, name, arrow_bytes(TABLES[form](records), **options))
    return located(folder, name)


def _worlds(form: str) -> int:
    return FEW_WORLDS if form in DICTIONARIES else MOST_WORLDS


def parquet_kinds() -> list[Kind]:
    """Return Parquet files of bytes, text and numbers, with and without dictionaries, in small row groups."""
    ways: tuple[dict[str, Any], ...] = (
        {"row_group_size": 3},
        {"use_dictionary": False, "compression": "none", "data_page_size": 16},
        {"compression": "zstd", "row_group_size": 2, "version": "1.0"},
    )
    return [
        Kind(f"Parquet of {form} {way}", partial(_parquet, form=form, **way), worlds=_worlds(form))
        for form, way in product([form for form in TABLES if form != "views"], ways)
    ]


def arrow_kinds() -> list[Kind]:
    """Return Arrow files and streams, and Feather, of bytes, text and numbers."""
    ways: tuple[dict[str, Any], ...] = (
        {"name": "t.arrow"},
        {"name": "t.ipc", "stream": True},
        {"name": "t.feather", "compression": "lz4"},
    )
    return [
        Kind(f"Arrow of {form} {way}", partial(_arrow, form=form, **way), worlds=_worlds(form))
        for form, way in product(TABLES, ways)
    ]


def _python_value(raw: bytes) -> Any:
    """Make a Python value of some bytes: of another type for every other value."""
    if raw in GOOD_BYTES:
        return text_of(raw) or None
    makers: tuple[Callable[[bytes], Any], ...] = (
        text_of,
        bytes,
        lambda raw: int.from_bytes(raw, "little") - (1 << 63),
        lambda raw: struct.unpack("<d", (raw + bytes(8))[:8])[0],
        lambda raw: Decimal((0, tuple(byte % 10 for byte in raw[:9]), raw[-1])),
        lambda raw: raw.decode("utf-8", "surrogateescape"),
        lambda _: Decimal("sNaN"),
        lambda _: _Hostile(),
    )
    return makers[len(raw) % len(makers)](raw)


class _Hostile:
    """A value that fails whatever is asked of it."""

    def __str__(self) -> str:
        raise ValueError("not a word")

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        raise ValueError("nor a comparison")

    def __hash__(self) -> int:
        return 1


GOOD_BYTES = frozenset(
    (b"F", b"M", b"1", b"7", b"03", b"01", b"02", b"x", b"o\r\nk", b"2025-01-31", b"2025-06-01", b"")
)


def _pandas_objects(_: Path, records: Sequence[Record]) -> Source:
    columns = {name: pd.Series([_python_value(record[name]) for record in records], dtype=object) for name in COLUMNS}
    return Source.of(pd.DataFrame(columns))


def _polars_objects(_: Path, records: Sequence[Record]) -> Source:
    texts = {name: [text_of(record[name]) or None for record in records] for name in ("world", "sex")}
    columns = {name: pl.Series(name, column, dtype=pl.String) for name, column in texts.items()}
    for name in ("age", "code", "day", "person", "note"):
        columns[name] = pl.Series(name, [_python_value(record[name]) for record in records], dtype=pl.Object)
    return Source.of(pl.DataFrame(columns))


def _pandas_text(_: Path, records: Sequence[Record]) -> Source:
    texts = {name: [text_of(record[name]) or None for record in records] for name in COLUMNS}
    frame = pd.DataFrame({name: pd.Series(column, dtype="string[pyarrow]") for name, column in texts.items()})
    return Source.of(frame.assign(code=pd.Categorical(texts["code"], categories=sorted({*texts["code"]} - {None}))))


def _polars(_: Path, records: Sequence[Record]) -> Source:
    texts = {name: [text_of(record[name]) or None for record in records] for name in ("world", "sex", "code", "person")}
    raw = {name: [record[name] or None for record in records] for name in ("age", "day", "note")}
    columns = {name: pl.Series(name, column, dtype=pl.String) for name, column in texts.items()}
    columns |= {name: pl.Series(name, column, dtype=pl.Binary) for name, column in raw.items()}
    return Source.of(pl.DataFrame(columns))


def _in_memory(_: Path, records: Sequence[Record], *, form: str) -> Source:
    table = TABLES[form](records)
    return Source.of(pa.concat_tables([table[:2], table[2:]]))


def memory_kinds() -> list[Kind]:
    """Return tables of pandas, polars and Arrow."""
    arrow = [Kind(f"Arrow table of {form}", partial(_in_memory, form=form), worlds=_worlds(form)) for form in TABLES]
    return [
        Kind("pandas of objects", _pandas_objects),
        Kind("pandas of text and categories", _pandas_text),
        Kind("polars", _polars),
        Kind("polars of objects", _polars_objects),
        *arrow,
    ]


def _partitioned(folder: Path, records: Sequence[Record], *, ending: str) -> Source:
    """Write a folder for each code, with the rest of its records in a file."""
    root = folder / "parts"
    shutil.rmtree(root, ignore_errors=True)
    (root / "code=01").mkdir(parents=True, exist_ok=True)
    groups: dict[bytes, list[Record]] = {b"01": []}
    for record in records:
        groups.setdefault(record["code"], []).append(record)
    for code, some in groups.items():
        name = percent_encoded(code[:60], safe="") or "__HIVE_DEFAULT_PARTITION__"
        place = f"parts/code={name}/{len(code)}-x.{ending}"
        if ending == "parquet":
            write(folder, place, parquet_bytes(arrow_table(some, form="text").drop_columns(["code"])))
        else:
            csv = Csv(",", '"', b"\n", None, "")
            lines = [b",".join(csv.value(record[name]) for name in COLUMNS if name != "code") for record in some]
            names = ",".join(name for name in COLUMNS if name != "code")
            write(folder, place, b"\n".join([names.encode(), *lines, b""]))
    return located(folder, "parts")


def partition_kinds() -> list[Kind]:
    """Return folders that are named after a declared column."""
    return [Kind(f"partitions of {ending}", partial(_partitioned, ending=ending)) for ending in ("parquet", "csv")]


SPELLINGS = (
    "parts",
    "parts/*.csv",
    "parts/?.csv",
    "parts/[0x]*.csv",
    "parts/*/*",
    "parts/*/*.csv",
    "parts/**/*.csv",
    "parts/code=*/*",
    "parts/code=*/x.csv",
    "parts/code=?/*",
    "parts/code=[0x]/*.csv",
    "parts/code=[!0]*/*.csv",
)
NAMED = b"*"  # the code of a record whose folder and file bear the pattern itself as their names


def _listed(folder: Path, records: Sequence[Record], *, path: str) -> Source:
    """Write a file for each code, alone or in a folder, and find them all by one spelling of the path."""
    root, csv = folder / "parts", Csv(",", '"', b"\n", None, "")
    shutil.rmtree(root, ignore_errors=True)
    usual = "parts/{}.csv" if path.endswith(".csv") and path.count("/") == 1 else "parts/code={}/x.csv"
    lines: dict[str, list[bytes]] = {usual.format("x"): []}  # so that every spelling finds a file
    for record in records:
        code = percent_encoded(record["code"][:60], safe="")
        named = path if path.count("/") else "parts/code=*/x.csv"
        lines.setdefault(named if record["code"] == NAMED else usual.format(code), []).append(csv.line(record))
    for place, some in lines.items():
        write(folder, place, b"\n".join([",".join(COLUMNS).encode(), *some, b""]))
    return located(folder, path)


def _named_as_the_pattern(chance: random.Random, world: str) -> Record:
    return good_record(chance, world, "new") | {"code": NAMED}


def listed_kinds() -> list[Kind]:
    """Return files that every spelling of a path finds, of which one comes, goes or changes that bears the pattern as its name."""
    return [
        Kind(f"files at {path}", partial(_listed, path=path), odd=_named_as_the_pattern, worlds=1) for path in SPELLINGS
    ]


def _stored_remotely(_: Path, records: Sequence[Record]) -> Source:
    lines = [",".join(COLUMNS).encode(), *map(Csv(",", '"', b"\n", None, "").line, records)]
    fsspec.filesystem("memory").pipe("/alone/t.csv", b"\n".join([*lines, b""]))
    return located(Path(), "memory://alone/t.csv")


def _numbers_and_text(folder: Path, records: Sequence[Record]) -> Source:
    """Write a file of ids that are numbers, and one of ids that are text, each of which may have no rows."""
    table = typed_table(records, age=pa.int64())
    persons = [text_of(record["person"]) for record in records]
    for name, kind, rows in (
        ("numbers", pa.int64(), [person.isdecimal() and len(person) < 18 for person in persons]),
        ("text", pa.string(), [not person.isdecimal() or len(person) >= 18 for person in persons]),
    ):
        part = table.filter(pa.array(rows, pa.bool_()))
        ids = pa.array([person for person, row in zip(persons, rows, strict=True) if row]).cast(kind)
        part = part.set_column(part.schema.get_field_index("person"), "person", ids)
        write(folder, f"both/{name}.parquet", parquet_bytes(part))
    return located(folder, "both")


def _numbered(chance: random.Random, world: str) -> Record:
    """Make up a record of a person whose id is a number, or looks like one."""
    number = b"%d" % (7 * int(world[1:]) + 3)
    return odd_record(chance, world) | {"person": chance.choice((number, number + b".0", number + b".5"))}


def other_kinds() -> list[Kind]:
    """Return a file in an object store, and files of which some hold ids as numbers and others as text."""
    return [Kind("an object store", _stored_remotely), Kind("numbers and text", _numbers_and_text, odd=_numbered)]


def _sqlite(folder: Path, records: Sequence[Record], *, typed: bool) -> Source:
    path = folder / "t.sqlite"
    path.unlink(missing_ok=True)
    kinds = dict.fromkeys(COLUMNS, "text") | {"age": "integer", "note": "blob"} if typed else dict.fromkeys(COLUMNS, "")
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("pragma journal_mode = off")
        connection.execute("pragma synchronous = off")
        connection.execute(f"create table visits ({', '.join(f'{name} {kinds[name]}' for name in COLUMNS)})")
        for record in records:
            marks = ", ".join(_stored(record[name]) for name in COLUMNS)
            connection.execute(
                f"insert into visits values ({marks})",  # noqa: S608  of ours
                [_value(record[name]) for name in COLUMNS],
            )
    connection.close()
    return Source.locate(SourceSpec(sql="select * from visits", url_env="CLINIC_DB"), base=folder)


def _stored(raw: bytes) -> str:
    return "cast(? as text)" if len(raw) % 4 else "?"


def _value(raw: bytes) -> object:
    if raw in GOOD_BYTES or len(raw) % 4 in {1, 2}:
        return raw or None
    return (
        (int.from_bytes(raw[:7], "little") if len(raw) % 8 == 0 else struct.unpack("<d", (raw + bytes(8))[:8])[0])
        if len(raw) % 4 == 0
        else raw
    )


def sqlite_kinds() -> list[Kind]:
    """Return tables of SQLite with and without types, with values of any type in either; CLINIC_DB has to name t.sqlite."""
    return [Kind(f"SQLite{', typed' if typed else ''}", partial(_sqlite, typed=typed)) for typed in (False, True)]


def postgres_kind(url: str) -> Kind:
    """Return a table of PostgreSQL of several types, which holds what such columns can hold."""
    types = dict.fromkeys(COLUMNS, "text") | {"age": "numeric", "day": "timestamp", "note": "bytea"}

    def written(folder: Path, records: Sequence[Record]) -> Source:
        with psycopg.connect(url) as connection:
            connection.execute("drop table if exists visits")
            connection.execute(f"create table visits ({', '.join(f'{name} {kind}' for name, kind in types.items())})")
            marks = ", ".join(f"%s::{types[name]}" for name in COLUMNS)
            with connection.cursor() as cursor:
                cursor.executemany(
                    f"insert into visits values ({marks})",  # noqa: S608  of ours
                    [[_for_postgres(record[name], types[name]) for name in COLUMNS] for record in records],
                )
        return Source.locate(SourceSpec(sql="select * from visits", url_env="CLINIC_DB"), base=folder)

    return Kind("PostgreSQL", written)


def _for_postgres(raw: bytes, kind: str) -> str | bytes | None:
    if kind == "bytea":
        return raw
    text = text_of(raw).replace("\0", "")
    if kind == "text" or raw in {b"", *GOOD["age" if kind == "numeric" else "day"]}:
        return text or None
    if kind == "numeric":
        return ("NaN", "Infinity", "-Infinity", "9" * 3000, f"-{len(raw)}e900", f"{len(raw)}.000001")[len(raw) % 6]
    return ("infinity", "-infinity", "4713-01-01 BC", "294276-12-31 23:59:59", "2025-01-31 24:00:00")[len(raw) % 5]
