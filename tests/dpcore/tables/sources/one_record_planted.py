"""Readers that let one record decide how others are read, each as it was or could have been written: the check has to catch them."""

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from glob import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv

from dpcore.spec import local_files
from dpcore.tables.ingest import Source
from dpcore.tables.sources.csv_file import CsvFile
from dpcore.tables.sources.csv_records import record_ends
from dpcore.tables.sources.parquet_file import ParquetFile
from tests.dpcore.tables.sources.equal_values import export_addresses
from tests.dpcore.tables.sources.one_record import COLUMNS, LARGEST, Kind, Record
from tests.dpcore.tables.sources.one_record_kinds import (
    Csv,
    arrow_kinds,
    listed_kinds,
    memory_kinds,
    parquet_kinds,
    raw_record,
)
from tests.dpcore.tables.sources.sources import located, write

LISTED = local_files.local_files_at
Plant = Callable[[pytest.MonkeyPatch], None]
WIDE = "utf-16-le"


@dataclass(frozen=True)
class Planted:
    """A reader with a fault, and the kind of source that it reads."""

    name: str
    plant: Plant
    kind: Kind


def _opened_by(patch: pytest.MonkeyPatch, *, read: Callable[[bytes], bytes]) -> None:
    """Let CSV files be opened as something else than they are."""
    real = CsvFile._open
    patch.setattr(CsvFile, "_open", lambda self: pa.BufferReader(read(real(self).read())))


def _decoded_as_a_stream(raw: bytes) -> bytes:
    return codecs.getincrementaldecoder(WIDE)("replace").decode(raw, final=True).encode("utf-8", "replace")


def _with_a_state(raw: bytes) -> bytes:
    """Decode by what was shifted in last: after a shift out, letters are others, until a shift in."""
    shifted = re.compile(rb"\x0e([^\x0f]*)")
    return shifted.sub(lambda found: found[1].upper().replace(b"0", b"5"), raw)


def _with_lead_bytes(raw: bytes) -> bytes:
    """Take every byte after a lead byte of Shift-JIS for the second of a character, as it is in a proper file."""
    return re.sub(rb"[\x81-\x9f\xe0-\xfc].", b"?", raw, flags=re.DOTALL)


def _guessing_types(patch: pytest.MonkeyPatch) -> None:
    real = arrow_csv.ConvertOptions
    patch.setattr(
        arrow_csv,
        "ConvertOptions",
        lambda include_columns, **_: real(include_columns=include_columns, null_values=[""], strings_can_be_null=True),
    )
    decoded = CsvFile._decoded
    patch.setattr(CsvFile, "_decoded", lambda self, values: decoded(self, values.cast(pa.string())))


def _cut_within_line_ends(stream: pa.NativeFile, *, usual: int, **_: object) -> Iterator[bytes]:
    """Cut after any CR or LF, and forget a line feed that then comes first."""
    pending = b""
    while read := stream.read(usual):
        chunk = (pending + read).removeprefix(b"\n")
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        if chunk[:end]:
            yield chunk[:end]
        pending = chunk[end:]
    if pending:
        yield pending


def _failing_at_long_records(stream: pa.NativeFile, *, quote: str | None, **_: object) -> Iterator[bytes]:
    content = bytes(stream.read())
    ends = [0, *record_ends(content, quote=quote, is_open=False).tolist(), len(content)]
    if max(end - start for start, end in pairwise(ends)) > LARGEST + 2:
        raise ValueError("too long")
    yield content


def _keeping_long_pieces(stream: pa.NativeFile, *, usual: int, **_: object) -> Iterator[bytes]:
    """Cut at every so many bytes, wherever that is."""
    while read := stream.read(usual):
        yield read


def _failing_at_bytes(_: str | None) -> Callable[[bytes], str]:
    return lambda raw: raw.decode("utf-8")


def _one_encoding_for_all(values: pa.Array) -> pa.Array:
    """Read a column as Latin-1 if any of its values is not UTF-8."""
    if pa.types.is_dictionary(values.type):
        return pa.DictionaryArray.from_arrays(values.indices, _one_encoding_for_all(values.dictionary))
    raw = values.cast(pa.binary()).to_pylist()
    try:
        return pa.array([None if one is None else one.decode() for one in raw], pa.string())
    except UnicodeDecodeError:
        return pa.array([None if one is None else one.decode("latin-1") for one in raw], pa.string())


def _as_arrow_was_told(patch: pytest.MonkeyPatch) -> None:
    """Let Arrow give text that was written from a dictionary in the type of that dictionary."""
    real = ParquetFile._open
    patch.setattr(ParquetFile, "_open", lambda self, **_: real(self))
    patch.setattr(ParquetFile, "_repeating", lambda *_: [])


def _guessing_objects(values: Any, _: object) -> pa.Array:
    """Let pandas look for the type of a column in its values."""
    numbers = pd.to_numeric(pd.Series(list(values), dtype=object), errors="coerce")
    if numbers.notna().sum() == pd.Series(list(values), dtype=object).notna().sum():
        return pa.array(numbers, from_pandas=True)
    return pa.array(
        [None if one is None else str(one) if isinstance(one, str | int | float) else "?" for one in values],
        pa.large_string(),
    )


def _literal_names_first(path: str, *, base: Path) -> Iterator[Path]:
    """Take a pattern for the one file or folder that bears it as its name, if there is one."""
    yield from LISTED(escape(path) if (base / path).exists() else path, base=base)


def _below_the_deepest_folder(path: str, *, base: Path) -> Iterator[Path]:
    """Match a pattern below the deepest folder that exists by its literal name."""
    place = base / path
    root = next(folder for folder in (place, *place.parents) if folder.is_dir())
    yield from LISTED(str(place.relative_to(root)), base=root)


def _wide(folder: Path, records: Sequence[Record]) -> Source:
    """Write a file in UTF-16, but for values that are no text, which are the bytes that they are."""

    def line(values: Sequence[bytes]) -> bytes:
        return ",".encode(WIDE).join(map(_as_wide, values)) + "\n".encode(WIDE)

    content = b"".join(
        [line([name.encode() for name in COLUMNS]), *(line([record[name] for name in COLUMNS]) for record in records)]
    )
    write(folder, "t.csv", content)
    return located(folder, "t.csv", quote="none")


def _as_wide(raw: bytes) -> bytes:
    try:
        return raw.decode().replace("\r", "").replace("\n", "").replace(",", "").encode(WIDE)
    except UnicodeDecodeError:
        return raw


QUOTED, PLAIN = Csv(",", '"', b"\r\n", None, ""), Csv(",", "none", b"\n", None, "")
ANY_LINES = Kind("planted, of any lines", PLAIN, odd=raw_record(",", b"\r\n"))
RECORDS = "dpcore.tables.sources.csv_file.whole_records"
AT_PATHS = {kind.name: kind for kind in listed_kinds()}


def _replacing(name: str, value: object) -> Plant:
    return lambda patch: patch.setattr(name, value)


PLANTED = [
    Planted("UTF-16 decoded across rows", partial(_opened_by, read=_decoded_as_a_stream), Kind("planted", _wide)),
    Planted("a decoder with a state", partial(_opened_by, read=_with_a_state), Kind("planted", QUOTED)),
    Planted("a lead byte that swallows", partial(_opened_by, read=_with_lead_bytes), ANY_LINES),
    Planted("types guessed from values", _guessing_types, Kind("planted", QUOTED)),
    Planted("a cut within CRLF", _replacing(RECORDS, _cut_within_line_ends), Kind("planted", QUOTED)),
    Planted("a cut anywhere", _replacing(RECORDS, _keeping_long_pieces), Kind("planted", PLAIN)),
    Planted("a long record that raises", _replacing(RECORDS, _failing_at_long_records), Kind("planted", QUOTED)),
    Planted(
        "bytes that raise",
        _replacing("dpcore.tables.sources.csv_file.decoder", _failing_at_bytes),
        Kind("planted", QUOTED),
    ),
    *(
        Planted(
            f"one encoding for a column of {kind.name}",
            _replacing(f"dpcore.tables.sources.{module}.readable", _one_encoding_for_all),
            kind,
        )
        for module, kind in (("parquet_file", parquet_kinds()[3]), ("text", arrow_kinds()[3]))
    ),
    Planted("dictionaries in the type that they were written from", _as_arrow_was_told, parquet_kinds()[-1]),
    Planted(
        "objects of pandas guessed",
        _replacing("dpcore.tables.sources.memory_table._of_pandas", _guessing_objects),
        memory_kinds()[0],
    ),
    Planted("objects of polars as addresses", export_addresses, memory_kinds()[3]),
    *(
        Planted(
            f"{name} at {path}",
            _replacing("dpcore.spec.local_files.local_files_at", plant),
            AT_PATHS[f"files at {path}"],
        )
        for name, plant, path in (
            ("a pattern taken for a name", _literal_names_first, "parts/*.csv"),
            ("a pattern taken for a name", _literal_names_first, "parts/code=[0x]/*.csv"),
            ("a pattern below a folder of its name", _below_the_deepest_folder, "parts/code=*/x.csv"),
            ("a pattern below a folder of its name", _below_the_deepest_folder, "parts/code=?/*"),
        )
    ),
]
