"""List the files that a spec's `path` stands for, in sorted order."""

import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from posixpath import basename
from typing import Any
from urllib.parse import unquote_to_bytes

from dpcore.spec import local_files
from dpcore.spec.local_files import is_pattern, is_visible, local_path, unescaped
from dpcore.tables.sources.stored_file import WEB, StoredFile, file_system
from dpcore.tables.sources.text import text_of

CSV, PARQUET, ARROW = "csv", "parquet", "arrow"
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


def _maybe_compressed(*endings: str) -> tuple[str, ...]:
    return tuple(f"{plain}{packed}" for plain in endings for packed in ("", *COMPRESSIONS))


ENDINGS = {
    CSV: _maybe_compressed(".csv", ".tsv"),
    PARQUET: (".parquet",),
    ARROW: (".arrow", ".feather", ".ipc"),
}
# Read only if the path itself ends so: in a folder, such files are more often notes than tables.
TEXT_ENDINGS = _maybe_compressed(".txt")
_ENDINGS = sorted((*sum(ENDINGS.values(), ()), *TEXT_ENDINGS, *COMPRESSIONS), key=len, reverse=True)
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def kind_of(name: str) -> str | None:
    """Return a file's kind by its extension; None if the extension is unknown."""
    lowered = name.lower()
    return next((kind for kind, endings in ENDINGS.items() if lowered.endswith(endings)), None)


def files_at(path: str, *, base: Path, taken: Callable[[str], bool]) -> list[StoredFile]:
    """List the files that a path stands for: a file, a pattern, or a folder with all its partitions.

    Which of them it is depends on the text of the path alone, never on the names that exist: folders and files may be named after
    people. A path with `*`, `?` or `[` is a pattern and stands for the files that match it.

    Args:
        path: As written in the spec.
        base: The folder that a relative path starts from. It is never a pattern, whatever its name.
        taken: Whether a file with a given name is a table. Hidden files are never listed.
    """
    is_remote = local_path(path, base=base) is None
    names, source = (
        (_remote(path), path) if is_remote else (map(str, local_files.local_files_at(path, base=base)), None)
    )
    files = (StoredFile(name, source) for name in sorted(set(names)))
    return [file for file in files if taken(file.file_name)]


def same_rows(files: Sequence[StoredFile]) -> tuple[StoredFile, StoredFile] | None:
    """Find two files that are the same file by a link, or the same table in two forms: 2026.csv and 2026.csv.gz."""
    seen: dict[Hashable, StoredFile] = {}
    for file in files:
        for mark in _marks(file):
            first = seen.setdefault(mark, file)
            if first is not file:
                return first, file
    return None


def partition_of(file: StoredFile) -> tuple[tuple[str, str | None], ...]:
    """Read the partition keys and values from a file's folder names, such as visits/month=2025-01/x.parquet."""
    pairs = [folder.partition("=") for folder in file.folders if "=" in folder]
    return tuple((_unquoted(key), None if value == NO_VALUE else _unquoted(value)) for key, _, value in pairs)


def _unquoted(name: str) -> str:
    """Decode part of a folder name, which may be any bytes, in the same way as a value in a file."""
    with suppress(UnicodeEncodeError):
        return text_of(unquote_to_bytes(os.fsencode(name)))
    return text_of(unquote_to_bytes(name.encode("utf-8", "replace")))  # a remote name may not encode to bytes


def _marks(file: StoredFile) -> Iterator[Hashable]:
    """Yield keys that no other file of a table may share: the path without its extension, and for a local file its inode."""
    name = file.file_name
    if file.path.endswith(name):  # otherwise a query string such as ?part=2 distinguishes the files
        ending = next((ending for ending in _ENDINGS if name.lower().endswith(ending)), "")
        yield file.path.removesuffix(name), name[: len(name) - len(ending)]
    if not file.is_remote:
        with suppress(OSError):  # a broken link is reported when it is opened
            status = Path(file.path).stat()
            yield status.st_dev, status.st_ino


def _remote(address: str) -> Iterator[str]:
    """Yield paths as the file system lists them."""
    system, path = file_system(address)
    system.invalidate_cache()  # files may have been added since an earlier listing in this process
    root = unescaped(path)
    if address.lower().startswith(WEB):  # the web has no folders, and a ? in an address is not a pattern
        yield address
    elif is_pattern(path):
        entries = system.glob(path, detail=True).items()
        yield from (name for name, entry in entries if entry["type"] == "file")
    elif system.isfile(root):
        yield root
    elif system.isdir(root):
        yield from _remote_folder(system, root)


def _remote_folder(system: Any, root: str) -> Iterator[str]:
    for entry in system.ls(root, detail=True):
        name = basename(entry["name"].rstrip("/"))
        if not is_visible(name):
            continue
        if entry["type"] == "file":
            yield entry["name"]
        elif "=" in name:
            yield from _remote_folder(system, entry["name"])
