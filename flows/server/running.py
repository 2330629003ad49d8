"""The server and the worker that `dpflow ui` keeps running in the background of a folder, as noted down in `.dpflow/ui`."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from dpcore.places import current_places
from flows.server import background

NOTE = "running.json"


@dataclass(frozen=True)
class Program:
    """A background program: its process, and what it was started with."""

    pid: int
    arguments: list[str]

    @property
    def alive(self) -> bool:
        """Whether it still runs, and is not another program that was given the same number."""
        return background.runs(self.pid, self.arguments, folder=ui_folder())


@dataclass(frozen=True)
class Running:
    """What was started last, whether or not it still runs."""

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
    """Return where logs and notes of the background programs are: in the `.dpflow` folder that is used here."""
    return current_places().folder / "ui"


def running() -> Running | None:
    """Return what was started last in this folder and not stopped since, if anything was."""
    try:
        note = json.loads((ui_folder() / NOTE).read_text(encoding="utf-8"))
        return Running(int(note["port"]), Program(**note["server"]), Program(**note["worker"]))
    except (OSError, ValueError, KeyError, TypeError):  # no note, or one that was cut off: then nothing is known
        return None


def running_url() -> str | None:
    """Return the API URL of the server that runs in the background of this folder, if one does."""
    found = running()
    return found.url if found and found.server.alive else None


def note_down(what: Running) -> None:
    """Remember what was started; written in one go, so that a reader finds the old note or the new one."""
    draft = ui_folder() / f"{NOTE}.new"
    draft.write_text(json.dumps(asdict(what)), encoding="utf-8")
    draft.replace(ui_folder() / NOTE)


def forget() -> None:
    """Remember that nothing runs."""
    (ui_folder() / NOTE).unlink(missing_ok=True)
