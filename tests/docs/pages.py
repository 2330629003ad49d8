"""Run the blocks of a page as a reader would: commands in a shell, Python in one interpreter, all in one folder and in order."""

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.flows.prefect_home import copy_home, used_home
from tests.flows.stack import Stack

ROOT = Path(__file__).parents[2]
FEW = Path(__file__).with_name("few")
TUTORIAL = "docs/tutorial/first-release.md"
BLOCK = re.compile(r"^```(console|python|text)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
FIGURE = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d{8}T\d{4}Z-[0-9a-f]{12}|\d[\d,.]*(?:e-?\d+)?")
BASIS = re.compile(r"\b(measured|model|guess)\b")
SIMPLE = re.compile(r"""dpflow (?!run )(?:"[^"$`]*"|[^"|<>&;$`])*""")
"""A command that starts no other program, and does not need a shell."""
NEVER = ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE", "DPFLOW_REGISTRY", "PREFECT_API_URL", "MAKEFLAGS", "MAKELEVEL")


@dataclass(frozen=True)
class Shown:
    """What a page says that a block prints, and what it printed."""

    said: str
    printed: str

    @property
    def missing(self) -> list[str]:
        """The lines that the page shows and that were not printed, whatever figures, names and spaces they have."""
        printed = {_shape(line) for line in self.printed.splitlines()}
        return [line for line in self.said.splitlines() if _shape(line) not in printed]


def _shape(line: str) -> str:
    """Return a line without what differs between runs: figures, what they are based on, and the widths of columns."""
    return " ".join(BASIS.sub("basis", FIGURE.sub("#", line)).split())


def blocks(page: str, *languages: str) -> list[str]:
    """Return the blocks of a page in some languages."""
    return [
        text for language, text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")) if language in languages
    ]


def commands(block: str) -> list[str]:
    """Return the commands of a console block."""
    return re.findall(r"^\$ (.*)$", block, flags=re.MULTILINE)


def run_page(page: str, folder: Path, *, done: Mapping[str, str] | None = None) -> Iterator[Shown]:
    """Run all blocks of a page in a folder; stop at the first that fails. Give what follows as text beside what was printed.

    Args:
        page: The page's path.
        folder: The folder to run in.
        done: What was printed by commands that need not be run again.
    """
    printed = ""
    names: dict[str, object] = {"__name__": page}
    for language, text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if language == "console":
            lines = commands(text)
            printed = (done or {}).get("\n".join(lines)) or (
                "".join(here(line, folder) for line in lines)
                if all(SIMPLE.fullmatch(line) for line in lines)
                else shell("\n".join(lines), folder)
            )
        elif language == "python":
            printed = python(text, folder, names)
        else:
            yield Shown(text, printed)


def shell(script: str, folder: Path) -> str:
    """Run commands in a folder, with this interpreter's programs first; return all that they print."""
    environment = {name: value for name, value in os.environ.items() if name not in NEVER}
    environment["PYTHONPATH"] = os.pathsep.join([str(FEW), str(ROOT)])
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    ran = subprocess.run(
        ["/bin/bash", "-c", f"set -euo pipefail\n{script}"],
        cwd=folder,
        env=environment,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, f"{script}\n{ran.stdout}"
    return ran.stdout


def here(command: str, folder: Path) -> str:
    """Run a command of dpflow that starts nothing, as `shell` does, but in this process, which has loaded everything."""
    return Stack(folder, 0).here(*shlex.split(command)[1:])


def python(code: str, folder: Path, names: dict[str, object]) -> str:
    """Run a block of Python in a folder, with the names that earlier ones left; return what it prints."""
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        exec(compile(code, "page", "exec"), names)  # noqa: S102  the page's code is ours
    return printed.getvalue()


def with_database(patch: pytest.MonkeyPatch, factory: pytest.TempPathFactory) -> None:
    """Let the commands' servers find Prefect's database, which the first would otherwise create for longer than all the rest takes."""
    home = factory.mktemp("prefect")
    copy_home(used_home(factory), home)
    patch.setenv("PREFECT_HOME", str(home))


def with_sample(folder: Path, *names: str) -> Path:
    """Put files of the sample into a folder, as they lie in a clone."""
    (folder / "data").mkdir()
    for name in names:
        shutil.copy(ROOT / "data" / name, folder / "data" / name)
    return folder


@dataclass(frozen=True)
class Tutorial:
    """The folder in which the tutorial was run, and what it showed."""

    folder: Path
    shown: list[Shown]


_RUN: list[Tutorial] = []


def tutorial(factory: pytest.TempPathFactory) -> Tutorial:
    """Run the tutorial, once for all tests: it makes a release of the sample, as the README does, in few rounds."""
    if not _RUN:
        folder = with_sample(factory.mktemp("tutorial"), "clinic_visits.py", "clinic-visits.yaml")
        spec = folder / "data" / "clinic-visits.yaml"
        text = spec.read_text(encoding="utf-8").replace("# rounds: 12", "rounds: 4")
        spec.write_text(text, encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            with_database(patch, factory)
            _RUN.append(Tutorial(folder, list(run_page(TUTORIAL, folder))))
    return _RUN[0]
