"""The process of the temporary Prefect server. It stops when its standard input closes.

`flows.server.temporary` runs this file and holds the other end of the pipe. However that process ends, the pipe closes and the
server stops, so even `kill -9` leaves nothing running.
"""

import os
import socket
import sys
import threading
from typing import Any

GRACE_SECONDS = 10


def main() -> None:
    """Print the port, then serve Prefect's API on it until standard input closes."""
    # Listen before the slow imports: early connections are answered as soon as the server is up, so nobody has to poll, and no
    # other program can take the port in between.
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    servers: list[Any] = []
    threading.Thread(target=_stop_at_end_of_input, args=(servers,), daemon=True).start()

    import uvicorn  # noqa: PLC0415  slow, see above

    from flows.server.app import server_config  # noqa: PLC0415

    server = uvicorn.Server(server_config(listening.getsockname()[1], log_level="error", lifespan="on"))
    servers.append(server)
    server.run(sockets=[listening])
    # The database is closed by now. Prefect's remaining exit handlers take seconds and do nothing useful here.
    os._exit(0 if server.started else 1)


def _stop_at_end_of_input(servers: list[Any]) -> None:
    # Not sys.stdin: this thread would hold its lock, and exiting after a failed start would crash.
    while os.read(0, 1):
        pass
    if servers and servers[0].started:
        servers[0].should_exit = True
        threading.Event().wait(GRACE_SECONDS)
    # A server that is still creating its database can be cut off, because that is one transaction.
    os._exit(0)


if __name__ == "__main__":
    main()
