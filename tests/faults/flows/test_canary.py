"""No byte of the private table is anywhere but with the steward, whatever breaks, on either of Prefect's databases."""

import json
import os
import sqlite3
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from dpcore.steward.registry import register
from flows.server.password import client_environment
from flows.server.temporary import temporary_server
from tests.campaign import often
from tests.conftest import SPEC, Workspace, visits
from tests.faults.flows.canary_places import PLACES
from tests.flows.prefect_home import copy_home, used_home
from tests.postgres import PostgresServer

MARKER, PLANTED, ENCODED = "Zq7_canary%", "Yq7_planted%", "Xq7_encoded%"
STEWARDS = {"visits.csv", "failures.log", "output.log"}

# What a user may have set for other reasons, and what would give much away in an ordinary flow.
CARELESS = {
    "PREFECT_LOGGING_LEVEL": "DEBUG",
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "true",
    "PREFECT_LOGGING_LOG_PRINTS": "true",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "pyarrow,sqlalchemy",
}


@dataclass(frozen=True)
class Flown:
    """What the program left: which places it broke, how each run ended, what it wrote to its streams, and where to search."""

    places: list[str]
    ends: dict[str, str]
    streams: str
    folder: Path
    columns_with: Callable[[str], list[str]]
    database: tuple[Path, ...]

    def files_with(self, text: str) -> list[str]:
        """Search every byte of every file of the folder, Prefect's home, results and releases in it, and of the database's own files."""
        places = [path for root in (self.folder, *self.database) for path in sorted(root.rglob("*")) if path.is_file()]
        wanted = [form.encode() for form in forms(text)]
        public = ((path.name, self._content(path)) for path in places if path.name not in STEWARDS)
        return [name for name, content in public if any(form in content for form in wanted)]

    def _content(self, path: Path) -> bytes:
        """Return what a file holds. A running database removes some of its own, such as `pg_internal.init`, and writes them again."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            if any(path.is_relative_to(root) for root in self.database):
                return b""
            raise


FEW = [
    "dpcore.runs.synthesis:Synthesis.ingest",
    "dpcore.mechanisms.noise:Noise.draw",
    "flows.synthesize:publish_report",
]
BROKEN = {"sqlite": list(PLACES), "postgresql": often(FEW, campaign=list(PLACES))}


@pytest.fixture(scope="module", params=BROKEN)
def flown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flown]:
    folder = tmp_path_factory.mktemp("canary")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("DPFLOW_PRIVATE", str(folder / "private"))
        patch.setenv("PREFECT_HOME", str(folder / "prefect"))
        patch.delenv("DPFLOW_LEDGER_URL", raising=False)
        _poisoned_table().to_csv("visits.csv", index=False)
        # so that these steps run, and break
        checked = SPEC.replace("privacy: {", "privacy: {expect_rows: [1, 1000000], ").replace("unit: 2", "unit: auto")
        checked += "persons: {rows_of: person, constant: [sex]}\n"
        Path("spec.yaml").write_text(checked, encoding="utf-8")
        Workspace(folder, folder / "spec.yaml").open_account(epsilon=100)
        register(Path("spec.yaml"))
        columns_with, files, careless = _sqlite_columns(folder / "prefect" / "prefect.db"), (), {}
        if request.param == "sqlite":
            copy_home(used_home(tmp_path_factory), folder / "prefect")
        else:
            postgres = request.getfixturevalue("postgres_for_prefect")
            url = postgres.new_database()
            patch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", url.replace("postgresql:", "postgresql+asyncpg:"))
            columns_with, files, careless = _postgres_columns(postgres, url), (postgres.folder / "data",), CARELESS
        with temporary_server() as server:
            flight = subprocess.run(
                [sys.executable, "-m", "tests.faults.flows.canary", PLANTED, ENCODED, *BROKEN[request.param]],
                env=os.environ
                | careless
                | client_environment(server.url, server.password)
                | {"PYTHONPATH": str(_root())},
                capture_output=True,
                text=True,
                check=False,
            )
        assert flight.returncode == 0, flight.stderr[-3000:]
        *lines, ends = flight.stdout.splitlines()
        streams = "\n".join(lines) + flight.stderr
        yield Flown(BROKEN[request.param], json.loads(ends), streams, folder, columns_with, files)


@pytest.mark.campaign
def test_every_place_was_broken_and_the_run_without_a_fault_was_not(flown: Flown) -> None:
    assert flown.ends == dict.fromkeys(flown.places, "StepFailed") | dict.fromkeys(
        ("nowhere", "budget", "verify"), "done"
    )


@pytest.mark.campaign
def test_nothing_that_prefect_stored_holds_a_private_value(flown: Flown) -> None:
    assert flown.columns_with(MARKER) == []


@pytest.mark.campaign
def test_no_file_but_the_stewards_holds_a_private_value(flown: Flown) -> None:
    assert list(flown.folder.glob("releases/visits/*/data/*.parquet"))  # a release is among what is searched
    assert flown.files_with(MARKER) == []


def test_the_steward_reads_what_broke(flown: Flown) -> None:
    assert MARKER in (flown.folder / "private" / "failures.log").read_text(encoding="utf-8")


def test_the_search_finds_what_an_ordinary_flow_gives_away(flown: Flown) -> None:
    assert {"log.message", "task_run_state.message", "flow_run_state.message"} <= set(flown.columns_with(PLANTED))
    assert flown.files_with(PLANTED)
    assert flown.columns_with(ENCODED) == ["artifact.data"]


def forms(text: str) -> list[str]:
    """Return a text as it is, and as it would be found in the base64 of a longer one, at any of the three places within its groups."""
    shifted = (
        b64encode(b" " * before + text.encode()).decode()[skipped:] for before, skipped in ((0, 0), (1, 2), (2, 3))
    )
    return [text, *(encoded.rstrip("=")[:-1] for encoded in shifted)]


def _poisoned_table() -> pd.DataFrame:
    table = visits(600, seed=3).astype(object)
    for number, column in enumerate(table):
        table.loc[number::7, column] = [f"{MARKER}-{column}-{row}" for row in table.index[number::7]]
    return table


def _sqlite_columns(path: Path) -> Callable[[str], list[str]]:
    def search(text: str) -> list[str]:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            columns = [(table, row[1]) for table in tables for row in database.execute(f"PRAGMA table_info('{table}')")]
            # instr, not LIKE, for which an underscore is a wildcard
            query = 'SELECT count(*) FROM "{}" WHERE instr(CAST("{}" AS TEXT), ?)'
            return [
                f"{table}.{column}"
                for table, column in columns
                if any(database.execute(query.format(table, column), (form,)).fetchone()[0] for form in forms(text))
            ]

    return search


def _postgres_columns(server: PostgresServer, url: str) -> Callable[[str], list[str]]:
    def search(text: str) -> list[str]:
        name = url.partition("@/")[2].partition("?")[0]
        with server.admin(name) as database:
            database.execute("CHECKPOINT")  # so that the files hold what the tables do
            columns = database.execute(
                "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
            ).fetchall()
            query = 'SELECT count(*) FROM "{}" WHERE strpos("{}"::text, %s) > 0'
            return [
                f"{table}.{column}"
                for table, column in columns
                if any(database.execute(query.format(table, column), (form,)).fetchone()[0] for form in forms(text))
            ]

    return search


def _root() -> Path:
    return Path(__file__).parents[3]
