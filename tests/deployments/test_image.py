"""The image and the two small programs in it: what they are made of, and what they do without a container."""

import json
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from dpcore.errors import UsageError
from dpcore.places import places_from
from flows.server.settings import SAFE
from tests.deployments.facts import DEPLOYMENTS, ROOT, TEMPLATE, image_environment, known_variables

DOCKERFILE = (DEPLOYMENTS / "Dockerfile").read_text(encoding="utf-8")
IGNORED = (DEPLOYMENTS / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
WITH_SECRETS = DEPLOYMENTS / "with-secrets"


def lint(text: str) -> list[str]:
    """Return what is wrong with a Dockerfile."""
    images = re.findall(r"^FROM (\S+)", text, flags=re.MULTILINE)
    users = re.findall(r"^USER (\S+)", text, flags=re.MULTILINE)
    copies = [line.split()[1:-1] for line in re.findall(r"^COPY (?!--from).*$", text, flags=re.MULTILINE)]
    wrong = [f"{image} is not pinned" for image in images if not re.fullmatch(r"[a-z]+:\d+\.\d+\.\d+(-[a-z]+)*", image)]
    wrong += [f"{path} is more than is needed" for paths in copies for path in paths if path in {".", "/", "*"}]
    wrong += [f"{word} is a secret" for word in re.findall(r"\b\w*(?:PASSWORD|AUTH_STRING|SECRET_KEY|TOKEN)\w*=", text)]
    if not users or not re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]) or text.rindex("USER") < text.rindex("FROM"):
        wrong.append("it runs as root")
    if "-c constraints.txt" not in text:
        wrong.append("it installs what it finds")
    return wrong


def test_the_image_is_pinned_and_its_user_is_not_root() -> None:
    assert lint(DOCKERFILE) == []


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("3.11.14-slim-bookworm AS", "latest AS", "python:latest is not pinned"),
        ("USER 10001:10001", "USER root", "it runs as root"),
        ("USER 10001:10001\n", "", "it runs as root"),
        ("COPY flows flows", "COPY . .", ". is more than is needed"),
        ("HOME=/tmp ", "PGPASSWORD=pw ", "PGPASSWORD= is a secret"),
        (" -c constraints.txt", "", "it installs what it finds"),
    ],
)
def test_a_worse_image_is_noticed(old: str, new: str, found: str) -> None:
    assert old in DOCKERFILE
    assert lint(DOCKERFILE.replace(old, new)) == [found]


def test_whatever_runs_in_the_image_is_quiet() -> None:
    environment = image_environment()
    assert environment.items() >= SAFE.items()
    assert {name for name in environment if name.startswith(("PREFECT_", "DPFLOW_"))} <= known_variables()


@pytest.mark.parametrize("left_out", [None, "DPFLOW_PRIVATE", "DPFLOW_REGISTRY"])
def test_heads_and_approvals_do_not_depend_on_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: str | None
) -> None:
    """The ledger is in a database, so its services could write nothing without these variables."""
    for name in ("DPFLOW_PRIVATE", "DPFLOW_REGISTRY"):
        monkeypatch.setenv(name, image_environment()[name])
    monkeypatch.setenv("DPFLOW_LEDGER_URL", "postgresql://runner@ledger-db/ledger")
    if left_out:
        monkeypatch.delenv(left_out)
        with pytest.raises(UsageError, match="set DPFLOW_PRIVATE and DPFLOW_REGISTRY"):
            places_from(tmp_path).require_fixed()
    else:
        places_from(tmp_path).require_fixed()


def test_only_what_is_copied_reaches_the_builder() -> None:
    copied = {
        path
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, flags=re.MULTILINE)
        for path in line.split()[:-1]
        if not path.startswith("--")
    }
    assert IGNORED[1] == "*"
    assert {line.removeprefix("!") for line in IGNORED if line.startswith("!")} == copied
    assert all((ROOT / path).exists() for path in copied)


def test_the_image_has_the_number_of_the_project_wherever_it_is_named() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    named = [
        image
        for path in (DEPLOYMENTS / "Dockerfile", DEPLOYMENTS / "compose.yaml", TEMPLATE)
        for image in re.findall(r"\bdpflow:\d[\w.]*", path.read_text(encoding="utf-8"))
    ]
    assert named == [f"dpflow:{version}"] * 3


def with_secrets(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": "/usr/bin:/bin", "DPFLOW_SECRETS": str(folder)}
    return subprocess.run([WITH_SECRETS, *arguments], env=environment, check=False, capture_output=True, text=True)


def test_a_command_gets_the_secrets_that_it_names_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "PGPASSWORD").write_text('it\'s $HOME "so"\n', encoding="utf-8")
    (tmp_path / "OTHER").write_text("not asked for", encoding="utf-8")
    done = with_secrets(tmp_path, "PGPASSWORD", "--", "sh", "-c", 'echo "$PGPASSWORD, ${OTHER-no other}"')
    assert (done.returncode, done.stdout, done.stderr) == (0, 'it\'s $HOME "so", no other\n', "")


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_nothing_is_started_without_its_secret(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "PGPASSWORD").write_text(content, encoding="utf-8")
    done = with_secrets(tmp_path, "PGPASSWORD", "--", "echo", "started")
    assert (done.returncode, done.stdout) == (2, "")
    assert "PGPASSWORD is missing, empty or not readable" in done.stderr


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    """A server that knows one password, and tells of its work pool what the test has put into `status`."""

    class Pool(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.headers["Authorization"] == "Basic b3BzOnB3" and self.path == "/api/work_pools/dpflow"
            self.send_response(200 if allowed else 401)
            self.end_headers()
            self.wfile.write(json.dumps({"status": self.server.status}).encode())

        def log_message(self, *words: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Pool) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "password", "healthy"),
    [("READY", "ops:pw", True), ("NOT_READY", "ops:pw", False), ("READY", "ops:other", False)],
)
def test_a_worker_is_healthy_while_the_server_hears_of_it(
    server: HTTPServer, status: str, password: str, healthy: bool
) -> None:
    server.status = status
    environment = {
        "PATH": str(Path(sys.executable).parent),
        "PREFECT_API_URL": f"http://127.0.0.1:{server.server_port}/api",
        "PREFECT_API_AUTH_STRING": password,
    }
    done = subprocess.run([DEPLOYMENTS / "worker-online"], env=environment, check=False, capture_output=True)
    assert (done.returncode == 0) is healthy
