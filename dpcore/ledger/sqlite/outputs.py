"""Outputs too large for a row of SQLite: each a file beside the database, named by its hash."""

import os
import secrets
from hashlib import sha256
from pathlib import Path

LARGEST_IN_ROW = 1 << 20
"""Bytes; a larger output would slow down everything that reads past it in the file."""


class OutputFolder:
    """A folder of files that are complete from the moment they have their name."""

    def __init__(self, ledger: Path) -> None:
        self._folder = ledger.with_name(f"{ledger.name}.outputs")

    def write(self, output: bytes, *, digest: str) -> None:
        """Let the file appear, durably and whole, whatever was there under its name."""
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
        """Return the file's content, or None if there is none."""
        try:
            return (self._folder / digest).read_bytes()
        except FileNotFoundError:
            return None

    def digest(self, name: str) -> str | None:
        """Return the hash of what a file holds now, read piece by piece, or None if there is none."""
        try:
            with (self._folder / name).open("rb") as file:
                found = sha256()
                while piece := file.read(1 << 20):
                    found.update(piece)
                return found.hexdigest()
        except FileNotFoundError:
            return None


def sync_folder(folder: Path) -> None:
    """Make a new name in the folder durable."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
