"""Who works on a run: this process, in a form in which other processes can tell whether it is gone for sure."""

import os
import socket
from pathlib import Path


def this_worker() -> str:
    """Return this process's name for a lease: the machine, the process number, and the moment the process began.

    >>> this_worker() == this_worker()
    True
    """
    return f"{socket.gethostname()} {os.getpid()} {_began(os.getpid()) or 0}"


def surely_gone(holder: str) -> bool:
    """Say whether a worker is known to have ended: one of this machine whose process is no more.

    Of a worker elsewhere, or one whose name does not read, nothing is known.

    >>> surely_gone(this_worker())
    False
    """
    try:
        machine, process, began = holder.rsplit(" ", 2)
        number, moment = int(process), int(began)
    except ValueError:
        return False
    if machine != socket.gethostname() or not moment:
        return False
    try:
        os.kill(number, 0)  # sends nothing, and tells whether there is a process to send it to
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return _began(number) not in {None, moment}


def _began(process: int) -> int | None:
    """Return when a process began, in ticks since the machine did; 0 if it has ended, None if there is no way to know."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The second field, the program's name in brackets, may hold spaces and brackets of its own.
    fields = status.rpartition(")")[2].split()
    return 0 if fields[0] in {"Z", "X"} else int(fields[19])
