"""Files that appear whole or not at all."""

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dpcore.errors import OutputError


@contextmanager
def replacing(folder: Path, names: Sequence[str]) -> Iterator[tuple[Path, ...]]:
    """Make a folder, give a temporary path for each name to write to, and rename them all once everything is written.

    If anything fails before, whatever lay under these names is left as it was.
    """
    suffix = f".partial-{secrets.token_hex(4)}"
    finals = [folder / name for name in names]
    partials = tuple(final.with_name(f".{final.name}{suffix}") for final in finals)
    try:
        if file := next((part for part in (folder, *folder.parents) if part.exists() and not part.is_dir()), None):
            raise OutputError(f"{file} is a file, and an export needs a folder; name another one with --to")
        folder.mkdir(parents=True, exist_ok=True)
        if in_the_way := [final for final in finals if final.is_dir()]:
            raise OutputError(f"{in_the_way[0]} is a folder; move it away, or export elsewhere")
        yield partials
        for partial in partials:
            _sync(partial)
        for partial, final in zip(partials, finals, strict=True):
            partial.replace(final)
        _sync(folder)
    except OSError as error:
        why = error.strerror or "the file system refused"
        raise OutputError(f"cannot write to {folder} ({why}); free some space, or choose another folder") from error
    finally:
        for partial in partials:
            # A folder that could not be made, or is gone, holds nothing of ours.
            with suppress(OSError):
                partial.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
