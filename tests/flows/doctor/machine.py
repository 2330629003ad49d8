"""A machine on which nothing is amiss, with a server that says what a test wants it to say."""

import base64
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from prefect.settings import Settings

from dpcore.steward.registry import register
from flows.doctor.examination import find
from flows.doctor.finding import Finding, Level
from flows.doctor.machine import Machine, look
from flows.doctor.settings import FILES
from flows.server.settings import SAFE
from tests.conftest import SPEC, Workspace

SECRET = "Zq7_secret"  # noqa: S105  to be looked for
SOMEBODY = f"steward:{SECRET}"
CALM = {"analytics_enabled": False, "ui": {"v2_enabled": False, "show_promotional_content": False}}


@dataclass
class FakeServer:
    """What a Prefect server says to the doctor, of which a test changes what it is about.

    Attributes:
        asks: Whether it wants a password.
        told: Its settings.
        version: Its version.
        storage: The block for results.
        page: Whether it answers everything with a page to log in at.
        heard: The credentials that it was sent.
    """

    asks: bool = True
    told: dict[str, Any] = field(default_factory=lambda: {**CALM, "api": {"csrf_protection_enabled": True}})
    version: str = field(default_factory=lambda: version("prefect"))
    storage: str | None = None
    page: bool = False
    heard: list[str] = field(default_factory=list)

    def answer(self, path: str, credentials: str | None) -> tuple[int, Any]:
        if credentials:
            self.heard.append(credentials)
        if self.page:
            return 200, "<html>"
        if self.asks and credentials != f"Basic {base64.b64encode(SOMEBODY.encode()).decode()}":
            return 401, {}
        answers = {
            "/api/admin/settings": {"server": self.told},
            "/api/admin/version": self.version,
            "/api/admin/storage": {"default_result_storage_block_id": self.storage},
        }
        return (200, answers[path]) if path in answers else (404, {})

    @contextmanager
    def running(self) -> Iterator[str]:
        says = self.answer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, content = says(self.path, self.headers["Authorization"])
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: object) -> None:
                """Say nothing on the terminal."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}/api"
            finally:
                server.shutdown()
                thread.join()


@dataclass(frozen=True)
class Calm:
    """Prefect's settings on the well kept machine, read once, and what they were read from."""

    settings: Settings
    environ: dict[str, str]


@dataclass(frozen=True)
class Place:
    """The folder of the machine, which anybody may enter, and what a test does there."""

    folder: Path
    patch: pytest.MonkeyPatch
    server: FakeServer
    calm: Calm | None = None

    @property
    def private(self) -> Path:
        return self.folder / ".dpflow" / "private"

    @property
    def ledger(self) -> Path:
        return self.folder / ".dpflow" / "ledger.sqlite"

    def look(self) -> Machine:
        """Look at the machine; settings take most of the time, and are read again only if something about them was changed."""
        files = any(Path(name).exists() for name in (*FILES, "home/profiles.toml"))
        same = self.calm and self.calm.environ == prefect_variables() and not files
        return look(self.calm.settings if self.calm and same else None)

    def find(self, check: str) -> Finding:
        """Return what a check finds now."""
        return find(self.look(), check)

    def set(self, **variables: str) -> None:
        for name, value in variables.items():
            self.patch.setenv(name, value)

    def unset(self, *names: str) -> None:
        for name in names:
            self.patch.delenv(name)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def mode(self, *modes: tuple[Path, int]) -> None:
        for path, mode in modes:
            path.chmod(mode)

    def spec(self, *changes: tuple[str, str], registered: bool) -> None:
        """Change the spec, and register it so unless it is to differ from what was registered."""
        path = Workspace(self.folder, self.folder / "spec.yaml").write_spec(*changes)
        if registered:
            register(path)

    def paste(self, line: str) -> None:
        """Do what a person does with a line that the doctor prints."""
        script = f"set -e\n{line}\nenv -0"
        done = subprocess.run(["/bin/bash", "-c", script], check=True, capture_output=True, text=True)
        after = dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)
        for name in os.environ.keys() - after.keys():
            self.patch.delenv(name)
        for name, value in after.items():
            self.patch.setenv(name, value)


def prefect_variables() -> dict[str, str]:
    """Return what the environment says about Prefect."""
    return {name: value for name, value in os.environ.items() if name.startswith("PREFECT_")}


def amiss(machine: Machine, checks: Iterable[str]) -> set[str]:
    """Return the checks that find something on a machine."""
    return {check for check in checks if find(machine, check).level is not Level.OK}


def make_place(folder: Path, patch: pytest.MonkeyPatch, server: FakeServer, *, url: str, like: Path) -> Place:
    """Set everything up as a careful steward would: the first time, or as a copy of what was made in this folder then.

    Args:
        folder: The folder of the machine.
        patch: What undoes all changes to the environment.
        server: The server of the machine.
        url: The server's address.
        like: Where the copy is kept.
    """
    if like.exists():
        shutil.copytree(like, folder)
    else:
        folder.mkdir()
        folder.chmod(0o755)  # whatever the mask
    patch.chdir(folder)
    for name in [name for name in os.environ if name.startswith(("PREFECT_", "DPFLOW_", "OTEL_"))]:
        patch.delenv(name)
    place = Place(folder, patch, server)
    place.set(**SAFE, PREFECT_HOME=str(folder / "home"), PREFECT_API_URL=url, PREFECT_API_AUTH_STRING=SOMEBODY)
    patch.setattr("resource.getrlimit", lambda _kind: (0, 0))
    if like.exists():
        return place
    Workspace(folder, place.write("spec.yaml", SPEC)).open_account()
    place.write("visits.csv", f"person,sex,age,smoker,city\n{SECRET},F,1,true,north\n").chmod(0o600)
    place.spec(registered=True)
    place.private.mkdir(mode=0o700, exist_ok=True)
    place.write(".dpflow/private/failures.log", SECRET).chmod(0o600)
    shutil.copytree(folder, like)
    return place
