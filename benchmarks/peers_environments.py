"""Create and cache a virtual environment for each set of requirements."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

INSTALL_SECONDS = 3600
LEFT_OUT = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")  # these would let our own packages into a peer's environment


class InstallError(Exception):
    """A peer's environment could not be created. The message says why."""


def environments_folder() -> Path:
    """Return the folder of the environments: `$DPFLOW_BENCH_ENVS`, or `.bench-envs` in the project."""
    return Path(os.environ.get("DPFLOW_BENCH_ENVS") or Path(__file__).parents[1] / ".bench-envs").absolute()


def peer_environ() -> dict[str, str]:
    """Return the environment variables for a peer's processes."""
    return {name: value for name, value in os.environ.items() if name not in LEFT_OUT}


def interpreter_for(requirements: tuple[str, ...], *, folder: Path) -> Path:
    """Return the interpreter of the environment with these requirements. Create the environment if there is none.

    Raises:
        InstallError: If it cannot be created.
    """
    version = "{}.{}".format(*sys.version_info[:2])
    digest = hashlib.sha256("\n".join((version, *requirements)).encode()).hexdigest()[:8]
    home = folder / f"{_plain(requirements[0])}-{digest}"
    interpreter, complete = home / "bin" / "python", home / "complete"
    if not complete.exists():
        shutil.rmtree(home, ignore_errors=True)
        _call([sys.executable, "-m", "venv", str(home)])
        _call([str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements])
        complete.write_text("\n".join(requirements) + "\n", encoding="utf-8")
    return interpreter


def _plain(requirement: str) -> str:
    return "".join(letter if letter.isalnum() or letter in ".-" else "-" for letter in requirement)


def _call(command: list[str]) -> None:
    try:
        done = subprocess.run(  # noqa: S603  our own interpreter, with requirements from our own list
            command, check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS, env=peer_environ()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(f"not installed: {error}") from error
    if done.returncode != 0:
        raise InstallError(f"not installed: {last_words(done.stderr)}")


def last_words(text: str) -> str:
    """Return the last non-blank line of some output, as a one-line reason."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"
