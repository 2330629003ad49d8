"""Whether a release is still what was published: every file that its manifest lists, byte for byte, and no other."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

MANIFEST = "manifest.json"


def damage(folder: Path, manifest: Mapping[str, Any]) -> str | None:
    """Name the first file of a release that is not as its manifest lists it, or return None.

    Args:
        folder: Where the release lies.
        manifest: What its manifest says; that the manifest itself is the right one is for the ledger to say.
    """
    try:
        listed = {
            str(_inside(entry["path"])): (int(entry["bytes"]), str(entry["sha256"])) for entry in _files(manifest)
        }
    except (KeyError, TypeError, ValueError):
        return f"{MANIFEST} lists a file that it does not describe, or that is not in the release"
    if (folder / MANIFEST).is_symlink():
        return f"{MANIFEST} is a link, and was a file"
    for name, (size, digest) in listed.items():
        if problem := _problem(folder / name, size=size, digest=digest):
            return f"{name} {problem}"
    return next((f"{name} is not listed in its manifest" for name in _found(folder, listed)), None)


def _files(manifest: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    files = manifest.get("files", [])
    if not isinstance(files, list):
        raise TypeError
    return files


def _inside(name: object) -> PurePosixPath:
    """Return the name of a file below the release's folder, or refuse any other."""
    path = PurePosixPath(str(name))
    if path.is_absolute() or ".." in path.parts or not path.parts or path == PurePosixPath(MANIFEST):
        raise ValueError
    return path


def _problem(path: Path, *, size: int, digest: str) -> str | None:
    try:
        if path.is_symlink() or not path.is_file():
            return "is missing" if not path.is_symlink() else "is a link, and was a file"
        with path.open("rb") as file:
            found = os.fstat(file.fileno()).st_size
            if found != size:
                return f"has {found:,} bytes, and was published with {size:,}"
            same = hashlib.file_digest(file, "sha256").hexdigest() == digest
    except OSError:
        return "cannot be read"
    return None if same else "is not what was published"


def _found(folder: Path, listed: Iterable[str]) -> Iterator[str]:
    """Go through what lies in a release's folder and is neither listed nor needed to hold what is."""
    known = {MANIFEST, *listed}
    holders = {str(parent) for name in known for parent in PurePosixPath(name).parents}
    for above, folders, files in os.walk(folder):
        below = Path(above).relative_to(folder)
        for name in sorted(files + [name for name in folders if Path(above, name).is_symlink()]):
            if (each := (below / name).as_posix()) not in known:
                yield each
        for name in sorted(folders):
            if (each := (below / name).as_posix()) not in holders:
                yield f"{each}/"
