"""Open a file on this machine or at any address that fsspec reads.

Credentials are never part of an address: each file system finds them in the environment, as its own documentation says.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import fsspec
import pyarrow as pa
from fsspec.registry import get_filesystem_class

from dpcore.errors import SourceBroken, SourceError
from dpcore.tables.sources.attempt import attempt

WEB = ("http://", "https://")
PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss", "adl"), "adlfs"),
    **dict.fromkeys(("http", "https"), "aiohttp"),
    **dict.fromkeys(("sftp", "ssh"), "paramiko"),
    "smb": "smbprotocol",
    "hf": "huggingface_hub",
    "oci": "ocifs",
}

T = TypeVar("T")


@dataclass(frozen=True)
class StoredFile:
    """One file.

    Attributes:
        path: An absolute path on this machine; for a remote file, the path as its file system lists it. It is never made from a URL, since
            many file systems do not find the same path in the URL that they write for it.
        source: The address in the spec, which determines the file system of a remote file and its host; None for a file on this machine.
    """

    path: str
    source: str | None = None

    @property
    def file_name(self) -> str:
        """The last part of the path. Messages show nothing else, since folders may be named after people."""
        return self._places[-1]

    @property
    def folders(self) -> list[str]:
        """The names of the folders in the path, as written."""
        return self._places[:-1]

    @property
    def is_remote(self) -> bool:
        """Whether the file is read through fsspec."""
        return self.source is not None

    def open(self) -> pa.NativeFile:
        """Open the file for random access.

        Raises:
            SourceBroken: If opening fails for a file in a partitioned folder: a value in a folder name may be the cause.
            SourceError: If opening fails for any other file.
        """
        return self._tried(self._opened)

    def check(self) -> None:
        """Raise if the file cannot be opened or is empty, so that it is not reported as damaged."""

        def first_byte() -> bytes:
            if not self.is_remote:  # Arrow would open a folder without an error
                with Path(self.path).open("rb") as file:
                    return file.read(1)
            with self._opened() as stream:
                return bytes(stream.read(1))

        if not self._tried(first_byte):
            raise SourceError(f"{self.file_name!r} is empty; a table without rows still needs its header")

    def _opened(self) -> pa.NativeFile:
        if self.source is None:
            return pa.OSFile(os.fsencode(self.path))  # a file name may be any bytes
        system, _ = file_system(self.source, failure=self._failure)
        if system._strip_protocol(self.path) != self.path:  # noqa: SLF001  `open` calls it too
            raise ValueError("its file system would open another file")
        return pa.PythonFile(system.open(self.path, "rb"), mode="r")

    def _tried(self, step: Callable[[], T]) -> T:
        closed = f"{self.file_name!r} cannot be opened; check that it exists and who may read it"
        return attempt(step, otherwise=closed, failure=self._failure)

    @property
    def _failure(self) -> type[SourceError]:
        return SourceBroken if any("=" in folder for folder in self.folders) else SourceError

    @property
    def _places(self) -> list[str]:
        # outside the web, a ? is part of the name
        named = self.path.partition("?")[0] if self.path.lower().startswith(WEB) else self.path
        return named.split("/")


def file_system(address: str, *, failure: type[SourceError] = SourceError) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it.

    Raises:
        SourceError: As `failure`, if no installed package reads such addresses. The message names the package to install.
    """
    scheme, separator, rest = address.partition("://")
    scheme = scheme.lower()  # capitals mean the same, but file systems do not know them
    address = f"{scheme}{separator}{rest}"
    package = PACKAGES.get(scheme)
    remedy = f"install its file system: `pip install {package}`" if package else "install the file system that it needs"
    kind = attempt(
        lambda: get_filesystem_class(scheme),
        otherwise=f"{scheme}:// addresses cannot be read here; {remedy}",
        failure=failure,
    )

    def found() -> tuple[Any, str]:
        # fsspec.core.url_to_fs would read :: in a folder name as a chain of file systems
        system = fsspec.filesystem(scheme, **kind._get_kwargs_from_urls(address))  # noqa: SLF001  what url_to_fs calls too
        return system, system._strip_protocol(address)  # noqa: SLF001

    return attempt(
        found,
        otherwise=f"{scheme}:// addresses cannot be read here; set the credentials that {package or 'its file system'} expects",
        failure=failure,
    )
