"""Write files atomically: each one appears complete or not at all."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dpcore.errors import OutputError
from dpcore.release.draft_folder import sync_path


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
