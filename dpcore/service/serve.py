"""Run the service: open its parts, listen, and stop in order."""

import ipaddress
import logging
import math
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import uvicorn

from dpcore.errors import UsageError
from dpcore.service.app import make_app
from dpcore.service.connections import MOST_WAITING, ServerConfig
from dpcore.service.desk import Desk
from dpcore.service.door import Door
from dpcore.service.gate import Gate

progress = logging.getLogger("dpcore.progress")

STOP_SECONDS = 30
MOST_CONNECTIONS = 2 * MOST_WAITING
"""There is always room for connections that are served, because no more than half of all wait for their clients."""


def serve(  # noqa: PLR0913  what is served, where, and how fast
    spec: Path, *, session: str | None, host: str, port: int, names: Sequence[str] = (), rate: float
) -> str:
    """Serve a session until the process is interrupted or terminated. Return the session's id.

    Args:
        spec: The spec's path.
        session: The session's id; None for the newest open one.
        host: The address to listen on.
        port: The port; 0 for any free one.
        names: More host names, with a port if it is not the usual one, under which the service is reached, such as behind a proxy.
        rate: How many requests per second an analyst may send.

    Raises:
        UsageError: If the address cannot be used, or other machines can reach the service and no name was given.
    """
    if not (_is_loopback(host) or names):
        raise UsageError(
            f"at {host} other machines can reach the service; say under which host name, with --name, and put TLS in front"
        )
    if not (math.isfinite(rate) and rate > 0):
        raise UsageError("the rate must be above 0: so many requests a second may an analyst send")
    with ExitStack() as stack:
        listening = stack.enter_context(_listening(host, port))
        own = listening.getsockname()[1]
        desk = Desk(spec, session)
        stack.callback(desk.close)
        desk.open()
        door = Door(spec, desk.session, rate=rate)
        door.open()
        stack.callback(door.close)
        gate = Gate(make_app(desk, door), hosts=[*_own_hosts(host, own), *names])
        shown = f"[{host}]" if ":" in host else host
        progress.info("session %s at http://%s:%d/ ; stop with Ctrl-C", desk.session, shown, own)
        uvicorn.Server(_config(gate)).run(sockets=[listening])
        return desk.session


def _config(gate: Gate) -> ServerConfig:
    return ServerConfig(
        gate,
        log_config=None,  # what went wrong inside goes to the steward's log, and queries are nobody's business
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )


def _listening(host: str, port: int) -> socket.socket:
    """Listen before anything is opened, so that no other program can take the port meanwhile."""
    unusable = UsageError(f"cannot listen on {host}, port {port}; choose another address or port, or 0 for a free port")
    if not 0 <= port < 2**16:
        raise unusable
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=MOST_CONNECTIONS)
    except OSError:
        raise unusable from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _own_hosts(host: str, port: int) -> list[str]:
    """Return the names of this machine for itself, as browsers send them."""
    end = "" if port == 80 else f":{port}"
    own = ["127.0.0.1", "localhost", "[::1]"] if _is_loopback(host) else []
    return [f"{name}{end}" for name in own]
