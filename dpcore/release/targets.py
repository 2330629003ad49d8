"""Publish a release where its spec says: in a folder of this machine, or in an object store.

A store cannot rename. There, a release exists once its manifest does, so the manifest is written after all other files, and `latest.json` after
the manifest. A process that is killed before that leaves files that no manifest lists. The resumed run writes the same ones again, and removes
all others before it writes the manifest: the first attempt may have had a signing key, for example, and so a signature.

With the same settings, files are the same to the last byte, because all attempts of a run state the same moment of publication. The first attempt notes it in
`.publishing/RELEASE.json`, which is never replaced or removed. So neither a resumed run nor a worker that was believed dead can mix files of two
attempts, and a release is published once.
"""

import datetime as dt
import hashlib
import json
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpcore.errors import OutputError
from dpcore.ledger.rows import whole_minute
from dpcore.object_store import AnyPath, ObjectPath
from dpcore.release.atomic_files import new_draft
from dpcore.release.dataset_folder import point_latest, publication_note
from dpcore.release.draft import Draft
from dpcore.release.integrity import LARGEST_NOTE, MANIFEST, is_there, read_manifest, read_regular, readable
from dpcore.release.publishing import (
    Chosen,
    Published,
    another,
    as_recorded,
    chosen,
    publish_folder,
    write_files,
)
from dpcore.release.withdrawal import DATA, WITHDRAWN, remove_objects


def publish(draft: Draft, **how: Any) -> Published:
    """Publish a release where its spec says. Takes and raises what `publish_folder` does."""
    folder = draft.declaration.output_folder
    return publish_objects(draft, folder, **how) if isinstance(folder, ObjectPath) else publish_folder(draft, **how)


def published_before(final: AnyPath, *, recorded: Collection[str], run: str) -> Published:
    """Return the release of a settled run as it is in its place. Write nothing.

    Args:
        final: The folder of the release.
        recorded: The SHA-256 of each manifest that the run has recorded as published.
        run: The id of the run.

    Raises:
        OutputError: If it is damaged, or something else is there.
        UsageError: If it cannot be read.
    """
    with readable():
        return as_recorded(final, recorded, run=run)


def publish_objects(  # noqa: PLR0913  the same as for a folder
    draft: Draft,
    folder: ObjectPath,
    *,
    recorded: Collection[str],
    numbers: Callable[[], Mapping[str, int]],
    in_chain: Callable[[str], bool],
    confirm: Callable[[], None],
) -> Published:
    """Write a release to a store: data and other files, then the manifest, and the pointer to it last.

    A manifest that is already there is never trusted: it is kept if the run has recorded it, or would write the same bytes.

    Args:
        draft: The content of the release.
        folder: The folder of the dataset.
        recorded: As for `publish_folder`.
        numbers: Likewise.
        in_chain: Likewise.
        confirm: Called before anything is written, and again before the manifest; raises to prevent publication.

    Raises:
        OutputError: If something else is in the release's place, or it was withdrawn, or the store cannot be written to.
    """
    final, run = folder / draft.name, draft.statement.run
    with _store_errors(folder, run):
        written = _manifest_there(final)
        if recorded and written:
            published = as_recorded(final, recorded, run=run)
        else:
            published = _uploaded(draft, final, written, in_chain=in_chain, confirm=confirm)
        point_latest(folder, draft.name, numbers=numbers)
    return published


def _manifest_there(final: ObjectPath) -> bytes:
    """Return the manifest of a release; nothing if there is none. A store that does not answer is an error, not an empty place."""
    try:
        return read_manifest(final / MANIFEST)
    except FileNotFoundError:
        return b""


def _uploaded(
    draft: Draft, final: ObjectPath, written: bytes, *, in_chain: Callable[[str], bool], confirm: Callable[[], None]
) -> Published:
    """Write the release to a temporary folder of this machine, and upload it from there."""
    moment = _agreed(draft, final, in_chain=in_chain)
    same = replace(draft, statement=replace(draft.statement, ledger_head=moment.head), before=moment.before)
    with tempfile.TemporaryDirectory() as above, new_draft(Path(above, "release")) as local:
        manifest, digest, portrait = write_files(local, same, created=moment.created)
        if written and hashlib.sha256(written).hexdigest() != digest:
            raise another(final, "its files are not those that this run would write", run=draft.statement.run)
        names = _in_order(local)
        _require_wanted(final, run=draft.statement.run, confirm=confirm)
        for name in names:
            (final / name).upload(local / name)
        _require_wanted(final, run=draft.statement.run, confirm=confirm)
        remove_objects(final, but={*names, MANIFEST, WITHDRAWN})  # what an earlier attempt with other settings has left
        (final / MANIFEST).upload(local / MANIFEST)
    return Published(final, manifest, digest, appeared=not written, portrait=portrait)


def _require_wanted(final: ObjectPath, *, run: str, confirm: Callable[[], None]) -> None:
    """Raise if `confirm` does, or the release was withdrawn meanwhile: then nothing of it may appear again."""
    confirm()
    if is_there(final / WITHDRAWN):
        raise OutputError(
            f"{final / WITHDRAWN} says that the release of run {run} was withdrawn, so it is not written again; see: dpflow ledger verify"
        )


def _in_order(local: Path) -> list[str]:
    """Return the names of a release's files but the manifest. The rows come last: until there is a manifest, nobody should find them."""
    names = [path.relative_to(local).as_posix() for path in local.rglob("*") if path.is_file()]
    return sorted((name for name in names if name != MANIFEST), key=lambda name: (name.startswith(f"{DATA}/"), name))


def _agreed(draft: Draft, final: ObjectPath, *, in_chain: Callable[[str], bool]) -> Chosen:
    """Return the moment that all attempts of a run state: that of the first one.

    Raises:
        OutputError: If the note of that moment is not one that this ledger can have written.
    """
    now = whole_minute(dt.datetime.now(dt.UTC))
    own = {"created": now, "privacy": {"ledger_head": draft.statement.ledger_head}, "version": {"before": draft.before}}
    note = publication_note(final)
    note.create((json.dumps(own) + "\n").encode("utf-8"))
    found = chosen(read_regular(note, limit=LARGEST_NOTE))  # another attempt's, if it was quicker
    if found is None or not in_chain(found.head):
        raise OutputError(
            f"{note} is not a note of this ledger; remove it, then let the run write its release with --resume {draft.statement.run}"
        )
    return found


@contextmanager
def _store_errors(folder: ObjectPath, run_id: str) -> Iterator[None]:
    """Convert the errors of a store. The run is already paid for, so the message says how to resume it."""
    problem = None
    try:
        yield
    except OSError as error:
        problem = error.strerror or "the disk of this machine failed; check its space and TMPDIR"
    if problem:
        raise OutputError(f"the release cannot be written to {folder}: {problem}, then resume with --resume {run_id}")
