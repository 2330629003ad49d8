"""Create fresh, durable ledgers on both stores, on a real disk, for benchmarks and fault tests."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psycopg

from dpcore.places import PRIVATE_VARIABLE, set_variables
from tests.postgres import PostgresServer, postgres_folder

STORES = ("sqlite", "postgresql")


@dataclass(frozen=True)
class Place:
    """The URL of one ledger, and a folder for other files about it."""

    url: str
    folder: Path


class Places(Protocol):
    """A store in which ledgers can be created one after another."""

    store: str
    root: Path

    def new(self) -> Place:
        """Return another place without a ledger."""

    def fresh(self) -> Place:
        """Return the same place each time, emptied."""


class SqlitePlaces:
    """SQLite files in a folder."""

    store = "sqlite"

    def __init__(self, root: Path) -> None:
        self.root = root

    def new(self) -> Place:
        """Return another place without a ledger."""
        return _file_in(Path(tempfile.mkdtemp(dir=self.root)))

    def fresh(self) -> Place:
        """Return the same place each time, emptied."""
        return _file_in(_emptied(self.root / "place"))


class PostgresPlaces:
    """Databases of a dedicated PostgreSQL server. Dropping its schema deletes a ledger."""

    store = "postgresql"

    def __init__(self, server: PostgresServer, root: Path) -> None:
        self.server = server
        self.root = root
        self._url = server.new_database()

    def new(self) -> Place:
        """Return another place without a ledger."""
        return Place(self.server.new_database(), Path(tempfile.mkdtemp(dir=self.root)))

    def fresh(self) -> Place:
        """Return the same place each time, emptied."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("SET client_min_messages TO warning")  # silences the notice about each dropped object
            connection.execute("DROP SCHEMA IF EXISTS dpflow CASCADE")
        return Place(self._url, _emptied(self.root / "place"))


@contextmanager
def places(store: str, *, folder: Path | None) -> Iterator[Places]:
    """Set up a store in a new folder below `folder`, by default that of temporary files, and remove it at the end."""
    with tempfile.TemporaryDirectory(prefix="dpflow-ledger-", dir=folder) as root:
        if store == "sqlite":
            yield SqlitePlaces(Path(root))
        else:
            # If root starts the server, it runs as nobody, who must be able to enter its folder: that has wider permissions.
            private = {PRIVATE_VARIABLE: str(Path(root, "private"))}
            with set_variables(private), PostgresServer(_server_folder(folder), durable=True) as server:
                yield PostgresPlaces(server, Path(root))


def file_system(folder: Path) -> str:
    """Return the type of the file system that a folder is on, such as ext4. A tmpfs is not a disk."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    above = [(len(point), kind) for _, point, kind, *_ in mounts if folder.resolve().is_relative_to(point)]
    return max(above, default=(0, "unknown"))[1]


def _server_folder(folder: Path | None) -> Path:
    return postgres_folder() if folder is None else Path(tempfile.mkdtemp(prefix="dpflow-postgres-", dir=folder))


def _file_in(folder: Path) -> Place:
    return Place(f"sqlite:///{folder / 'ledger.sqlite'}", folder)


def _emptied(folder: Path) -> Path:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(mode=0o700)
    return folder
