"""Create the scratch folder where workers on this machine spill data. It is private to the steward and removed when the run ends.

A run that is killed cannot clean up. The next run removes folders whose lock nobody holds.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpcore.errors import UsageError
from dpcore.places import made_private_folder

PREFIX = "cluster-"
LOCK = "lock"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a new folder in the steward's private folder that other users cannot read, and remove it afterwards.

    Raises:
        UsageError: If the folder cannot be created.
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
    made = None
    with suppress(OSError):
        place = made_private_folder().resolve()
        _sweep(place)
        made = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))  # mode 0700
    if made is None:
        raise UsageError(
            "the steward's private folder is not writable, and workers need scratch space there; name another folder in DPFLOW_PRIVATE"
        )
    return made


def _sweep(place: Path) -> None:
    """Remove the folders of runs that have ended."""
    for folder in place.glob(f"{PREFIX}*"):
        # A folder without a lock file is just being created, and is left for a later run to check.
        lock = _locked(folder, create=False)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _locked(folder: Path, *, create: bool = True) -> int | None:
    """Lock the folder until the returned descriptor is closed or the process ends. Return None if another process holds the lock."""
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
