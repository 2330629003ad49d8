"""docs/how-to/operate.md tells the truth: its commands exist, and its drills do what it says, copied from it word for word."""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

import dpcore
from dpcore.cli.main import parser as parser_of
from dpcore.cli.verbs import VERBS
from dpcore.errors import LedgerDamaged, LedgerError
from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import gdp_to_epsilon
from dpcore.steward.registry import register
from dpcore.steward.verify import verify_ledger
from flows.cli import command
from tests.conftest import Workspace
from tests.deployments.documents import Quoted, drill, headings, links, quoted
from tests.deployments.facts import DEPLOYMENTS, ROOT, known_variables
from tests.postgres import PostgresServer, postgres_folder

OPERATE = "docs/how-to/operate.md"
PEOPLE = ("steward", "runner", "auditor")
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    *(
        str(path.relative_to(ROOT))
        for folder in ("tutorial", "how-to", "reference", "explanation")
        for path in sorted((ROOT / "docs" / folder).glob("*.md"))
    ),
]
"""All that readers copy commands from; decisions are history, and may quote what is gone."""
QUOTED = [call for name in PAGES for call in quoted(name)]
TEXT = (ROOT / OPERATE).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    """The parser of the real command, with every verb."""
    given: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command.cli, "main", lambda **options: given.update(options) or 0)
        patch.setattr(command.os, "_exit", lambda code: None)
        command.main()
    return parser_of(given["more"], loaded=[*VERBS, *given["more"]])


def unknown_words(parser: argparse.ArgumentParser, words: list[str]) -> list[str]:
    """Return the verbs and options of a call that the command does not have."""
    for number, word in enumerate(words):
        verbs = next((it.choices for it in parser._actions if isinstance(it, argparse._SubParsersAction)), None)
        if verbs is None or word.startswith("--"):
            options = [it for it in words[number:] if it.startswith("--")]
            return [it for it in options if it not in parser._option_string_actions]
        if word not in verbs:
            return [word]
        parser = verbs[word]
    return []


@pytest.mark.parametrize("call", QUOTED, ids=lambda call: f"{call.document}: {call.text}")
def test_a_quoted_command_exists(call: Quoted, parser: argparse.ArgumentParser) -> None:
    verbs, *others = call.text.split(" / ")  # `dpflow ledger open / show` stands for two
    first = verbs.split()
    for text in [verbs, *(" ".join([*first[:-1], other]) for other in others)]:
        assert unknown_words(parser, Quoted("", text, whole=False).words) == []
    if call.whole:
        parser.parse_args(call.words)


def test_a_command_that_does_not_exist_is_noticed(parser: argparse.ArgumentParser) -> None:
    assert unknown_words(parser, ["ledger", "undo", "visits"]) == ["undo"]
    assert unknown_words(parser, ["ledger", "verify", "--heads", "1"]) == ["--heads"]
    with pytest.raises(SystemExit):
        parser.parse_args(["ledger", "open", "visits"])


def test_the_commands_are_found_at_all() -> None:
    found = {call.text for call in QUOTED if call.document == OPERATE}
    assert {"ledger settle RUN", "serve --deploy-only", "doctor", "ledger verify --releases /releases"} <= found


@pytest.mark.parametrize("name", [OPERATE, "README.md"])
def test_links_lead_somewhere(name: str) -> None:
    for path, heading in links(name):
        assert path.exists(), path
        assert not heading or heading in headings(path), heading


def test_services_and_variables_are_the_real_ones() -> None:
    compose = yaml.safe_load((DEPLOYMENTS / "compose.yaml").read_text(encoding="utf-8"))
    services = re.findall(
        r"docker compose (?:run --rm|exec(?: -T)?|stop|cp|up --detach --force-recreate) ([a-z][\w-]*)", TEXT
    )
    assert len(services) > 10
    assert set(services) <= set(compose["services"])
    for_compose = set(re.findall(r"\$\{(\w+)", (DEPLOYMENTS / "compose.yaml").read_text(encoding="utf-8")))
    assert set(re.findall(r"\b(?:DPFLOW|PREFECT)_[A-Z_]+\b", TEXT)) <= known_variables() | for_compose


def shell(script: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a script with this interpreter's programs first."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["/bin/bash", "-c", script],
        env=os.environ | {"PATH": path} | environment,
        check=False,
        capture_output=True,
        text=True,
    )


def head() -> str:
    with open_ledger() as ledger:
        return ledger.head()


def test_a_restored_sqlite_ledger_shows_that_it_forgot_a_release(workspace: Workspace) -> None:
    workspace.open_account()
    register(workspace.spec)
    with open_ledger():  # somebody is at work: what is new is in the journal, and not yet in the file
        dpcore.synthesize(workspace.spec)
        backup = shell(drill("sqlite backup"))
        assert backup.returncode == 0, backup.stderr
        assert "the ledger is sound" in backup.stdout
    forgotten = dpcore.synthesize(workspace.spec)
    newest = head()

    restored = shell(drill("sqlite restore"))
    assert restored.returncode == 4
    assert f"{forgotten.release}/manifest.json" in restored.stderr
    assert "is not in this chain" in restored.stderr

    # Where no release tells, a noted head does; and nothing else would.
    Path("releases").rename("away")
    verify_ledger()
    verify_ledger(expected_head=Path("backup/head").read_text(encoding="utf-8").strip())
    with pytest.raises(LedgerDamaged, match="is not in this chain"):
        verify_ledger(expected_head=newest)
    assert {path.stat().st_mode & 0o077 for path in Path("backup").glob("ledger*")} == {0}


def test_a_plain_copy_of_a_ledger_in_use_lacks_its_last_events(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_ledger(create=True):
        workspace.open_account()
        shutil.copy(".dpflow/ledger.sqlite", "copied.sqlite")
        newest = head()
        monkeypatch.setenv("DPFLOW_LEDGER_URL", "sqlite:///copied.sqlite")
        with pytest.raises(LedgerDamaged, match="is not in this chain"):
            verify_ledger(expected_head=newest)


def test_a_lost_release_is_made_again_from_the_ledger_row_for_row(workspace: Workspace) -> None:
    workspace.open_account()
    made = dpcore.synthesize(workspace.spec)
    rows = pq.read_table(Path(made.release) / "data")
    Path("releases").rename("lost")
    again = dpcore.synthesize(workspace.spec, run_id=made.run, resume=True)
    assert again.release == made.release
    assert pq.read_table(Path(again.release) / "data").equals(rows)
    assert (again.spent, again.remaining) == (made.spent, made.remaining)


def test_the_budget_of_the_account_that_follows_is_no_more_than_the_rest() -> None:
    (rest,) = re.findall(r"gdp_to_epsilon\(([\d.]+ - [\d.]+), delta=1e-9\)", TEXT)
    (epsilon,) = re.findall(r"ledger open visits-2 --epsilon ([\d.]+)", TEXT)
    budget, used = map(float, rest.split(" - "))
    assert 0 <= gdp_to_epsilon(budget - used, delta=1e-9) - float(epsilon) < 0.01


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of its own, set up by the scripts that compose.yaml runs: roles belong to all databases of a server."""
    with PostgresServer(postgres_folder(), durable=False) as server:
        with server.admin() as connection:
            connection.execute("CREATE DATABASE ledger TEMPLATE template0 ENCODING 'UTF8'")
            connection.execute("CREATE ROLE prefect LOGIN PASSWORD 'prefect'")
        secrets = server.folder / "secrets"
        secrets.mkdir()
        for person in PEOPLE:
            (secrets / f"{person.upper()}_PASSWORD").write_text(f"it's {person}\n", encoding="utf-8")
        logins = (DEPLOYMENTS / "postgres-logins.sql").read_text(encoding="utf-8")
        (server.folder / "logins.sql").write_text(logins.replace("/run/secrets", str(secrets)), encoding="utf-8")
        for script in (DEPLOYMENTS / "postgres-roles.sql", server.folder / "logins.sql"):
            arguments = ["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", server.url("ledger"), "-f", script]
            subprocess.run([server._programs / "psql", *arguments], check=True, capture_output=True)
        yield server


def as_person(server: PostgresServer, monkeypatch: pytest.MonkeyPatch, person: str) -> None:
    """Log in as a service of compose.yaml does: the name is in the URL, the password in the environment."""
    monkeypatch.setenv("DPFLOW_LEDGER_URL", f"postgresql://{person}@/ledger?host={server.folder}")
    monkeypatch.setenv("PGPASSWORD", f"it's {person}")


# As if the commands ran in the containers; who verifies is the auditor.
CONTAINERS = """
docker() {
    case "$2 $3 ${4-}" in
        "exec -T ledger-db") shift 4; "$@" ;;
        "run --rm auditor") shift 4; dpflow "$@" ;;
        "stop worker ") ;;
        *) return 9 ;;
    esac
}
"""


def test_a_restored_postgres_ledger_shows_that_it_forgot_a_release(
    server: PostgresServer, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_drill(name: str) -> "subprocess.CompletedProcess[str]":
        as_person(server, monkeypatch, "auditor")
        script = re.sub(r"(/srv)?/releases\b", "releases", drill(name))
        path = f"{Path(sys.executable).parent}:{server._programs}:{os.environ['PATH']}"
        return shell(CONTAINERS + script, PATH=path, PGHOST=str(server.folder))

    as_person(server, monkeypatch, "steward")
    workspace.open_account()
    as_person(server, monkeypatch, "runner")
    dpcore.synthesize(workspace.spec)
    Path("backup").mkdir()
    backup = run_drill("postgres backup")
    assert backup.returncode == 0, backup.stderr
    as_person(server, monkeypatch, "runner")
    forgotten = dpcore.synthesize(workspace.spec)

    restored = run_drill("postgres restore")
    assert restored.returncode == 4, restored.stderr
    assert f"{forgotten.release}/manifest.json" in restored.stderr
    assert "is not in this chain" in restored.stderr

    # The roles hold in the restored database, too.
    Path("releases").rename("away")
    verify_ledger(expected_head=Path("backup/head").read_text(encoding="utf-8").strip())
    with open_ledger() as ledger, pytest.raises(LedgerError, match="denies this to the current role"):
        ledger.accept_restoration(reason="the disk broke")
    as_person(server, monkeypatch, "steward")
    with open_ledger() as ledger:
        with pytest.raises(LedgerDamaged, match="accept-restoration"):
            ledger.close_account("visits", reason="restored")
        ledger.accept_restoration(reason="the disk broke")
        ledger.close_account("visits", reason="restored")


def test_prefects_own_login_gets_into_no_ledger(
    server: PostgresServer, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPFLOW_LEDGER_URL", f"postgresql://prefect:prefect@/ledger?host={server.folder}")
    with pytest.raises(LedgerError, match="denies this to the current role"):
        open_ledger()
