"""The temporary Prefect server's process: it lives as long as its standard input is open, and not longer.

Run as a file, by `flows.server.temporary`, which holds the other end of the pipe. When that process ends, however it
ends, the pipe closes and the server stops: `kill -9` leaves nothing running.
"""

import os
import socket
import sys
import threading
from typing import Any

GRACE_SECONDS = 10


def main() -> None:
    """Print the port, then serve Prefect's API on it until standard input closes."""
    # Listening starts before the slow imports: whoever connects already is answered as soon as the server is up, so that
    # nobody has to poll for it, and no other program can take the port in between.
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    servers: list[Any] = []
    threading.Thread(target=_stop_at_end_of_input, args=(servers,), daemon=True).start()

    import uvicorn  # noqa: PLC0415  as late as can be, see above

    from flows.server.app import server_app  # noqa: PLC0415

    # Both ends are on this machine: compressing what they say to each other would cost more than it saves.
    app = server_app(listening.getsockname()[1])
    config = uvicorn.Config(app, log_level="error", lifespan="on", ws_per_message_deflate=False)
    server = uvicorn.Server(config)
    servers.append(server)
    server.run(sockets=[listening])
    # The database is closed by now; what else Prefect does at the end of a process takes seconds and serves nobody.
    os._exit(0 if server.started else 1)


def _stop_at_end_of_input(servers: list[Any]) -> None:
    # Not through sys.stdin, whose lock, held by this thread, would turn the end of a failed start into a crash.
    while os.read(0, 1):
        pass
    if servers and servers[0].started:
        servers[0].should_exit = True
        threading.Event().wait(GRACE_SECONDS)
    # A server that is still making its database may be cut off: that happens in one transaction.
    os._exit(0)


if __name__ == "__main__":
    main()
