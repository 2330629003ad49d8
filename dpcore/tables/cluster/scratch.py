"""The folder where workers on this machine put what their memory does not hold: the steward's, and gone when the run has ended.

A run that is killed outright can't clear up. What it leaves is cleared up by the next one, which knows it by the lock that nobody holds.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpcore.errors import UsageError
from dpcore.places import private_folder

PREFIX = "cluster-"
LOCK = "lock"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a new folder in the steward's private folder that nobody else can look into, and remove it with all that is in it.

    Raises:
        UsageError: If none can be made.
    """
    folder = _new_folder()
    lock = _locked(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _new_folder() -> Path:
    place = private_folder().resolve()
    made = None
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        _sweep(place)
        made = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))  # closed to everybody else
    if made is None:
        raise UsageError(
            "the steward's private folder cannot be written to, and workers need room there; name another one in DPFLOW_PRIVATE"
        )
    return made


def _sweep(place: Path) -> None:
    """Remove the folders of runs that are no more."""
    for folder in place.glob(f"{PREFIX}*"):
        # One without a lock is being made at this moment, and is left to whoever comes next.
        lock = _locked(folder, create=False)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _locked(folder: Path, *, create: bool = True) -> int | None:
    """Hold the folder until the descriptor is closed, by whatever ends this process; None if another process does."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock
