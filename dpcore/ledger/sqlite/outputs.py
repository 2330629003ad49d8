"""Store outputs that are too large for a row of SQLite, each in a file beside the database, named by its hash."""

import os
import secrets
from hashlib import file_digest
from pathlib import Path

LARGEST_IN_ROW = 1 << 20
"""Bytes. A larger output in a row would slow down every scan of the table."""


class OutputFolder:
    """A folder of files that are written atomically."""

    def __init__(self, ledger: Path) -> None:
        self._folder = ledger.with_name(f"{ledger.name}.outputs")

    def write(self, output: bytes, *, digest: str) -> None:
        """Write the file atomically and durably, replacing any file of that name."""
        path = self._folder / digest
        self._folder.mkdir(mode=0o700, exist_ok=True)
        partial = self._folder / f".{digest}-{secrets.token_hex(4)}"
        try:
            with partial.open("xb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(output)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        sync_folder(self._folder)
        sync_folder(self._folder.parent)

    def read(self, digest: str) -> bytes | None:
        """Return the file's content, or None if it does not exist."""
        try:
            return (self._folder / digest).read_bytes()
        except FileNotFoundError:
            return None

    def digest(self, name: str) -> str | None:
        """Return the hash of a file's current content, read in pieces, or None if it does not exist."""
        try:
            with (self._folder / name).open("rb") as file:
                return file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            return None


def sync_folder(folder: Path) -> None:
    """Make a new directory entry durable."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
