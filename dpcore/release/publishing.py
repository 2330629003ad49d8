"""Write a release beside its final place and rename it there: a reader never sees half of one."""

import datetime as dt
import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.errors import OutputError
from dpcore.release.card import card
from dpcore.release.dataset_folder import LATEST, pointer
from dpcore.release.draft import Draft
from dpcore.release.integrity import MANIFEST, read_regular
from dpcore.release.measured import measurement_schema, measurement_tables

ROWS_PER_GROUP = 1 << 18
LEAST_FREE_BYTES = 4 << 20


def release_id(run_id: str, *, opened_at: str) -> str:
    """Name a run's release: the same run always gets the same name, and no other run does.

    >>> release_id("5f0c2ab1-7d8e", opened_at="2026-11-15T02:10:00+00:00")
    '20261115T021000Z-7d9117748bbf'
    """
    opened = dt.datetime.fromisoformat(opened_at).astimezone(dt.UTC)
    return f"{opened:%Y%m%dT%H%M%SZ}-{hashlib.sha256(run_id.encode()).hexdigest()[:12]}"


def check_writable(folder: Path) -> None:
    """Refuse an output folder that cannot take a release, without creating anything."""
    nearest = folder.absolute()
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise OutputError(
            f"the output folder {folder} cannot be made: {nearest.name} is a file; choose another `output: {{path: ...}}`"
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise OutputError(
            f"the output folder {folder} is read-only; make it writable or choose another `output: {{path: ...}}`"
        )
    if shutil.disk_usage(nearest).free < LEAST_FREE_BYTES:
        raise OutputError(f"the disk of the output folder {folder} is full; free some space and run again")


def publish(draft: Draft, *, confirm: Callable[[], None]) -> Path:
    """Write rows, measurements, card and manifest, and let the release appear at once. An existing release of the run is left alone.

    Args:
        draft: What to write.
        confirm: Called when everything is written, before it appears; raises an error if it must not.
    """
    folder, name = draft.declaration.output_folder, draft.name
    final = folder / name
    with _output_errors(folder, draft.statement.run):
        if not final.exists():
            folder.mkdir(parents=True, exist_ok=True)
            partial = folder / f".partial-{name}-{secrets.token_hex(4)}"
            try:
                _write(partial, draft)
                confirm()
                _rename(partial, final)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        for leftover in folder.glob(f".partial-{name}-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        _point_latest(folder, name)
    return final


def _write(partial: Path, draft: Draft) -> None:
    (partial / "data").mkdir(parents=True)
    footer = {b"dpflow": json.dumps(draft.statement.to_json()).encode()}
    universe = draft.declaration.universe
    measured = measurement_tables(universe, draft.measurements, draft.resolutions)
    files = [
        _write_parquet(partial, "data/part-00000.parquet", _decoded(draft), universe.schema.with_metadata(footer)),
        _write_parquet(partial, "measurements.parquet", measured, measurement_schema().with_metadata(footer)),
    ]
    files.append(_write_card(partial, card(draft, files=files)))
    manifest = {
        "format": 1,
        "dataset": draft.declaration.spec.dataset,
        "release": draft.name,
        "created": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "rows": draft.rows.count,
        "warnings": list(draft.warnings),
        "privacy": draft.statement.to_json(),
        "columns": {field.name: str(field.type) for field in universe.schema},
        "spec": draft.declaration.spec.model_dump(mode="json", exclude={"source", "engine"}),
        "discovered": [asdict(each) for each in draft.findings],
        "strategy": draft.declaration.strategy.name,
        "rounds": [asdict(each) for each in draft.rounds],
        "files": files,
    }
    _write_text(partial / MANIFEST, json.dumps(manifest, indent=2) + "\n")
    for part in (partial / "data", partial):
        _sync(part)


def _decoded(draft: Draft) -> Iterator[pa.Table]:
    """Yield the rows as values, a row group at a time: memory does not depend on how many there are."""
    universe, rng = draft.declaration.universe, np.random.default_rng(draft.seed)
    for chunk in draft.rows.chunks():
        for start in range(0, len(chunk[0]), ROWS_PER_GROUP):
            yield universe.decode([axis[start : start + ROWS_PER_GROUP] for axis in chunk], rng)


def _write_parquet(partial: Path, name: str, tables: Iterator[pa.Table], schema: pa.Schema) -> dict[str, Any]:
    path = partial / name
    rows = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table.replace_schema_metadata(schema.metadata))
            rows += table.num_rows
    _sync(path)
    return _listed(path, name, rows=rows)


def _write_card(partial: Path, page: str) -> dict[str, Any]:
    name = "card.html"
    _write_text(partial / name, page)
    return _listed(partial / name, name, rows=None)


def _listed(path: Path, name: str, *, rows: int | None) -> dict[str, Any]:
    """Return a file as the manifest lists it."""
    with path.open("rb") as written:
        digest = hashlib.file_digest(written, "sha256").hexdigest()
    return {"path": name, "rows": rows, "bytes": path.stat().st_size, "sha256": digest}


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _rename(partial: Path, final: Path) -> None:
    try:
        partial.rename(final)
    except OSError:
        if not final.exists():  # otherwise another worker of the same run was quicker with the same release
            raise
    _sync(final.parent)


def _point_latest(folder: Path, name: str) -> None:
    """Let latest.json name the newest release; a resumed older run does not take the place of a newer one.

    Of runs that end at once, each looks again after it has written: whoever wrote last sees all of their releases.
    """
    while _latest(folder) < (newest := max([name, *_releases(folder)])):
        temporary = folder / f".latest-{secrets.token_hex(4)}"
        try:
            _write_text(temporary, json.dumps(pointer(newest)) + "\n")
            temporary.replace(folder / LATEST)
        finally:
            temporary.unlink(missing_ok=True)
    _sync(folder)


def _latest(folder: Path) -> str:
    """Return the release that latest.json names; nothing if there is none yet, or it does not read, and is to be written anew."""
    try:
        return str(json.loads(read_regular(folder / LATEST).decode("utf-8"))["release"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _releases(folder: Path) -> list[str]:
    """Return the names of the releases that are there."""
    return [path.parent.name for path in folder.glob(f"[!.]*/{MANIFEST}")]


@contextmanager
def _output_errors(folder: Path, run_id: str) -> Iterator[None]:
    """Translate what the file system refuses; the run is paid for, so the message says how to go on."""
    problem = None
    try:
        yield
    except OSError as error:
        problem = {
            errno.ENOSPC: "the disk is full; free some space",
            errno.EDQUOT: "the disk quota is used up; free some space",
            errno.EROFS: "the disk is read-only; make it writable",
            errno.EACCES: "permission denied; make it writable",
            errno.EPERM: "permission denied; make it writable",
        }.get(error.errno or 0, "the file system refused; check the disk")
    if problem:
        raise OutputError(f"the release cannot be written to {folder}: {problem}, then resume with --resume {run_id}")
