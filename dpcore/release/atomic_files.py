"""Write files so that each appears complete, or not at all, even if the process is killed or the machine loses power."""

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dpcore.errors import OutputError
from dpcore.object_store import AnyPath, ObjectPath

DRAFT = "draft"


@contextmanager
def replacing(folder: Path, names: Sequence[str]) -> Iterator[tuple[Path, ...]]:
    """Create a folder, yield a temporary path for each name, and rename them all on exit.

    If anything fails before the renames, files that already have these names stay as they were.
    """
    suffix = f".partial-{secrets.token_hex(4)}"
    finals = [folder / name for name in names]
    partials = tuple(final.with_name(f".{final.name}{suffix}") for final in finals)
    try:
        if file := next((part for part in (folder, *folder.parents) if part.exists() and not part.is_dir()), None):
            raise OutputError(f"{file} is a file, but an export needs a folder; choose another one with --to")
        folder.mkdir(parents=True, exist_ok=True)
        if in_the_way := [final for final in finals if final.is_dir()]:
            raise OutputError(f"{in_the_way[0]} is a folder; move it away, or export elsewhere")
        yield partials
        for partial in partials:
            sync_path(partial)
        for partial, final in zip(partials, finals, strict=True):
            partial.replace(final)
        sync_path(folder)
    except OSError as error:
        why = error.strerror or "file system error"
        raise OutputError(f"cannot write to {folder} ({why}); free some space, or choose another folder") from error
    finally:
        for partial in partials:
            # If the folder could not be created, or is gone, there is nothing to clean up.
            with suppress(OSError):
                partial.unlink(missing_ok=True)


def write_note(path: AnyPath, content: bytes, *, replace: bool = True) -> None:
    """Write a small file in a single step. Without `replace`, a file that is there already stays."""
    if isinstance(path, ObjectPath):
        if replace:
            path.write(content)
        else:
            path.create(content)
        return
    draft = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        draft.write_bytes(content)
        sync_path(draft)
        if replace:
            draft.replace(path)
        else:
            with suppress(FileExistsError):
                path.hardlink_to(draft)
    finally:
        draft.unlink(missing_ok=True)
    sync_path(path.parent)


@contextmanager
def new_draft(outer: Path) -> Iterator[Path]:
    """Create the folder of a release that is being written, inside a new folder. On exit, remove that one and everything left in it.

    The draft lies one level deeper than a release, because a reader of `*/data` may match hidden folders too.
    """
    draft = outer / DRAFT
    try:
        outer.mkdir()
        (draft / "data").mkdir(parents=True)
        yield draft
    finally:
        shutil.rmtree(outer, ignore_errors=True)


def sync_path(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
