"""The steward's private log: complete tracebacks of failures in private steps.

A traceback may quote the raw table, so it goes to a file that only the user who runs dpflow can read, and never to a message, a
run's log or a database. Public messages name this file, and nothing of its content.
"""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from dpcore.errors import UsageError
from dpcore.places import made_private_folder, private_folder

FILE_NAME = "failures.log"
OUTPUT_NAME = "output.log"
LARGEST = 8 << 20
"""The size in bytes from which a log is put aside as NAME.1, in the place of the one before it. So two files are kept, and failures that
somebody causes again and again do not fill the disk."""


def record(error: BaseException, *, where: str = "dpflow") -> Path | None:
    """Append an error with its traceback and causes. Return the file, or None if it could not be written.

    Args:
        error: The error, which is not modified.
        where: The public name of the step or part that raised it.
    """
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001  the __str__ of another library's error may itself fail, and the run continues
        text = f"{type(error).__name__}, which could not be formatted\n"
    return note(text, where=where)


def note(text: str, *, where: str, name: str = FILE_NAME) -> Path | None:
    """Append a text under a dated heading. Return the file, or None if it could not be written.

    Never raises: a log that cannot be written must not fail a run that has already paid for its measurements.
    """
    entry = f"=== {datetime.now(UTC).isoformat(timespec='seconds')} {where}\n{text.rstrip()}\n\n"
    try:
        return _append(entry.encode(errors="backslashreplace"), name)
    except (OSError, UsageError):  # UsageError: no folder can be trusted
        return None


@contextmanager
def output_taken() -> Iterator[None]:
    """Redirect the standard output and error of this process, libraries included, to the steward's private folder.

    If that folder cannot be written, the output is discarded. For processes whose streams others can read, such as a worker's.
    """
    try:
        log = _opened(OUTPUT_NAME)
    except (OSError, UsageError):
        log = os.open(os.devnull, os.O_WRONLY)
    streams = (sys.stdout, sys.stderr)
    for stream in streams:
        stream.flush()
    saved = [os.dup(descriptor) for descriptor in (1, 2)]
    try:
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        yield
    finally:
        for stream in streams:
            stream.flush()
        for descriptor, before in zip((1, 2), saved, strict=True):
            os.dup2(before, descriptor)
        for descriptor in (log, *saved):
            os.close(descriptor)


def _append(entry: bytes, name: str) -> Path:
    descriptor = _opened(name)
    try:
        # A single write, so that entries of concurrent processes do not interleave.
        os.write(descriptor, entry)
    finally:
        os.close(descriptor)
    return private_folder() / name


def _opened(name: str) -> int:
    """Open a file in the steward's private folder for appending, readable only by this user. A large one is put aside first."""
    place = made_private_folder()  # if it existed, only the file's own mode may protect it
    with suppress(OSError):
        if (place / name).lstat().st_size > LARGEST:
            (place / name).replace(place / f"{name}.1")
    # Do not follow a link: in a folder that others may write to, it could point anywhere.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(place / name, flags, 0o600)
    if hasattr(os, "fchmod"):
        os.fchmod(descriptor, 0o600)
    return descriptor
