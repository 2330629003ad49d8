"""Files of releases, which others may have changed: read them, walk through their folders, and name what is damaged."""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from io import BufferedRandom, BufferedReader
from pathlib import Path, PurePosixPath

from dpcore.errors import DpflowError, LedgerError, OutputError, ReleaseDamaged, UsageError
from dpcore.object_store import AnyPath, ObjectPath, below

MANIFEST = "manifest.json"

LARGEST_MANIFEST = 64 << 20
"""The largest manifest, in bytes. It lists discovered values: 200 columns with 10,000 values of 10 characters each take 44 MB."""

MOST_PARTS = 3_000_000
"""The most commas, colons and opening brackets in a manifest. Two million discovered values have one comma each. Without this limit, 60 MB of
empty objects take 1.7 GB of memory."""

LARGEST_NOTE = 64 << 10
"""The largest `latest.json` or `ledger.json`, in bytes. dpflow writes less than 1 KiB."""

MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading JSON raises that dpflow has not written."""

# A path through a link to itself, or with a name that is too long, leads nowhere. All other errors leave open what is there.
_LEADS_NOWHERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})


class NotRegularFileError(OSError):
    """The path is not a regular file, but a link, a folder, a pipe or a device."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "not a regular file", str(path))


class TooLargeError(OSError):
    """The file is larger, or has more parts, than dpflow writes such a file, so dpflow has not written it."""

    def __init__(self, path: AnyPath) -> None:
        super().__init__(errno.EFBIG, os.strerror(errno.EFBIG), str(path))


def open_regular(path: AnyPath) -> BufferedReader | BufferedRandom:
    """Open a regular file for reading: nothing that a link leads to, and no pipe, which would block.

    Raises:
        NotRegularFileError: If the path is anything but a regular file.
        OSError: If the path does not exist or cannot be opened.
    """
    if isinstance(path, ObjectPath):
        return path.open()
    try:
        mode = path.lstat().st_mode
    except ValueError:  # no file has such a name: it contains a null character, or cannot be encoded
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
    if not stat.S_ISREG(mode):  # merely opening a device can have side effects
        raise NotRegularFileError(path)
    return path.open("rb")


def read_regular(path: AnyPath, *, limit: int) -> bytes:
    """Return the content of a regular file. Others may write to the folder, so a file is not read into memory whatever its size.

    Raises:
        TooLargeError: If the file has more bytes than the limit.
        OSError: As `open_regular`.
    """
    if isinstance(path, ObjectPath) and path.size() > limit:
        raise TooLargeError(path)  # before it is copied to this machine
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > limit:
            raise TooLargeError(path)
        return file.read()


def read_manifest(path: AnyPath) -> bytes:
    """Return the content of a manifest, which is then safe to parse as JSON.

    Raises:
        TooLargeError: If the file has too many bytes, or would take too much memory when parsed.
        OSError: As `open_regular`.
    """
    content = read_regular(path, limit=LARGEST_MANIFEST)
    if parts_of(content) > MOST_PARTS:
        raise TooLargeError(path)
    return content


def parts_of(manifest: bytes) -> int:
    """Count the characters that can begin another object, list, key or value. Those inside strings count as well."""
    return sum(manifest.count(mark) for mark in (b",", b":", b"{", b"["))


def walk(folder: AnyPath) -> Iterator[tuple[AnyPath, list[str], list[str]]]:
    """Iterate over a folder and all folders below it, each with the sorted names of its folders and of its other entries.

    The caller may remove names from the list of folders, which are then not entered. Links to folders are among the folders, and never
    entered. Unlike `os.walk`, deep folders need no stack, and a folder that this user may not list raises its error.
    """
    pending = [folder]
    while pending:
        above = pending.pop()
        try:
            folders, others = above.entries() if isinstance(above, ObjectPath) else _entries(above)
        except OSError as error:
            raise_unless_gone(error)
            continue
        folders.sort()
        others.sort()
        yield above, folders, others
        pending += [above / name for name in reversed(folders) if not (above / name).is_symlink()]


def _entries(folder: Path) -> tuple[list[str], list[str]]:
    folders: list[str] = []
    others: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            (folders if _leads_to_folder(entry) else others).append(entry.name)
    return folders, others


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads nowhere, or into a folder that this user may not enter
        return False


def is_there(path: AnyPath, *, follow: bool = False) -> bool:
    """Return whether a path exists. A broken link exists unless links are followed.

    Raises:
        OSError: If this cannot be known, for example because this user may not enter a folder on the way (PermissionError).
    """
    return path.exists() if isinstance(path, ObjectPath) else _status(path, follow=follow) is not None


def is_folder(path: AnyPath) -> bool:
    """Return whether a path is a folder or a link to one. Raises the errors of `is_there`."""
    if isinstance(path, ObjectPath):
        return path.is_dir()
    status = _status(path, follow=True)
    return status is not None and stat.S_ISDIR(status.st_mode)


def _status(path: Path, *, follow: bool) -> os.stat_result | None:
    try:
        return path.stat(follow_symlinks=follow)
    except ValueError:  # no file has such a name: it contains a null character, or cannot be encoded
        return None
    except OSError as error:
        raise_unless_gone(error)
        return None


def raise_unless_gone(error: OSError) -> None:
    """Raise an error, unless it says that nothing is there."""
    if error.errno not in _LEADS_NOWHERE:
        raise error


def raise_store_error(path: AnyPath, error: Exception) -> None:
    """Raise the error of an object store that has not said what is there. It says nothing about the release.

    Return if the store has no such object, or one that cannot be what dpflow has written, and for every path of this machine.
    """
    if not isinstance(path, ObjectPath) or not isinstance(error, OSError) or isinstance(error, TooLargeError):
        return
    if error.errno is not None:  # Parquet that cannot be decoded is an OSError without a number
        raise_unless_gone(error)


def refuse_store_error(path: AnyPath, error: Exception) -> None:
    """Like `raise_store_error`, but raise an OutputError, which users can be shown."""
    with unknown():
        raise_store_error(path, error)


def unknown() -> AbstractContextManager[None]:
    """Convert an OSError to an OutputError: something may be there, although it cannot be read."""
    return reading(OutputError, otherwise="; try again when it can be read")


def damaged(path: AnyPath, problem: str, *, run: str | None = None) -> ReleaseDamaged:
    """Return the error for a release, or a note beside releases, that is not what was published. `run` has made it, if that is known."""
    listed = "" if run else ", with the run by `dpflow ledger show`"
    return ReleaseDamaged(
        f"{one_line(path)} is damaged: {problem}; restore it from a backup or copy it again, or let its run write it again, which costs nothing: "
        f"move away what is left of it, then dpflow run SPEC --resume {run or 'RUN'}{listed}"
    )


def read_published(release: AnyPath, name: str, *, limit: int, run: str | None = None) -> bytes:
    """Return the content of a small file that every release has. `run` has made the release, if that is known.

    Raises:
        ReleaseDamaged: If the file is missing, or cannot be what was published.
        OutputError: If that cannot be known, for example because a store fails.
    """
    with unknown():
        try:
            return read_regular(release / name, limit=limit)
        except (FileNotFoundError, NotADirectoryError):
            problem = f"{name} is missing" if is_folder(release) else "it is missing"
        except (NotRegularFileError, TooLargeError):
            problem = f"{name} is not what was published"
    raise damaged(release, problem, run=run)


def require_permitted(path: AnyPath) -> None:
    """Raise if this user may not read a file. Accept files that are missing or damaged.

    Raises:
        PermissionError: If this user may not read the file.
        OSError: If its store fails.
    """
    try:
        open_regular(path).close()
    except PermissionError:
        raise
    except OSError as error:
        raise_store_error(path, error)


@contextmanager
def reading(kind: type[DpflowError], *, otherwise: str) -> Iterator[None]:
    """Convert an OSError: a missing permission, or a disk or store that fails, says nothing about a release."""
    try:
        yield
    except OSError as error:
        raise kind(f"{one_line(error.filename)} cannot be read ({error.strerror}){otherwise}") from None


def readable() -> AbstractContextManager[None]:
    """Convert an OSError to a UsageError."""
    return reading(UsageError, otherwise="; check its permissions")


def access_errors() -> AbstractContextManager[None]:
    """Convert an OSError to a LedgerError."""
    advice = "run verify as a user who may read it, or check the disk, then run verify again"
    return reading(LedgerError, otherwise=f", so the releases were not verified; {advice}")


def one_line(name: object) -> str:
    r"""Escape a name or path so that it cannot control a terminal or spread over several lines.

    >>> print(one_line("data/part 1.parquet"), one_line("card\n\x1b[2J"))
    data/part 1.parquet 'card\n\x1b[2J'
    """
    text = str(name)
    return text if text.isprintable() and "\\" not in text else repr(text)


def files_in(folder: AnyPath, listed: Iterable[str]) -> Iterator[str]:
    """Yield the files and folders of a release that are neither listed nor parents of listed files. Raise if a folder cannot be listed."""
    expected = {MANIFEST, *listed}
    holders = {str(parent) for name in expected for parent in PurePosixPath(name).parents}
    for above, folders, files in walk(folder):
        within = below(folder, above)
        for name in sorted(files + [name for name in folders if (above / name).is_symlink()]):
            if (path := (within / name).as_posix()) not in expected:
                yield path
        for name in (entry for entry in folders if not (above / entry).is_symlink()):
            if (path := (within / name).as_posix()) not in holders:
                yield f"{path}/"
