"""A file of raw bytes, on this machine or at any address that fsspec reads.

Credentials are never part of an address: each file system finds them in the environment, as its own documentation says.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
from fsspec.registry import get_filesystem_class

from dpcore.errors import SourceError
from dpcore.tables.sources.attempt import attempt

LOCAL = ("file://", "local://")
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


@dataclass(frozen=True)
class StoredFile:
    """One file by its address: an absolute path, or a URL such as s3://bucket/visits.parquet."""

    address: str

    @property
    def file_name(self) -> str:
        """The last part of its address: all that messages say of it, since folders may be named after people."""
        return self.address.partition("?")[0].rsplit("/", 1)[-1] if self.is_remote else Path(self.address).name

    @property
    def is_remote(self) -> bool:
        """Whether it is reached through fsspec."""
        return "://" in self.address

    def open(self) -> pa.NativeFile:
        """Open it for reading from any place in it."""
        if not self.is_remote:
            return pa.OSFile(self.address)
        system, path = file_system(self.address)
        return pa.PythonFile(system.open(path, "rb"), mode="r")

    def check(self) -> None:
        """Tell a file that cannot be opened, or has nothing in it, from a damaged one."""

        def first_byte() -> bytes:
            if not self.is_remote:  # Arrow opens folders as well
                with Path(self.address).open("rb") as file:
                    return file.read(1)
            with self.open() as stream:
                return bytes(stream.read(1))

        if not attempt(first_byte, otherwise=self._closed):
            raise SourceError(f"{self.file_name!r} is empty; a table without rows still has its header")

    @property
    def _closed(self) -> str:
        return f"{self.file_name!r} cannot be opened; check that it exists and who may read it"


def local_path(path: str, *, base: Path) -> Path | None:
    """Return where a spec's path leads on this machine; None for an address elsewhere."""
    if path.startswith(LOCAL):
        return Path(path.partition("://")[2])
    return None if "://" in path else base / path


def file_system(address: str) -> tuple[Any, str]:
    """Return the file system of an address and the path in it.

    Raises:
        SourceError: If nothing here reads such addresses, with the package to install.
    """
    scheme = address.partition("://")[0].lower()
    package = PACKAGES.get(scheme)
    remedy = f"install its file system: `pip install {package}`" if package else "install the file system that it needs"
    attempt(lambda: get_filesystem_class(scheme), otherwise=f"{scheme}:// addresses cannot be read here; {remedy}")
    found: tuple[Any, str] = attempt(
        lambda: fsspec.core.url_to_fs(address),
        otherwise=f"{scheme}:// addresses cannot be read as the environment is; set the credentials that {package or 'its file system'} reads",
    )
    return found
