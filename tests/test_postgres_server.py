"""The server that the tests of the PostgreSQL store stand on: it starts, keeps its data and never outlives us."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, make_url

from tests.postgres import PostgresServer, postgres_folder

ROOT = Path(__file__).parents[1]
VICTIM = """
import sys
from pathlib import Path
from tests.postgres import PostgresServer

server = PostgresServer(Path(sys.argv[1]), durable=False)
print(server.url("postgres"), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(postgres_folder(), durable=True) as server:
        yield server


def test_every_new_database_is_another_one_for_psycopg_and_for_sqlalchemy(server: PostgresServer) -> None:
    one, other = server.new_database(), server.new_database()
    with psycopg.connect(one) as connection:
        connection.execute("CREATE TABLE note (words text)")
    engine = create_engine(make_url(other).set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM pg_class WHERE relname = 'note'").scalar() == 0
    engine.dispose()


def test_a_database_is_copied_with_what_is_in_it(server: PostgresServer) -> None:
    prepared = server.new_database()
    with psycopg.connect(prepared) as connection:
        connection.execute("CREATE TABLE note AS SELECT 'kept' AS words")
    with psycopg.connect(server.new_database(template=prepared)) as connection:
        assert connection.execute("SELECT words FROM note").fetchone() == ("kept",)


def test_a_role_other_than_the_superuser_needs_its_password(server: PostgresServer) -> None:
    with server.admin() as connection:
        connection.execute("CREATE ROLE clerk LOGIN PASSWORD 'a/b:c@d?'")
    with psycopg.connect(server.url("postgres", user="clerk", password="a/b:c@d?")) as connection:  # noqa: S106  a test's
        assert connection.execute("SELECT current_user").fetchone() == ("clerk",)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(server.url("postgres", user="clerk", password="wrong"))  # noqa: S106  a test's


@pytest.mark.parametrize("immediate", [False, True])
def test_what_was_committed_is_there_after_a_stop_and_a_start(server: PostgresServer, immediate: bool) -> None:
    database = server.new_database()
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE note AS SELECT 'kept' AS words")
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
    server.stop(immediate=immediate)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(database)
    server.start()
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT words FROM note").fetchone() == ("kept",)


def test_a_server_that_cannot_start_says_why(server: PostgresServer) -> None:
    server.stop(immediate=False)
    version = server.folder / "data" / "PG_VERSION"
    right = version.read_text(encoding="utf-8")
    version.write_text("1\n", encoding="utf-8")
    with pytest.raises(RuntimeError, match="incompatible"):
        server.start()
    version.write_text(right, encoding="utf-8")
    server.start()


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(FileExistsError, match="empty"):
        PostgresServer(tmp_path, durable=False)


def test_nothing_is_left_when_the_process_is_killed() -> None:
    folder = postgres_folder()
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, str(folder)], cwd=ROOT, text=True, **streams)
    with psycopg.connect(victim.stdout.readline().strip(), autocommit=True) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        postmaster = int((folder / "data" / "postmaster.pid").read_text(encoding="utf-8").split()[0])
        os.kill(postmaster, 0)
        victim.kill()
        # The keeper shares the victim's standard error, so that ends only when the keeper, and so the server, has ended.
        victim.communicate(timeout=60)
    with pytest.raises(ProcessLookupError):
        os.kill(postmaster, 0)
    assert not folder.exists()
