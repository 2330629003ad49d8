"""The background server and worker of `dpflow ui` in a folder, as recorded in `.dpflow/ui`."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from dpcore.places import current_places
from flows.server import background

NOTE = "running.json"


@dataclass(frozen=True)
class Program:
    """A background program: its pid and the arguments it was started with."""

    pid: int
    arguments: list[str]

    @property
    def alive(self) -> bool:
        """Whether it still runs, and its pid was not reused by another program."""
        return background.runs(self.pid, self.arguments, folder=ui_folder())


@dataclass(frozen=True)
class Running:
    """The programs that were started last, whether or not they still run."""

    port: int
    server: Program
    worker: Program

    @property
    def page(self) -> str:
        """The address for a browser."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The address of the API."""
        return f"{self.page}/api"


def ui_folder() -> Path:
    """Return the folder of the background programs' logs and records, inside the `.dpflow` folder in use."""
    return current_places().home / "ui"


def running() -> Running | None:
    """Return the programs that were started last in this folder and not stopped since, if any."""
    try:
        note = json.loads((ui_folder() / NOTE).read_text(encoding="utf-8"))
        return Running(int(note["port"]), Program(**note["server"]), Program(**note["worker"]))
    except (OSError, ValueError, KeyError, TypeError):  # no record, or a truncated one
        return None


def running_url() -> str | None:
    """Return the API URL of the background server of this folder, if one runs."""
    last = running()
    return last.url if last and last.server.alive else None


def note_down(what: Running) -> None:
    """Record the programs that were started. The file is replaced atomically, so a reader finds the old record or the new one."""
    draft = ui_folder() / f"{NOTE}.new"
    draft.write_text(json.dumps(asdict(what)), encoding="utf-8")
    draft.replace(ui_folder() / NOTE)


def forget() -> None:
    """Delete the record: nothing runs."""
    (ui_folder() / NOTE).unlink(missing_ok=True)
