"""Write a draft folder through file descriptors, so that nobody who swaps its path can change what is written or recorded.

Other users may have write access to the output folder. They can rename the draft, put their own folder in its place, or plant links
in it. Nothing here is therefore opened by its full path, no existing file is opened at all, and hashes are computed over the bytes as
they are written.
"""

import hashlib
import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DRAFT, _DATA = "draft", "data"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


class WrittenFile(io.RawIOBase):
    """A new file that counts and hashes the bytes written to it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._sha256 = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        """Return True. The file is write-only."""
        return True

    def write(self, data: Any) -> int:
        """Write all bytes, and add them to the hash and the size."""
        left = memoryview(data).cast("B")
        size = len(left)
        self._sha256.update(left)
        while left:
            left = left[os.write(self._descriptor, left) :]
        self.size += size
        return size

    def listed(self, name: str, *, rows: int | None) -> dict[str, Any]:
        """Return the file's entry in the manifest."""
        return {"path": name, "rows": rows, "bytes": self.size, "sha256": self._sha256.hexdigest()}


@dataclass(frozen=True)
class DraftFolder:
    """The draft of a release, held by the descriptors of its folders."""

    _above: int
    _folder: int
    _data: int

    @contextmanager
    def new_file(self, name: str) -> Iterator[WrittenFile]:
        """Create a file in the draft, and sync it to disk once it is written."""
        within, _, last = name.rpartition("/")
        with new_file(last, within=self._data if within == _DATA else self._folder) as file:
            yield file

    def sync(self) -> None:
        """Sync the folders, and so the names of their files, to disk."""
        for folder in (self._data, self._folder):
            sync(folder)

    def rename(self, final: Path) -> None:
        """Rename the draft to its final name. If another folder has taken the draft's name, that one moves: check with `is_at`."""
        os.rename(DRAFT, final, src_dir_fd=self._above)

    def is_at(self, final: Path) -> bool:
        """Return whether the folder at a path is the one that was written."""
        try:
            return os.path.samestat(os.lstat(final), os.fstat(self._folder))
        except FileNotFoundError:
            return False


@contextmanager
def new_draft(outer: Path) -> Iterator[DraftFolder]:
    """Create a draft inside a new folder. On exit, remove that folder and everything left in it.

    The draft lies one level deeper than a release, because a reader of `*/data` may match hidden folders too.
    """
    try:
        outer.mkdir()
        with (
            _held(outer) as above,
            _new_folder(DRAFT, within=above) as folder,
            _new_folder(_DATA, within=folder) as data,
        ):
            yield DraftFolder(above, folder, data)
    finally:
        shutil.rmtree(outer, ignore_errors=True)


@contextmanager
def new_file(name: str | Path, *, within: int | None = None) -> Iterator[WrittenFile]:
    """Create a file, and sync it to disk once it is written.

    Raises:
        FileExistsError: If anything already has this name, even a link or a pipe.
    """
    descriptor = os.open(name, _NEW_FILE, 0o666, dir_fd=within)
    try:
        yield (file := WrittenFile(descriptor))
        file.close()
        sync(descriptor)
    finally:
        os.close(descriptor)


def sync(descriptor: int) -> None:
    """Flush a file or folder to disk."""
    os.fsync(descriptor)


def sync_path(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk. Never wait for the other end of a pipe that was put there."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _new_folder(name: str, *, within: int) -> Iterator[int]:
    os.mkdir(name, dir_fd=within)
    with _held(name, within=within) as descriptor:
        yield descriptor


@contextmanager
def _held(name: str | Path, *, within: int | None = None) -> Iterator[int]:
    descriptor = os.open(name, _FOLDER, dir_fd=within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
