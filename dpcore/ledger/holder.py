"""Names for the workers that hold leases, from which other processes can tell whether a worker has certainly ended."""

import os
import socket
from functools import cache
from hashlib import sha256
from pathlib import Path

UNKNOWN = "0"


def this_worker() -> str:
    """Return this process's name for a lease: host, process id, and hashes of its start time and its process id namespace.

    A history is published with these names, and start times would tell how long the runs before took.

    >>> this_worker() == this_worker()
    True
    """
    return worker(os.getpid())


def worker(process: int) -> str:
    """Return the name of a process in this process's id namespace."""
    return f"{socket.gethostname()} {process} {_birth(process) or UNKNOWN}@{_pid_namespace()}"


def process_of(holder: str) -> str:
    """Name a worker's process and its machine for people.

    >>> process_of("clinic 4711 0123@4567")
    'process 4711 on clinic'
    """
    machine, process, _ = f"{holder} ? ?".split(" ", 2)
    return f"process {process} on {machine}"


def surely_gone(holder: str) -> bool:
    """Return whether a worker has certainly ended: it is in this process id namespace, and its process no longer exists.

    Return False for a worker on another machine or in another container, and for a name that cannot be parsed.

    >>> surely_gone(this_worker())
    False
    """
    try:
        machine, process, born = holder.rsplit(" ", 2)
        began, _, numbering = born.partition("@")
        number = int(process)
    except ValueError:
        return False
    if (machine, numbering) != (socket.gethostname(), _pid_namespace()) or began == UNKNOWN or not numbering:
        return False
    try:
        os.kill(number, 0)  # sends no signal, only checks that the process exists
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return _birth(number) not in {None, began}


def _birth(process: int) -> str | None:
    """Return a hash of the moment when a process started; None if it is unknown. Without the random id of this boot, nobody can find the moment."""
    moment = _start_time(process)
    return None if moment is None or not _pid_namespace() else _digest(f"{_boot()} {_pid_namespace()} {moment}")


@cache
def _pid_namespace() -> str:
    """Return a name for this process id namespace: this boot of the machine, and the container in it. Empty if unknown."""
    try:
        return _digest(f"{_boot()} {Path('/proc/self/ns/pid').readlink()}")
    except OSError:
        return ""


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


def _start_time(process: int) -> int | None:
    """Return when a process started, in clock ticks since boot; 0 if it has ended, None if unknown."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The second field is the program's name in parentheses, which may itself contain spaces and parentheses.
    fields = status.rpartition(")")[2].split()
    return 0 if fields[0] in {"Z", "X"} else int(fields[19])
