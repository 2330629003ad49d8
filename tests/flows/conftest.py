"""One Prefect server for all tests marked `prefect`, and a search through everything it has stored.

The server stops after a file that used it, unless the next file needs it too.
"""

import gc
import os
import shutil
import sqlite3
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.conftest import Workspace
from tests.flows.prefect_home import copy_home, used_home
from tests.flows.stack import pytest_runtest_setup, pytest_runtest_teardown, stack, wait_for  # noqa: F401  a fixture and hooks for all these tests

# Set before any test module imports Prefect, so that no test touches or depends on the user's own Prefect.
HOME = Path(tempfile.mkdtemp(prefix="dpflow-test-"))
for variable in [name for name in os.environ if name.startswith("PREFECT_")]:
    del os.environ[variable]
os.environ["PREFECT_HOME"] = str(HOME)
os.environ["PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL"] = "1"  # the tests search events, too
DATABASE = f"file:{HOME / 'prefect.db'}?mode=ro"

Search = Callable[[str], list[str]]


LEFT = ("ignore:unclosed <socket:ResourceWarning", "ignore:unclosed transport:ResourceWarning")
"""A connection of Prefect's asynchronous client is left to the garbage collector if its event loop ends first, as under load."""


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Let no test of a flow fail because the garbage collector has found such a connection of an earlier one."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            for each in LEFT:
                item.add_marker(pytest.mark.filterwarnings(each))


@pytest.fixture(scope="module", autouse=True)
def _collect_connections() -> Iterator[None]:
    """Collect what is left before another file's tests begin."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session", autouse=True)
def _clean_home() -> Iterator[None]:
    yield
    shutil.rmtree(HOME, ignore_errors=True)


_SERVER = pytest.StashKey[tuple[ExitStack, str]]()


@pytest.fixture(scope="module")
def prefect_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the server on which all these flows run, started as the command line starts it.

    Several conftest files import this fixture, and pytest treats each import as a separate fixture. So the stash keeps the server.
    """
    from flows.cli.quiet import quiet  # noqa: PLC0415

    stash = request.config.stash
    if _SERVER not in stash:
        if not (HOME / "prefect.db").exists():  # as it does after a test with a temporary server in the same home
            copy_home(used_home(tmp_path_factory), HOME)
        opened = ExitStack()
        stash[_SERVER] = opened, opened.enter_context(quiet())
    yield stash[_SERVER][1]
    if not any(map(_on_server, _next_file(request))):
        stash[_SERVER][0].close()
        del stash[_SERVER]


def _next_file(request: pytest.FixtureRequest) -> list[pytest.Item]:
    """Return the tests of the file after this one, in the order in which one process gets files that belong together."""
    paths = list(dict.fromkeys(item.path for item in request.session.items))
    following = paths[paths.index(request.path) + 1 :][:1]
    return [item for item in request.session.items if item.path in following]


def _on_server(item: pytest.Item) -> bool:
    return item.get_closest_marker("prefect") is not None or "prefect_server" in getattr(item, "fixturenames", ())


@pytest.fixture(autouse=True)
def _served(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("prefect"):
        request.getfixturevalue("prefect_server")


@pytest.fixture(autouse=True)
def steward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The steward's log of this test."""
    monkeypatch.setenv("DPFLOW_PRIVATE", str(tmp_path / "private"))
    return tmp_path / "private" / "failures.log"


@pytest.fixture
def workspace(workspace: Workspace) -> Workspace:
    """Add the steward's folder to the workspace, as `dpflow ledger open` creates it."""
    (workspace.folder / ".dpflow").mkdir(mode=0o700)
    return workspace


@pytest.fixture
def stored(prefect_server: str) -> Search:
    """Return a function that searches every column of the server's database, and every file beside it, for a text."""

    def search(text: str) -> list[str]:
        _wait_until_recorded()
        with closing(sqlite3.connect(DATABASE, uri=True)) as database:
            found = _columns_with(database, text)
        files = [path for path in HOME.rglob("*") if path.is_file() and not path.name.startswith("prefect.db")]
        return found + [path.name for path in files if text.encode() in path.read_bytes()]

    return search


def _columns_with(database: sqlite3.Connection, text: str) -> list[str]:
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = [(table, row[1]) for table in tables for row in database.execute(f"PRAGMA table_info('{table}')")]
    # instr, not LIKE, for which an underscore is a wildcard
    condition = 'SELECT count(*) FROM "{}" WHERE instr(CAST("{}" AS TEXT), ?)'
    return [
        f"{table}.{column}"
        for table, column in columns
        if database.execute(condition.format(table, column), (text,)).fetchone()[0]
    ]


def _wait_until_recorded() -> None:
    """Wait until the server has written everything it was sent so far, by sending one more task run and waiting for it."""
    from prefect.events.worker import EventsWorker  # noqa: PLC0415
    from prefect.logging.handlers import APILogWorker  # noqa: PLC0415

    from flows.tasks.guard import private_task  # noqa: PLC0415

    APILogWorker.drain_all(timeout=10)
    EventsWorker.drain_all(timeout=10)
    last = f"{uuid.uuid4()}/last"
    private_task(name="last", task_run_name=last)(lambda: None)()
    questions = (
        ("SELECT count(*) FROM task_run WHERE name = ? AND state_type = 'COMPLETED'", "its end"),
        (
            "SELECT count(*) FROM events WHERE instr(resource, ?) AND event = 'prefect.task-run.Completed'",
            "the event of its end",
        ),
        # The server writes states after the events about them, and in a different order.
        (
            "SELECT length(?) AND NOT EXISTS (SELECT 1 FROM events WHERE event LIKE 'prefect.task-run.%' AND id NOT IN (SELECT id FROM task_run_state))",
            "the states of all tasks before it",
        ),
    )
    with closing(sqlite3.connect(DATABASE, uri=True)) as database:
        for question, what in questions:
            wait_for(lambda: database.execute(question, (last,)).fetchone()[0], what)  # noqa: B023
