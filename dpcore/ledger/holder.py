"""Who works on a run: this process, in a form in which other processes can tell whether it is gone for sure."""

import os
import socket
from functools import cache
from hashlib import sha256
from pathlib import Path


def this_worker() -> str:
    """Return this process's name for a lease: the machine, the process number, when it began, and whose numbers these are.

    >>> this_worker() == this_worker()
    True
    """
    return worker(os.getpid())


def worker(process: int) -> str:
    """Return the name of a process that shares its numbers with this one."""
    return f"{socket.gethostname()} {process} {_began(process) or 0}@{_numbering()}"


def surely_gone(holder: str) -> bool:
    """Say whether a worker is known to have ended: one that shares this one's numbers, and whose process is no more.

    Of a worker elsewhere, in another container too, or one whose name does not read, nothing is known.

    >>> surely_gone(this_worker())
    False
    """
    try:
        machine, process, born = holder.rsplit(" ", 2)
        began, _, numbering = born.partition("@")
        number, moment = int(process), int(began)
    except ValueError:
        return False
    if (machine, numbering) != (socket.gethostname(), _numbering()) or not (moment and numbering):
        return False
    try:
        os.kill(number, 0)  # sends nothing, and tells whether there is a process to send it to
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return _began(number) not in {None, moment}


@cache
def _numbering() -> str:
    """Name what gives processes their numbers: this start of the machine, and in it the container; empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return sha256(f"{boot} {Path('/proc/self/ns/pid').readlink()}".encode()).hexdigest()[:12]
    except OSError:
        return ""


def _began(process: int) -> int | None:
    """Return when a process began, in ticks since the machine did; 0 if it has ended, None if there is no way to know."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The second field, the program's name in brackets, may hold spaces and brackets of its own.
    fields = status.rpartition(")")[2].split()
    return 0 if fields[0] in {"Z", "X"} else int(fields[19])
