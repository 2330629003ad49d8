"""Keep one PostgreSQL server running for as long as the process that asked for it lives, however that one ends.

It runs as a process of its own: ``postgres_keeper.py PARENT FOLDER UID GID COMMAND...``. An order on standard input stops
the server: ``fast``, or ``immediate``, which is as good as a crash. The end of the input without an order means that
the parent was killed: then the server goes too, and so does its folder.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

READY = b"database system is ready to accept connections"
STDIN, STDOUT = 0, 1


def keep(command: list[str], *, parent: int, folder: Path, uid: int, gid: int) -> None:
    """Run the server until it is told to stop, and say "ready" on standard output once it takes connections."""
    server = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={"LC_ALL": "C", "TZ": "UTC"},
        user=uid,
        group=gid,
        extra_groups=[] if os.geteuid() == 0 else None,
    )
    try:
        orphaned = relay(server, parent=parent, log=folder / "log")
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGQUIT)
        server.wait()
    if orphaned:
        shutil.rmtree(folder, ignore_errors=True)


def relay(server: "subprocess.Popen[bytes]", *, parent: int, log: Path) -> bool:
    """Pass orders in and log lines out until every server process has ended; tell whether the parent died."""
    order = None
    words = server.stderr.fileno()
    with log.open("ab", buffering=0) as file:
        while True:
            # A child that the parent forked may hold the pipe open after it, so the parent is looked at as well.
            readable = select.select([words] if order is not None else [words, STDIN], [], [], 1.0)[0]
            if order is None and (STDIN in readable or os.getppid() != parent):
                order = os.read(STDIN, 16) if STDIN in readable else b""
                server.send_signal(signal.SIGINT if order == b"fast" else signal.SIGQUIT)
            if words in readable:
                line = os.read(words, 65536)
                if not line:
                    return order == b""
                file.write(line)
                if READY in line and order is None:
                    os.write(STDOUT, b"ready\n")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that `finally` stops the server
    keep(
        sys.argv[5:],
        parent=int(sys.argv[1]),
        folder=Path(sys.argv[2]),
        uid=int(sys.argv[3]),
        gid=int(sys.argv[4]),
    )
