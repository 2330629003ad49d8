"""A Prefect home with a database, made once and copied: creating the database takes most of a server's start time."""

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from flows.server.temporary import temporary_server

OF_ITS_MAKER = shutil.ignore_patterns("server.*")  # log and lock


def used_home(factory: pytest.TempPathFactory) -> Path:
    """Return a home that a real server has used once. The first test process that asks makes it."""
    place = factory.getbasetemp()
    common = place.parent if "PYTEST_XDIST_WORKER" in os.environ else place
    made = common / "prefect-home"
    with (common / "prefect-home.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _use_once(common / "prefect-home.new").rename(made)
    return made


def copy_home(used: Path, home: Path) -> None:
    """Copy a used home, so that a server finds what its first start would have created."""
    shutil.copytree(used, home, ignore=OF_ITS_MAKER, dirs_exist_ok=True)


def _use_once(home: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        for variable in [name for name in os.environ if name.startswith("PREFECT_")]:
            patch.delenv(variable)
        patch.setenv("PREFECT_HOME", str(home))
        with temporary_server():
            return home
