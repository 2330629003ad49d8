"""Detect that the file of an open ledger was deleted, replaced, hard-linked or overwritten.

SQLite keeps using its open files whatever happens to their names. A charge would then be durable in a file that nobody can find
again. So device and inode are remembered when the ledger is opened, and compared in every transaction.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

from dpcore.errors import LedgerDamaged

LONG_LOG = 1000 * 4096
"""Bytes. SQLite checkpoints a log of 1000 pages or more, and nothing else writes to a database file in use."""
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
        self._opened = _inode(self._found(path))
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
        found = self._found(self._path)
        if _inode(found) != self._opened:
            raise LedgerDamaged(f"the ledger at {self._path} was replaced by another file while it was open; {_THEN}")
        if found.st_nlink > 1:
            raise LedgerDamaged(
                f"the ledger at {self._path} has {found.st_nlink} hard links, and spending through one is lost to the "
                "others; remove the other names, or copy the file, then try again"
            )
        for companion, opened in self._companions.items():
            if _inode(self._found(companion)) != opened:
                raise LedgerDamaged(f"{companion.name} of the ledger at {self._path} was replaced; {_THEN}")

    def content_changed(self) -> bool:
        """Return whether the database file was written to since `note_content`, by a checkpoint or by another program."""
        return _content(self._found(self._path)) != self._content

    def log_shrank(self) -> bool:
        """Return whether the log is shorter than at `note_content`. SQLite reuses its log from the start, and truncates it only on request."""
        return self._log_size() < self._log_bytes

    def may_be_checkpointed(self) -> bool:
        """Return whether the log is long enough for SQLite to checkpoint it automatically."""
        return self._log_size() >= LONG_LOG

    def note_content(self) -> None:
        """Remember the current state of the database file and the length of its log."""
        self._content, self._log_bytes = _content(self._found(self._path)), self._log_size()

    def _log_size(self) -> int:
        try:
            return self._path.with_name(f"{self._path.name}-wal").lstat().st_size
        except FileNotFoundError:  # no connection is open; `require_same` detects a log that vanishes from an open one
            return 0

    def _found(self, path: Path) -> os.stat_result:
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
        if _OCTAL.sub(lambda found: chr(int(found[1], 8)), point) == str(path):
            raise LedgerDamaged(
                f"the ledger at {path} is a file that is mounted by itself, and spending through one of its names is lost to the others; "
                "mount its whole folder instead, or give the file's original path"
            )


def remove_temporary_names(path: Path, *, prefix: str) -> None:
    """Remove the temporary names of a new ledger, if the process that created it was interrupted before it could."""
    with suppress(FileNotFoundError):
        made = path.stat()
        if made.st_nlink > 1:
            for other in path.parent.glob(f"{prefix}*"):
                with suppress(FileNotFoundError):
                    if _inode(other.lstat()) == _inode(made):
                        other.unlink()


def _inode(found: os.stat_result) -> _Inode:
    return found.st_dev, found.st_ino


def _content(found: os.stat_result) -> tuple[int, ...]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns
