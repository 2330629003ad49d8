"""Paths in an object store, such as `s3://bucket/releases`, with as much of pathlib's interface as releases need.

An object appears complete or not at all, and whoever reads it afterwards gets all of it. There are no folders, no links and no renames: a folder
exists as long as an object below it does. Credentials come from the environment, as the store's own package documents; no address contains any.

Every error is an OSError with the address, and with a constant text instead of the store's, which can contain anything.
"""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedRandom
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec

PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "adlfs"),
}
"""The object stores, by the schemes of their addresses, and the packages that reach them. Elsewhere, half a file could be seen."""

_CHUNK = 1 << 22
_SEPARATOR = "://"
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.@_-]*(/[A-Za-z0-9][A-Za-z0-9._=-]*)*/?")
_NO_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "NoAuthTokenError", "DefaultCredentialsError"}
_TAKEN = {"FileExistsError", "PreconditionFailed"}


@dataclass(frozen=True, order=True)
class ObjectPath:
    """The address of an object, or of a folder of objects.

    >>> release = ObjectPath("s3://bucket/releases/visits") / "20261115T0210Z-7d9117748bbf"
    >>> release.parent.name, str(release / "manifest.json")
    ('visits', 's3://bucket/releases/visits/20261115T0210Z-7d9117748bbf/manifest.json')
    """

    address: str

    def __str__(self) -> str:
        return self.address

    def __truediv__(self, name: str | PurePosixPath) -> "ObjectPath":
        return ObjectPath(f"{self.address.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.address.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> "ObjectPath":
        """The folder that it lies in."""
        return ObjectPath(self.address.rstrip("/").rpartition("/")[0])

    def is_symlink(self) -> bool:
        """Return False. An object store has no links."""
        return False

    def exists(self) -> bool:
        """Return whether there is an object, or any object below it."""
        with self._errors():
            return bool(self._store.exists(self._key))

    def is_dir(self) -> bool:
        """Return whether there is any object below it."""
        with self._errors():
            return bool(self._store.isdir(self._key))

    def entries(self) -> tuple[list[str], list[str]]:
        """Return the names of the folders and of the objects in a folder.

        Raises:
            FileNotFoundError: If there is no object below it.
        """
        folders: list[str] = []
        objects: list[str] = []
        with self._errors():
            key = self._key.strip("/")
            for entry in self._store.ls(self._key, detail=True):
                path = str(entry["name"]).strip("/")
                if path != key:  # some stores have empty objects in the place of folders
                    (folders if entry["type"] == "directory" else objects).append(path.rpartition("/")[2])
        return folders, objects

    def iterdir(self) -> Iterator["ObjectPath"]:
        """Iterate over what is in a folder. Raises the errors of `entries`."""
        folders, objects = self.entries()
        return iter([self / name for name in sorted({*folders, *objects})])

    def size(self) -> int:
        """Return the number of bytes of an object."""
        with self._errors():
            status = self._store.info(self._key)
        if status["type"] != "file":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.address)
        return int(status["size"])

    def open(self) -> BufferedRandom:
        """Copy an object to a temporary file, which is removed when it is closed, and open that."""
        try:
            file: Any = tempfile.TemporaryFile()  # noqa: SIM115  the caller closes it
        except OSError:  # it may be a FileNotFoundError, but the object may well be there
            full = "no temporary file can be made on this machine; check its space and TMPDIR"
            raise OSError(errno.EIO, full, self.address) from None
        try:
            with self._errors(), self._store.open(self._key, "rb") as stored:
                shutil.copyfileobj(stored, file, _CHUNK)
            file.seek(0)
        except BaseException:
            file.close()
            raise
        opened: BufferedRandom = file
        return opened

    def write(self, content: bytes) -> None:
        """Write an object. It replaces an earlier one in a single step."""
        with self._errors():
            self._store.pipe_file(self._key, content)

    def create(self, content: bytes) -> bool:
        """Write an object, unless there is one already. Return whether it was written."""
        try:
            with self._errors():
                self._store.pipe_file(self._key, content, mode="create")
        except FileExistsError:
            return False
        return True

    def upload(self, file: Path) -> None:
        """Write an object from a local file, however large."""
        with self._errors():
            self._store.put_file(str(file), self._key)

    def unlink(self) -> None:
        """Remove an object, if it is there."""
        with self._errors():
            if self._store.exists(self._key):
                self._store.rm_file(self._key)

    @property
    def _key(self) -> str:
        key: str = self._store._strip_protocol(self.address)  # noqa: SLF001  fsspec has no public name for it
        return key

    @property
    def _store(self) -> Any:
        """The file system. Lists are never cached, because other processes write to the same folder."""
        return fsspec.filesystem(self.address.partition(_SEPARATOR)[0], use_listings_cache=False)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.address) from None
        except ImportError:
            package = PACKAGES.get(self.address.partition(_SEPARATOR)[0], "its file system")
            missing = f"a package is missing; install it with: pip install {package}"
            raise OSError(errno.ENOPKG, missing, self.address) from None
        except Exception as error:  # noqa: BLE001  each store has errors of its own
            raise self._converted(error) from None

    def _converted(self, error: Exception) -> OSError:
        kind = type(error).__name__
        if kind in _TAKEN or getattr(error, "errno", None) == errno.EEXIST or "PreconditionFailed" in str(error):
            return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.address)
        if kind in _NO_CREDENTIALS:
            missing = "there are no credentials for the store; set them in the environment"
            return PermissionError(errno.EACCES, missing, self.address)
        if isinstance(error, PermissionError):
            denied = "the store denied access; check the credentials in the environment, and the bucket's policy"
            return PermissionError(errno.EACCES, denied, self.address)
        failed = f"the store failed or does not answer ({kind}); check the network and the store's settings"
        return OSError(errno.EIO, failed, self.address)


AnyPath = Path | ObjectPath


def any_path(text: str | AnyPath) -> AnyPath:
    """Return the path that a text names: an address with `://` is in an object store, everything else is on this machine."""
    if isinstance(text, ObjectPath):
        return text
    return ObjectPath(str(text)) if _SEPARATOR in str(text) else Path(text)


def output_address(text: str) -> str:
    """Return the text of a spec's `output.path`, checked.

    Raises:
        ValueError: If it is an address, but not of an object store, or could contain a password.
    """
    scheme, separator, rest = text.partition(_SEPARATOR)
    if not separator:
        return text
    if scheme in {"file", "local"}:
        raise ValueError(f"must be a folder without {scheme}://, or an object store such as s3://bucket/releases")
    if scheme not in PACKAGES:
        raise ValueError(
            "must be a folder or an object store, such as s3://bucket/releases, gs:// or az://; elsewhere a reader could see half a file"
        )
    # the text may contain a secret, so the message does not repeat it
    if not _PLAIN.fullmatch(rest) or ("@" in rest and scheme not in {"abfs", "abfss"}):
        raise ValueError(
            "must be an address of letters, digits and . _ - =, such as s3://bucket/releases; credentials belong into the environment"
        )
    return text.rstrip("/")


def below(folder: AnyPath, path: AnyPath) -> PurePosixPath:
    """Return the path of something below a folder, as seen from that folder.

    >>> print(below(ObjectPath("s3://bucket/visits"), ObjectPath("s3://bucket/visits/data/part.parquet")))
    data/part.parquet
    """
    return PurePosixPath(str(path)).relative_to(str(folder))


def is_below(folder: AnyPath, path: AnyPath) -> bool:
    """Return whether a path is a folder, or lies below it."""
    return PurePosixPath(str(path)).is_relative_to(str(folder))


def without_links(path: AnyPath) -> AnyPath:
    """Return a path with the links in its folder resolved. A link in the path's own place is not followed."""
    if isinstance(path, ObjectPath):
        return path
    return Path(os.path.realpath(path.parent), path.name)  # unlike `resolve`, `realpath` accepts a link to itself
