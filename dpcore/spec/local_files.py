"""The files on this machine that a spec names: those of the private table, and public ones that may not be among them."""

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from dpcore.spec.document import Document, Place

LOCAL = ("file://", "local://")
PUBLIC_KEYS = (("prior", "path"), ("universe", "*", "values_from"))
"""The keys that name a public file, relative to the spec. What such a file holds may be published as it is."""

_ESCAPED = re.compile(r"\[([*?[])\]")  # [*], [?] and [[] name the character itself, as `glob.escape` writes it


def check_public_files(document: Document) -> None:
    """Raise if `source` covers a public file, before any of these files is read: the message of another mistake may quote a line of one.

    A file is covered by whatever name: its path, a link, a folder or a pattern, on either side. In a folder, files of every kind are covered.
    """
    source = document.data.get("source")
    table = source.get("path") if isinstance(source, dict) else None
    if not isinstance(table, str):
        return
    base = document.path.parent
    for key in PUBLIC_KEYS:
        for place, public in _named(document.data, key):
            if _overlap(table, public, base=base):
                document.mistake(
                    place,
                    f"`{'.'.join(map(str, place))}` names a file of the private table of `source`, and its content may be published; name a public "
                    "file, outside the folder or pattern of the table",
                )
                document.raise_mistakes()


def _named(data: Any, key: Place) -> Iterator[tuple[Place, str]]:
    """Yield the files that a key names, each with its place. `*` stands for any key."""
    if not key:
        yield from [((), data)] if isinstance(data, str) else ()
    elif isinstance(data, dict):
        for name in data if key[0] == "*" else data.keys() & key[:1]:
            yield from (((name, *place), file) for place, file in _named(data[name], key[1:]))


def _overlap(table: str, public: str, *, base: Path) -> bool:
    """Return whether two paths stand for the same file, by whatever name, or would if it existed."""
    written = local_path(table, base=base)
    if written is None:
        return False
    with suppress(OSError):  # what cannot be listed cannot be released either
        if written.resolve() == (base / public).resolve():
            return True
        return not _identities(table, base=base).isdisjoint(_identities(public, base=base))
    return False


def _identities(path: str, *, base: Path) -> set[tuple[int, int]]:
    """Return the device and inode of each file that a path stands for, read as a name or as a pattern."""
    if local_path(path, base=base) is None:
        return set()
    files = (*local_files_at(path, base=base), base / path)
    return {(file.stat().st_dev, file.stat().st_ino) for file in files if file.is_file()}


def local_path(path: str, *, base: Path) -> Path | None:
    """Return a spec's path on this machine; None for a remote address."""
    if path.lower().startswith(LOCAL):
        return Path(path.partition("://")[2])
    return None if "://" in path else base / path


def local_files_at(path: str, *, base: Path) -> Iterator[Path]:
    """Yield the files on this machine that a path stands for: a file, a pattern, or a folder with all its partitions.

    Args:
        path: As written in the spec; no remote address.
        base: The folder that a relative path starts from. It is never a pattern, whatever its name.
    """
    written = local_path(path, base=Path()) or Path()
    literal = tuple(takewhile(lambda part: not is_pattern(part), written.parts))
    root = base.joinpath(*map(unescaped, literal)).absolute()
    pattern = "/".join(written.parts[len(literal) :])
    if pattern:
        yield from (file for file in root.glob(pattern) if not file.name.startswith(".") and not file.is_dir())
    elif root.is_dir():
        yield from _in_folder(root)
    elif root.is_file():
        yield root


def is_pattern(path: str) -> bool:
    """Tell whether a path has `*`, `?` or `[` that does not stand for itself."""
    return any(mark in _ESCAPED.sub("", path) for mark in "*?[")


def unescaped(path: str) -> str:
    """Return the name that a path without a pattern stands for."""
    return _ESCAPED.sub(r"\1", path)


def is_visible(name: str) -> bool:
    """Tell whether a file or folder of this name belongs to a table."""
    return not name.startswith((".", "_"))


def _in_folder(root: Path) -> Iterator[Path]:
    for entry in root.iterdir():
        if entry.is_dir() and "=" in entry.name and is_visible(entry.name):
            yield from _in_folder(entry)
        elif is_visible(entry.name) and not entry.is_dir():
            yield entry
