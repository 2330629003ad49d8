"""Detect that the file of an open ledger was deleted, replaced, hard-linked or overwritten.

SQLite keeps using its open files whatever happens to their names. A charge would then be durable in a file that nobody can find
again. So device and inode are remembered when the ledger is opened, and compared in every transaction.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

from dpcore.errors import LedgerDamaged

MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")
"""How `mountinfo` escapes blanks in a path."""
_Inode = tuple[int, int]
_THEN = "nothing was drawn or published; stop all runs, restore the ledger, then resume"


class LedgerFiles:
    """The database file of a connection, with its write-ahead log and its shared memory file.

    No file is opened here: closing a second descriptor of these files would release SQLite's locks on them.
    """

    def __init__(self, path: Path) -> None:
        """Remember the file at `path`, which must not be a link. `pin_companions` remembers the others once they exist."""
        self._path = path
        self._opened = _inode(self._status(path))
        self._companions: dict[Path, _Inode] = {}
        self._content: tuple[int, ...] = ()
        self._log_bytes = 0
        self.note_content()

    def pin_companions(self) -> None:
        """Remember the -wal and -shm files. Both stay the same while this connection is open."""
        for suffix in ("-wal", "-shm"):
            companion = self._path.with_name(f"{self._path.name}{suffix}")
            with suppress(FileNotFoundError):
                self._companions[companion] = _inode(companion.lstat())

    def require_same(self) -> None:
        """Raise if one of these files was removed, replaced or hard-linked."""
        status = self._status(self._path)
        if _inode(status) != self._opened:
            raise LedgerDamaged(f"the ledger at {self._path} was replaced by another file while it was open; {_THEN}")
        if status.st_nlink > 1:
            raise LedgerDamaged(
                f"the ledger at {self._path} has {status.st_nlink} hard links, and spending through one is lost to the "
                "others; remove the other names, or copy the file, then try again"
            )
        for companion, opened in self._companions.items():
            if _inode(self._status(companion)) != opened:
                raise LedgerDamaged(f"{companion.name} of the ledger at {self._path} was replaced; {_THEN}")

    def content_changed(self) -> bool:
        """Return whether the database file was written to since `note_content`, by a checkpoint or by another program."""
        return _content(self._status(self._path)) != self._content

    def log_shrank(self) -> bool:
        """Return whether the log is shorter than at `note_content`. SQLite reuses its log from the start, and truncates it only on request."""
        return self._log_size() < self._log_bytes

    def may_be_checkpointed(self) -> bool:
        """Return whether the log has 1000 pages: SQLite then checkpoints it, and nothing else writes to a database file in use."""
        return self._log_size() >= 1000 * 4096

    def note_content(self) -> None:
        """Remember the current state of the database file and the length of its log."""
        self._content, self._log_bytes = _content(self._status(self._path)), self._log_size()

    def _log_size(self) -> int:
        try:
            return self._path.with_name(f"{self._path.name}-wal").lstat().st_size
        except FileNotFoundError:  # no connection is open; `require_same` detects a log that vanishes from an open one
            return 0

    def _status(self, path: Path) -> os.stat_result:
        try:
            return path.lstat()
        except FileNotFoundError:
            raise LedgerDamaged(f"{path} was deleted or moved while the ledger was open; {_THEN}") from None


def require_no_mount(path: Path) -> None:
    """Raise if the file is a mount point: its log would lie beside this name, and each other name of the file has a log of its own."""
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # not Linux
        return
    for line in mounts.splitlines():
        _, _, _, _, point, *_ = line.split(" ", 5)
        if _OCTAL.sub(lambda escape: chr(int(escape[1], 8)), point) == str(path):
            raise LedgerDamaged(
                f"the ledger at {path} is a file that is mounted by itself, and spending through one of its names is lost to the others; "
                "mount its whole folder instead, or give the file's original path"
            )


def remove_temporary_names(path: Path, *, prefix: str) -> None:
    """Remove the temporary names of a new ledger, if the process that created it was interrupted before it could."""
    with suppress(FileNotFoundError):
        ledger = path.stat()
        if ledger.st_nlink > 1:
            for temporary in path.parent.glob(f"{prefix}*"):
                with suppress(FileNotFoundError):
                    if _inode(temporary.lstat()) == _inode(ledger):
                        temporary.unlink()


def _inode(status: os.stat_result) -> _Inode:
    return status.st_dev, status.st_ino


def _content(status: os.stat_result) -> tuple[int, ...]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns
