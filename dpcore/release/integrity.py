"""Check that a release is still what was published: every file in its manifest, byte for byte, and no other file."""

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedRandom, BufferedReader
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from dpcore.errors import LedgerError, OutputError, ReleaseDamaged
from dpcore.object_store import AnyPath, ObjectPath, below
from dpcore.release.signing import SIGNATURE, SIGNATURE_BYTES, is_signature
from dpcore.release.sums import SUMS, encode_sums

MANIFEST = "manifest.json"

LARGEST_MANIFEST = 64 << 20
"""The largest manifest, in bytes. It lists discovered values: 200 columns with 10,000 values of 10 characters each take 44 MB."""

MOST_PARTS = 3_000_000
"""The most commas, colons and opening brackets in a manifest. Two million discovered values have one comma each. Without this limit, 60 MB of
empty objects take 1.7 GB of memory."""

LARGEST_NOTE = 64 << 10
"""The largest `latest.json` or `ledger.json`, in bytes. dpflow writes less than 1 KiB."""

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
    found = _status(path, follow=True)
    return found is not None and stat.S_ISDIR(found.st_mode)


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
    try:
        raise_store_error(path, error)
    except OSError as failure:
        raise unreadable(path, failure) from None


def unreadable(path: AnyPath, error: OSError) -> OutputError:
    """Return the error for a path that cannot be read, although something may be there."""
    return OutputError(f"{one_line(path)} cannot be read: {error.strerror}; try again when it can be read")


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
    try:
        return read_regular(release / name, limit=limit)
    except (FileNotFoundError, NotADirectoryError):
        problem = f"{name} is missing" if is_folder(release) else "it is missing"
    except (NotRegularFileError, TooLargeError):
        problem = f"{name} is not what was published"
    except OSError as error:
        raise unreadable(release / name, error) from None
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
def access_errors() -> Iterator[None]:
    """Convert an OSError to a LedgerError: a missing permission, or a disk that fails, says nothing about the release."""
    try:
        yield
    except PermissionError as error:
        raise LedgerError(
            f"{one_line(error.filename)} is not readable by this user, so the releases were not verified; run verify as a user who "
            "may read them, or grant this user read access"
        ) from None
    except OSError as error:
        raise LedgerError(
            f"{one_line(error.filename)} cannot be read ({error.strerror}), so the releases were not verified; check the disk, then "
            "run verify again"
        ) from None


def one_line(name: object) -> str:
    r"""Escape a name or path so that it cannot control a terminal or spread over several lines.

    >>> print(one_line("data/part 1.parquet"), one_line("card\n\x1b[2J"))
    data/part 1.parquet 'card\n\x1b[2J'
    """
    text = str(name)
    return text if text.isprintable() and "\\" not in text else repr(text)


class Expected(NamedTuple):
    """What is known of a published file: its SHA-256, and its size unless only the hash is known."""

    sha256: str
    size: int | None = None


def damage(folder: AnyPath, manifest: Mapping[str, Any], *, digest: str) -> str | None:
    """Describe the first file of a release that differs from its manifest, or return None.

    Args:
        folder: The folder of the release.
        manifest: The parsed manifest. The ledger, not this function, decides whether it is the right manifest.
        digest: The SHA-256 of the manifest.

    Raises:
        PermissionError: If this user may not read a file, or may not list a folder, which could then hold other files.
        OSError: If the store fails.
    """
    try:
        listed = listed_files(manifest)
        signed = signer_of(manifest)
        sums = sums_of(listed, digest=digest)
    except (KeyError, TypeError, ValueError):
        return f"{MANIFEST} lists a file without its size and hash, or outside the release"
    if has_sums(manifest):
        listed[SUMS] = Expected(hashlib.sha256(sums).hexdigest(), len(sums))
    for name, changed in changes(folder, listed, beside={MANIFEST, SIGNATURE} if signed else {MANIFEST}):
        return f"{one_line(name)} {changed}"
    problem = signature_problem(folder, sums, public=signed) if signed else None
    return f"{SIGNATURE} {problem}" if problem else None


def listed_files(manifest: Mapping[str, Any]) -> dict[str, Expected]:
    """Return the files that a manifest lists: all but itself and what is made from it.

    Raises:
        KeyError, TypeError, ValueError: If an entry is malformed, or names a file outside the release.
    """
    files = manifest.get("files", [])
    if not isinstance(files, list):
        raise TypeError
    return {str(_inside(entry["path"])): Expected(str(entry["sha256"]), _size(entry["bytes"])) for entry in files}


def has_sums(manifest: Mapping[str, Any]) -> bool:
    """Return whether a release has `SHA256SUMS`, as all do since the second format of manifests."""
    number = manifest.get("format")
    return isinstance(number, int) and number >= 2


def signer_of(manifest: Mapping[str, Any]) -> str | None:
    """Return the public key of a signed release, or None.

    Raises:
        KeyError, TypeError: If the entry is malformed.
    """
    signed = manifest.get("signed_by")
    return None if signed is None else str(signed["public_key"])


def sums_of(listed: Mapping[str, Expected], *, digest: str) -> bytes:
    """Return the content of `SHA256SUMS` for the files that a manifest lists, and the manifest's own SHA-256."""
    return encode_sums({MANIFEST: digest} | {name: each.sha256 for name, each in listed.items()})


def changes(folder: AnyPath, listed: Mapping[str, Expected], *, beside: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each file that is missing, changed or added, with what is wrong with it.

    Args:
        folder: The folder of the release.
        listed: The files to compare, by their paths in the folder.
        beside: Other files that belong to the release and are not compared.
    """
    for name, expected in listed.items():
        if problem := _problem(folder / name, expected):
            yield name, problem
    for name in files_in(folder, [*listed, *beside]):
        yield name, "is not listed in its manifest"


def signature_problem(folder: AnyPath, sums: bytes, *, public: str) -> str | None:
    """Describe what is wrong with the signature of a release, or return None."""
    try:
        written = read_regular(folder / SIGNATURE, limit=SIGNATURE_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return "is missing"
    except PermissionError:
        raise
    except OSError as error:
        raise_store_error(folder / SIGNATURE, error)
        return "is not a signature"
    return None if is_signature(written, sums, public=public) else f"is not a signature with the key {one_line(public)}"


def _inside(name: object) -> PurePosixPath:
    """Return a file name as a path below the release's folder, or raise."""
    path = PurePosixPath(str(name))
    own = {PurePosixPath(each) for each in (MANIFEST, SUMS, SIGNATURE)}
    if path.is_absolute() or ".." in path.parts or not path.parts or path in own:
        raise ValueError
    return path


def _size(value: object) -> int:
    if type(value) is not int:  # JSON also has true, 1.0 and numbers that become infinite
        raise TypeError
    return value


def _problem(path: AnyPath, expected: Expected) -> str | None:
    try:
        with open_regular(path) as file:
            found = os.fstat(file.fileno()).st_size
            if expected.size is not None and found != expected.size:
                return f"has {found:,} bytes, but was published with {expected.size:,}"
            same = hashlib.file_digest(file, "sha256").hexdigest() == expected.sha256
    except (FileNotFoundError, NotADirectoryError):
        return "is missing"
    except NotRegularFileError:
        return "is no longer a regular file"
    except PermissionError:  # says nothing about the file's content
        raise
    except OSError as error:
        raise_store_error(path, error)
        return "cannot be read"
    return None if same else "is not what was published"


def files_in(folder: AnyPath, listed: Iterable[str]) -> Iterator[str]:
    """Yield the files and folders of a release that are neither listed nor parents of listed files. Raise if a folder cannot be listed."""
    known = {MANIFEST, *listed}
    holders = {str(parent) for name in known for parent in PurePosixPath(name).parents}
    for above, folders, files in walk(folder):
        within = below(folder, above)
        for name in sorted(files + [name for name in folders if (above / name).is_symlink()]):
            if (each := (within / name).as_posix()) not in known:
                yield each
        for name in (each for each in folders if not (above / each).is_symlink()):
            if (each := (within / name).as_posix()) not in holders:
                yield f"{each}/"
