"""The steward's own log: what broke in a private step, in full, for nobody else.

A traceback may quote the raw table, so it goes into a file that only the account that runs dpflow can read, and never
into a message, a run's log or a database. Everything public names this file and nothing that is in it.
"""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from dpcore.errors import UsageError
from dpcore.places import private_folder

FILE_NAME = "failures.log"
OUTPUT_NAME = "output.log"


def record(error: BaseException, *, where: str = "dpflow") -> Path | None:
    """Append the error with its traceback and its causes, and return the file, or None if it could not be written.

    Args:
        error: What was raised; nothing of it is changed.
        where: The public name of what raised it, such as a step's.
    """
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001  the __str__ of a foreign error may itself fail, and the run goes on
        text = f"{type(error).__name__}, whose text could not be made\n"
    return note(text, where=where)


def note(text: str, *, where: str, name: str = FILE_NAME) -> Path | None:
    """Append a text under a dated heading, and return the file, or None if it could not be written.

    A log that cannot be written is no reason to lose a run that has already paid for its measurements, so nothing is raised.
    """
    entry = f"=== {datetime.now(UTC).isoformat(timespec='seconds')} {where}\n{text.rstrip()}\n\n"
    try:
        return _append(entry.encode(errors="backslashreplace"), name)
    except (OSError, UsageError):  # the second: no folder can be trusted
        return None


@contextmanager
def output_taken() -> Iterator[None]:
    """Let everything that this process, or a library in it, writes to its output and error streams go to the steward's folder.

    Where nothing can be written there it goes nowhere. For processes whose streams others read, such as a worker's.
    """
    try:
        log = _opened(OUTPUT_NAME)
    except (OSError, UsageError):
        log = os.open(os.devnull, os.O_WRONLY)
    streams = (sys.stdout, sys.stderr)
    for stream in streams:
        stream.flush()
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    try:
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        yield
    finally:
        for stream in streams:
            stream.flush()
        for descriptor, before in zip((1, 2), kept, strict=True):
            os.dup2(before, descriptor)
        for descriptor in (log, *kept):
            os.close(descriptor)


def _append(entry: bytes, name: str) -> Path:
    descriptor = _opened(name)
    try:
        # One write, so that the entries of processes that fail together do not interleave.
        os.write(descriptor, entry)
    finally:
        os.close(descriptor)
    return private_folder() / name


def _opened(name: str) -> int:
    """Open a file of the steward's folder to append to it, closed to everybody else."""
    place = private_folder()
    place.parent.mkdir(parents=True, exist_ok=True)
    # A folder that already exists keeps the mode its owner gave it: the file alone is then what is closed to others.
    place.mkdir(mode=0o700, exist_ok=True)
    # Not followed if it is a link: in a folder that others may write to, it could point anywhere.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(place / name, flags, 0o600)
    if hasattr(os, "fchmod"):
        os.fchmod(descriptor, 0o600)
    return descriptor
