"""Write the files of a release to a folder: rows, measurements, card, descriptors, manifest, hashes and signature."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.errors import OutputError
from dpcore.object_store import AnyPath
from dpcore.release.atomic_files import sync_path
from dpcore.release.card import card
from dpcore.release.descriptors import ROWS, descriptors, with_words, words_about
from dpcore.release.draft import Draft
from dpcore.release.integrity import (
    LARGEST_MANIFEST,
    MANIFEST,
    MOST_PARTS,
    parts_of,
)
from dpcore.release.manifest import FORMAT, SignedBy
from dpcore.release.measured import (
    MEASUREMENTS,
    ROWS_PER_GROUP,
    START,
    measurement_schema,
    measurement_tables,
    start_table,
    writing_options,
)
from dpcore.release.persons import PersonRows
from dpcore.release.problems import listed_files, sums_of
from dpcore.release.signing import SIGNATURE, SUMS, signing_key
from dpcore.release.versions import version_of
from dpcore.reporting.portrait import Portrait
from dpcore.spec.described import describe_universe

UNCERTAINTY, ERRORS = "uncertainty.parquet", "errors.parquet"
MOST_LEFT_OUT = 100  # of the marginals without errors, so many are named in the manifest
UNCERTAINTY_BYTES = 3.8  # for each byte of the measurements; at most 4 are promised


@dataclass(frozen=True)
class Published:
    """A published release.

    Attributes:
        folder: The folder of the release.
        manifest: The content of its manifest: what this run wrote, or what has the recorded hash.
        manifest_sha256: The SHA-256 of that manifest.
        appeared: Whether this call published it. Otherwise an identical release was already there.
        portrait: The figures of its pictures; None if this call did not compute them, or the release has no replicates.
    """

    folder: AnyPath
    manifest: Mapping[str, Any]
    manifest_sha256: str
    appeared: bool
    portrait: Portrait | None = None


def write_files(folder: Path, draft: Draft, *, created: str) -> Published:
    """Write all files of a release to a folder that holds nothing else. Its manifest is returned as a reader of the file gets it."""
    key = signing_key()
    footer = {b"dpflow": json.dumps(draft.statement.to_json()).encode()}
    universe = draft.declaration.universe
    measured = measurement_tables(universe, draft.measurements, draft.resolutions)
    schema = measurement_schema(universe, draft.measurements, draft.resolutions)
    grouped = None if draft.rows.persons is None else PersonRows(draft.rows.persons, universe)
    rows_schema = with_words(
        universe.schema if grouped is None else grouped.schema, words_about(draft.declaration.spec)
    )
    files: list[dict[str, Any]] = []

    def write(name: str, tables: Iterable[pa.Table], schema: pa.Schema, **options: Any) -> None:
        schema = schema.with_metadata({**(schema.metadata or {}), **footer})
        files.append(_write_parquet(folder, name, tables, schema, **options))

    write(ROWS, _decoded(draft, grouped), rows_schema)
    write(MEASUREMENTS, measured, schema)
    if grouped is not None:
        draft = replace(draft, warnings=tuple(dict.fromkeys((*draft.warnings, *grouped.warnings()))))
    measured_bytes = files[1]["bytes"]
    if draft.start.functions:
        table = start_table(draft.start)
        write(START, [table], table.schema, **writing_options(table))
    judgement = None
    if draft.uncertainty is not None:
        table = draft.uncertainty(int(UNCERTAINTY_BYTES * measured_bytes))
        write(UNCERTAINTY, [table], table.schema, **writing_options(table))
        if draft.judge is not None:
            judgement = draft.judge(table)
            errors = judgement.errors
            write(ERRORS, [errors], errors.schema, **writing_options(errors))
    portrait = None if judgement is None else judgement.portrait
    files.append(_write_text(folder, "card.html", card(draft, files=files, portrait=portrait, persons=grouped)))
    described = descriptors(draft, created=created, files=tuple(files))
    files += [_write_text(folder, name, content) for name, content in described]
    manifest = {
        "format": FORMAT,
        "dataset": draft.declaration.spec.dataset,
        "release": draft.name,
        "created": created,
        "rows": draft.rows.count,
        "warnings": list(draft.warnings),
        "privacy": draft.statement.to_json(),
        "columns": {field.name: str(field.type) for field in rows_schema},
        "spec": draft.declaration.spec.model_dump(mode="json", exclude={"source", "engine"}),
        "discovered": [asdict(finding) for finding in draft.findings],
        "universe": describe_universe(draft.declaration),
        **({"dependencies": [asdict(function) for function in draft.functions]} if draft.functions else {}),
        **({} if grouped is None else {"persons": grouped.to_json()}),
        "strategy": draft.declaration.strategy.name,
        **({} if draft.prior is None else {"prior": dict(draft.prior)}),
        **({"parts": [dict(part) for part in draft.parts]} if draft.parts else {}),
        "rounds": [asdict(done) for done in draft.rounds],
        **({} if portrait is None else {"errors": _listed_errors(portrait)}),
        "files": files,
        "signed_by": None if key is None else SignedBy(key.public).to_json(),
    }
    manifest["version"] = asdict(version_of(manifest, draft.declaration.output_folder, before=draft.before))
    written = json.dumps(manifest, indent=2) + "\n"
    if len(written) > LARGEST_MANIFEST:  # it is ASCII
        raise OutputError(
            f"the manifest would have {len(written):,} bytes, but at most {LARGEST_MANIFEST:,} are allowed; let `discover` find fewer or "
            "shorter values, and run again"
        )
    if (parts := parts_of(written.encode())) > MOST_PARTS:
        raise OutputError(
            f"the manifest would have {parts:,} commas, colons and brackets, but at most {MOST_PARTS:,} are allowed; let `discover` find "
            "fewer values, and run again"
        )
    manifest, digest = json.loads(written), str(_write_text(folder, MANIFEST, written)["sha256"])
    sums = sums_of(listed_files(manifest), digest=digest)
    _write_bytes(folder, SUMS, sums)
    if key is not None:
        _write_bytes(folder, SIGNATURE, key.sign(sums))
    for written_to in (folder / "data", folder):
        sync_path(written_to)
    return Published(folder, manifest, digest, appeared=True, portrait=portrait)


def _listed_errors(portrait: Portrait) -> dict[str, Any]:
    """Return what `errors.parquet` lists, and what it leaves out."""
    left_out = portrait.left_out
    return {
        "level": portrait.level,
        "marginals": len(portrait.tables),
        "left_out": len(left_out),
        "left_out_marginals": [list(columns) for columns in left_out[:MOST_LEFT_OUT]],
    }


def _decoded(draft: Draft, grouped: PersonRows | None) -> Iterator[pa.Table]:
    """Yield the rows as values, one row group at a time, so that memory does not depend on their number."""
    universe, rng = draft.declaration.universe, np.random.default_rng(draft.seed)
    if grouped is not None:
        yield from grouped.tables(draft.rows, rng, most_rows=ROWS_PER_GROUP)
        return
    for chunk in draft.rows.chunks():
        for start in range(0, len(chunk[0]), ROWS_PER_GROUP):
            yield universe.decode([axis[start : start + ROWS_PER_GROUP] for axis in chunk], rng)


def _write_parquet(
    folder: Path, name: str, tables: Iterable[pa.Table], schema: pa.Schema, **options: Any
) -> dict[str, Any]:
    rows = 0
    with pq.ParquetWriter(folder / name, schema, compression="zstd", **options) as writer:
        for table in tables:
            writer.write_table(table.replace_schema_metadata(schema.metadata))
            rows += table.num_rows
    return _listed(folder, name, rows=rows)


def _write_text(folder: Path, name: str, text: str) -> dict[str, Any]:
    return _write_bytes(folder, name, text.encode("utf-8"))


def _write_bytes(folder: Path, name: str, content: bytes) -> dict[str, Any]:
    (folder / name).write_bytes(content)
    return _listed(folder, name, rows=None)


def _listed(folder: Path, name: str, *, rows: int | None) -> dict[str, Any]:
    """Flush a file to disk, and return its entry in the manifest."""
    sync_path(folder / name)
    with (folder / name).open("rb") as file:
        digest, size = hashlib.file_digest(file, "sha256").hexdigest(), file.tell()
    return {"path": name, "rows": rows, "bytes": size, "sha256": digest}
