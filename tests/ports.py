"""Ports for the servers of the tests."""

import random
import socket

from flows.server.password import BLOCKED_PORTS

PORTS = [port for port in range(10_000, 32_768) if port not in BLOCKED_PORTS]
"""Ports below those from which the system chooses for outgoing connections. It can't take one while the server of a test is down."""


def free_port() -> int:
    """Return a port on which nothing listens at the moment."""
    order = random.SystemRandom()  # several processes look for a port at the same time
    while True:
        port = order.choice(PORTS)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
