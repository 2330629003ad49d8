"""The data's version, and the key that keeps it from telling more than equality."""

import hmac
import os
import secrets
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from dpcore.errors import LedgerError
from dpcore.ingest.source import Source, check_columns

KEY_BYTES = 32
KEY_NAME = "fingerprint.key"


def data_version(source: Source, *, columns: Sequence[str], key: bytes) -> str:
    """Return a text that is the same if, and only if, the parts' contents and their order are.

    It is an HMAC-SHA256 over a keyed digest of each part: of all bytes of a file, and of the named columns of a query's result or
    of a table in memory. The ledger keeps it, so that noise is never drawn again for
    the same data nor taken over to changed data. Without the key nobody can test a guess of the contents against it, as
    one could against a plain hash.

    Raises:
        SourceError: If a part cannot be read, or lacks a column.
    """
    check_columns(source, columns=columns)
    return joined_version((part.version(columns, key=key) for part in source.parts), key=key)


def joined_version(versions: Iterable[bytes], *, key: bytes) -> str:
    """Return the version of data of whose parts, in their order, these are the versions."""
    joined = hmac.new(key, digestmod="sha256")
    for version in versions:
        joined.update(version)
    return joined.hexdigest()


def fingerprint_key(folder: Path) -> bytes:
    """Return the key kept in the folder, making folder and key on first use.

    The file appears whole or not at all, and when two processes make it at once both return the same key. Losing it
    makes all data look changed; nothing else depends on it. In particular no noise is ever drawn from it.

    Raises:
        LedgerError: If the file cannot be made or read, is no key, or is open to other users.
    """
    path = folder / KEY_NAME
    try:
        if not path.exists():
            _create(path)
        key, mode = path.read_bytes(), path.stat().st_mode
    except OSError:
        raise LedgerError(
            f"{KEY_NAME} cannot be kept in {str(folder)!r}; check that the folder is yours to write"
        ) from None
    if len(key) != KEY_BYTES:
        raise LedgerError(
            f"{KEY_NAME} in {str(folder)!r} is damaged; restore it, or delete it to count all data as new"
        )
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise LedgerError(f"{KEY_NAME} in {str(folder)!r} is open to other users; run `chmod 600` on it")
    return key


def _create(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.urandom(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        # a link, unlike a rename, never replaces a key that another process made meanwhile
        path.hardlink_to(draft)
    except FileExistsError:
        return
    finally:
        draft.unlink(missing_ok=True)
