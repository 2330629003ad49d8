"""Write a release next to its final path and rename it into place, so that readers never see a partial release."""

import datetime as dt
import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.errors import OutputError
from dpcore.ledger.rows import whole_minute
from dpcore.object_store import AnyPath, ObjectPath
from dpcore.release.atomic_files import new_draft, sync_path
from dpcore.release.card import card
from dpcore.release.columns import with_words, words_about
from dpcore.release.dataset_folder import DRAFT_OF_RELEASE, is_name, point_latest
from dpcore.release.descriptors import descriptors
from dpcore.release.draft import Draft
from dpcore.release.integrity import (
    LARGEST_MANIFEST,
    MANIFEST,
    MOST_PARTS,
    one_line,
    parts_of,
)
from dpcore.release.manifest import FORMAT, SignedBy
from dpcore.release.measured import MEASUREMENTS, measurement_schema, measurement_tables
from dpcore.release.persons import PersonRows
from dpcore.release.problems import Contents, listed_files, problems, sums_of
from dpcore.release.signing import SIGNATURE, signing_key
from dpcore.release.started import START, start_options, start_table
from dpcore.release.sums import SUMS
from dpcore.release.versions import version_of
from dpcore.reporting.portrait import Portrait
from dpcore.spec.described import describe_universe

ROWS_PER_GROUP = 1 << 18
LEAST_FREE_BYTES = 4 << 20
UNCERTAINTY, ERRORS = "uncertainty.parquet", "errors.parquet"
MOST_LEFT_OUT = 100  # of the marginals without errors, so many are named in the manifest
UNCERTAINTY_BYTES = 3.8  # for each byte of the measurements; at most 4 are promised


def check_writable(folder: AnyPath) -> None:
    """Raise if a release cannot be written to an output folder. Create nothing."""
    if isinstance(folder, ObjectPath):
        _check_store(folder)
        return
    nearest = folder.absolute()
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise OutputError(
            f"the output folder {folder} cannot be created: {nearest.name} is a file; choose another `output: {{path: ...}}`"
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise OutputError(
            f"the output folder {folder} is read-only; make it writable or choose another `output: {{path: ...}}`"
        )
    disk = shutil.disk_usage(nearest)
    if not disk.total:
        raise OutputError(
            f"the output folder {folder} cannot be created: {nearest} keeps no files; choose another `output: {{path: ...}}`"
        )
    if disk.free < LEAST_FREE_BYTES:
        raise OutputError(f"the disk of the output folder {folder} is full; free some space and run again")


def _check_store(folder: ObjectPath) -> None:
    """Raise if a store does not let this user read a folder. Only writing shows whether it may be written, and a run begins with that."""
    try:
        folder.exists()
    except OSError as error:
        raise OutputError(f"releases cannot be written to {folder}: {error.strerror}") from None


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


def publish_folder(
    draft: Draft,
    *,
    recorded: Collection[str],
    numbers: Callable[[], Mapping[str, int]],
    in_chain: Callable[[str], bool],
    confirm: Callable[[], None],
) -> Published:
    """Write the rows, measurements, card and manifest of a release to a folder, and publish them with one atomic rename.

    A folder that already exists at the final path is never trusted. It is kept if its manifest is one that the run has recorded. If
    the run has recorded none, it is kept if this run would write the same bytes for the time and ledger head that its manifest names.

    Args:
        draft: The content of the release.
        recorded: The SHA-256 of each manifest that the run has recorded as published.
        numbers: Returns the `reservation_numbers` of the account's runs by now. Writing a release takes time, and newer runs may be
            reserved and publish meanwhile.
        in_chain: Returns whether a hash is that of an event of the ledger.
        confirm: Called after everything is written and before the rename; raises to prevent publication.

    Raises:
        OutputError: If the path holds something else, or cannot be written to.
    """
    folder, name = draft.declaration.output_folder, draft.name
    if isinstance(folder, ObjectPath):
        raise TypeError(f"{folder} is not a folder of this machine")
    final = folder / name
    with _output_errors(folder, draft.statement.run):
        if recorded and not _is_free(final):
            published = as_recorded(final, recorded, run=draft.statement.run)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            published = _appeared_or_same(draft, final, in_chain=in_chain, confirm=confirm)
        for leftover in folder.glob(f".partial-{name}-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        point_latest(folder, name, numbers=numbers)
    return published


def write_folder(draft: Draft, final: Path) -> Published:
    """Write a release that no run has made to a folder of its own, with one atomic rename.

    Raises:
        OutputError: If the folder is taken, or cannot be written to.
    """
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with _draft_beside(final) as folder:
            now = whole_minute(dt.datetime.now(dt.UTC))
            manifest, digest, portrait = write_files(folder, draft, created=now)
            renamed = _is_free(final) and _renamed(folder, final)
    except OSError as error:
        raise OutputError(
            f"{one_line(final)} cannot be written ({error.strerror}); choose another folder, or make room there"
        ) from None
    if not renamed:
        raise OutputError(f"{one_line(final)} appeared meanwhile; choose a new folder")
    return Published(final, manifest, digest, appeared=True, portrait=portrait)


def _is_free(final: Path) -> bool:
    """Return whether a release can be renamed to a path: nothing is there, or an empty folder."""
    if not os.path.lexists(final):
        return True
    return final.is_dir() and not final.is_symlink() and not any(final.iterdir())


def as_recorded(final: AnyPath, recorded: Collection[str], *, run: str) -> Published:
    """Return the release at a path if the run has recorded it and it is undamaged, else raise."""
    contents = Contents.read(final)
    if contents.digest is None or contents.digest not in recorded:
        raise another(final, f"{MANIFEST} is missing or differs", run=run)
    for problem in problems(final):
        raise another(final, problem.sentence, run=run)
    return Published(final, contents.manifest, contents.digest, appeared=False)


def _appeared_or_same(
    draft: Draft, final: Path, *, in_chain: Callable[[str], bool], confirm: Callable[[], None]
) -> Published:
    """Publish the release. If the path is taken, even by another worker meanwhile, compare what is there."""
    if _is_free(final):
        try:
            with _draft_beside(final) as folder:
                now = whole_minute(dt.datetime.now(dt.UTC))
                manifest, digest, portrait = write_files(folder, draft, created=now)
                confirm()
                if _renamed(folder, final):
                    return Published(final, manifest, digest, appeared=True, portrait=portrait)
        except FileNotFoundError:
            if _is_free(final):
                raise  # otherwise a faster worker has removed this draft as a leftover
    contents = Contents.read(final)
    if (told := chosen(contents.written)) and in_chain(told.head):
        statement = replace(draft.statement, ledger_head=told.head)
        with _draft_beside(final) as folder:
            same = replace(draft, statement=statement, before=told.before)
            manifest, digest, portrait = write_files(folder, same, created=told.created)
        if contents.digest == digest and not any(problems(final)):
            return Published(final, manifest, digest, appeared=False, portrait=portrait)
    raise another(final, "its files are not those that this run would write", run=draft.statement.run)


def _draft_beside(final: Path) -> AbstractContextManager[Path]:
    return new_draft(final.with_name(f"{DRAFT_OF_RELEASE}{final.name}-{secrets.token_hex(4)}"))


class Chosen(NamedTuple):
    """What a manifest states about the moment of its publication: its time, the head of the ledger, and the release before it."""

    created: str
    head: str
    before: str | None


def chosen(manifest: bytes | None) -> Chosen | None:
    """Return what a manifest states about the moment of its publication, or None if that is missing or malformed."""
    try:
        told = json.loads(manifest or b"")
        created, head, before = told["created"], told["privacy"]["ledger_head"], told["version"]["before"]
        well_formed = whole_minute(dt.datetime.fromisoformat(created)) == created and isinstance(head, str)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    well_formed = well_formed and (before is None or is_name(before))
    return Chosen(created, head, before) if well_formed else None


def another(final: AnyPath, problem: str, *, run: str) -> OutputError:
    """Return the error that something else is in the place of a run's release."""
    return OutputError(
        f"{one_line(final)} is not the release of run {run}: {problem}; move it away, then let the run write its "
        f"release there with --resume {run}"
    )


def write_files(folder: Path, draft: Draft, *, created: str) -> tuple[dict[str, Any], str, Portrait | None]:
    """Write all files of a release. Return its manifest, as a reader of the file gets it, the file's SHA-256, and its portrait."""
    key = signing_key()
    footer = {b"dpflow": json.dumps(draft.statement.to_json()).encode()}
    universe = draft.declaration.universe
    measured = measurement_tables(universe, draft.measurements, draft.resolutions)
    schema = measurement_schema(universe, draft.measurements, draft.resolutions)
    grouped = None if draft.rows.persons is None else PersonRows(draft.rows.persons, universe)
    rows_schema = with_words(
        universe.schema if grouped is None else grouped.schema, words_about(draft.declaration.spec)
    )
    files = [
        _write_parquet(folder, "data/part-00000.parquet", _decoded(draft, grouped), rows_schema.with_metadata(footer)),
        _write_parquet(folder, MEASUREMENTS, measured, schema.with_metadata({**schema.metadata, **footer})),
    ]
    if grouped is not None:
        draft = replace(draft, warnings=tuple(dict.fromkeys((*draft.warnings, *grouped.warnings()))))
    measured_bytes = files[1]["bytes"]
    if draft.start.functions:
        table = start_table(draft.start)
        schema = table.schema.with_metadata({**table.schema.metadata, **footer})
        files.append(_write_parquet(folder, START, iter([table]), schema, **start_options(table)))
    judgement = None
    if draft.uncertainty is not None:
        table, options = draft.uncertainty(int(UNCERTAINTY_BYTES * measured_bytes))
        schema = table.schema.with_metadata({**table.schema.metadata, **footer})
        files.append(_write_parquet(folder, UNCERTAINTY, iter([table]), schema, **options))
        if draft.judge is not None:
            judgement = draft.judge(table)
            schema = judgement.errors.schema.with_metadata(footer)
            files.append(_write_parquet(folder, ERRORS, iter([judgement.errors]), schema, **_for_floats(schema)))
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
        "discovered": [asdict(each) for each in draft.findings],
        "universe": describe_universe(draft.declaration),
        **({"dependencies": [asdict(each) for each in draft.functions]} if draft.functions else {}),
        **({} if grouped is None else {"persons": grouped.to_json()}),
        "strategy": draft.declaration.strategy.name,
        **({} if draft.prior is None else {"prior": dict(draft.prior)}),
        **({"parts": [dict(each) for each in draft.parts]} if draft.parts else {}),
        "rounds": [asdict(each) for each in draft.rounds],
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
    return manifest, digest, portrait


def _listed_errors(portrait: Portrait) -> dict[str, Any]:
    """Return what `errors.parquet` lists, and what it leaves out."""
    left_out = portrait.left_out
    return {
        "level": portrait.level,
        "marginals": len(portrait.tables),
        "left_out": len(left_out),
        "left_out_marginals": [list(each) for each in left_out[:MOST_LEFT_OUT]],
    }


def _for_floats(schema: pa.Schema) -> dict[str, Any]:
    """Return the options for a small file of floats: their bytes are kept apart, and all else has a dictionary."""
    floats = [field.name for field in schema if pa.types.is_float32(field.type)]
    others = [field.name for field in schema if not pa.types.is_float32(field.type)]
    return {"use_dictionary": others, "column_encoding": dict.fromkeys(floats, "BYTE_STREAM_SPLIT")}


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
    folder: Path, name: str, tables: Iterator[pa.Table], schema: pa.Schema, **options: Any
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


def _renamed(folder: Path, final: Path) -> bool:
    """Rename a draft into place. Return False if the path was taken first, for example by another worker of the same run."""
    try:
        folder.rename(final)
    except OSError:
        if not os.path.lexists(final):
            raise
        return False
    sync_path(final.parent)
    return True


@contextmanager
def _output_errors(folder: Path, run_id: str) -> Iterator[None]:
    """Convert file system errors. The run is already paid for, so the message says how to resume it."""
    problem = None
    try:
        yield
    except OSError as error:
        problem = {
            errno.EEXIST: "a file is in the place of a folder; move it away",
            errno.ENOTDIR: "a file is in the place of a folder; move it away",
            errno.ENOSPC: "the disk is full; free some space",
            errno.EDQUOT: "the disk quota is used up; free some space",
            errno.EROFS: "the disk is read-only; make it writable",
            errno.EACCES: "permission denied; make it writable",
            errno.EPERM: "permission denied; make it writable",
        }.get(error.errno or 0, "file system error; check the disk")
    if problem:
        raise OutputError(f"the release cannot be written to {folder}: {problem}, then resume with --resume {run_id}")
