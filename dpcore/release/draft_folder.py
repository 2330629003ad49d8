"""A folder that is written through descriptors: whoever swaps its name changes neither what is written nor what goes on record.

Others may be allowed to write to the output folder. They can rename the draft, put their own folder in its place, or plant links in
it. So nothing here is opened by its path, nothing that exists is opened at all, and hashes are those of the bytes as they were written.
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

_NAME, _DATA = "draft", "data"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


class WrittenFile(io.RawIOBase):
    """A new file that counts and hashes what is written to it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._sha256 = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        """Return True: it can only be written to."""
        return True

    def write(self, data: Any) -> int:
        """Write all of the bytes, and count them in."""
        left = memoryview(data).cast("B")
        size = len(left)
        self._sha256.update(left)
        while left:
            left = left[os.write(self._descriptor, left) :]
        self.size += size
        return size

    def listed(self, name: str, *, rows: int | None) -> dict[str, Any]:
        """Return the file as the manifest lists it."""
        return {"path": name, "rows": rows, "bytes": self.size, "sha256": self._sha256.hexdigest()}


@dataclass(frozen=True)
class DraftFolder:
    """The draft of a release, by the descriptors of its folders."""

    _above: int
    _folder: int
    _data: int

    @contextmanager
    def new_file(self, name: str) -> Iterator[WrittenFile]:
        """Make a file of the draft, and keep it on the disk once it is written."""
        within, _, last = name.rpartition("/")
        with new_file(last, within=self._data if within == _DATA else self._folder) as file:
            yield file

    def sync(self) -> None:
        """Keep the names of its files on the disk."""
        for folder in (self._data, self._folder):
            sync(folder)

    def rename(self, final: Path) -> None:
        """Give the draft its final name; what has taken its old name meanwhile is not held back here, see `is_at`."""
        os.rename(_NAME, final, src_dir_fd=self._above)

    def is_at(self, final: Path) -> bool:
        """Say whether the folder at a path is the one that was written."""
        try:
            return os.path.samestat(os.lstat(final), os.fstat(self._folder))
        except FileNotFoundError:
            return False


@contextmanager
def new_draft(outer: Path) -> Iterator[DraftFolder]:
    """Make a draft in a new folder, which is removed in the end with whatever is left in it.

    It lies one folder deeper than a release: who reads all of `*/data` also gets what begins with a dot.
    """
    try:
        outer.mkdir()
        with (
            _held(outer) as above,
            _new_folder(_NAME, within=above) as folder,
            _new_folder(_DATA, within=folder) as data,
        ):
            yield DraftFolder(above, folder, data)
    finally:
        shutil.rmtree(outer, ignore_errors=True)


@contextmanager
def new_file(name: str | Path, *, within: int | None = None) -> Iterator[WrittenFile]:
    """Make a file, and keep it on the disk once it is written.

    Raises:
        FileExistsError: If there is anything under this name, such as a link or a pipe.
    """
    descriptor = os.open(name, _NEW_FILE, 0o666, dir_fd=within)
    try:
        yield (file := WrittenFile(descriptor))
        file.close()
        sync(descriptor)
    finally:
        os.close(descriptor)


def sync(descriptor: int) -> None:
    """Wait until a file or folder is on the disk."""
    os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
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
