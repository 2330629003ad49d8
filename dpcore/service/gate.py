"""The gate of the service: known host names, its own pages only, small bodies, and headers that keep its answers to itself.

A page of any site can send requests to a server on loopback, and can make a host name of its own lead there (DNS rebinding). Such a page
has no token. The gate rejects its requests before they reach the service.
"""

import json
from collections.abc import Collection
from typing import Any

from dpcore.service.problems import Problem

MOST_BYTES = 16_384
"""The largest body of a request."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The console loads and contacts nothing but this service, and no inline script runs."""

HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]

Scope = Any
Receive = Any
Send = Any


class Gate:
    """An ASGI application that forwards only small requests for one of its names that come from no foreign page.

    Args:
        app: The application behind the gate.
        hosts: Host names, with their ports, under which the service is reached.
    """

    def __init__(self, app: Any, *, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = {host.lower() for host in hosts}
        self._origins = {f"{scheme}://{host}" for host in self._hosts for scheme in ("http", "https")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return  # there are no WebSockets here
        protected = _protecting(send)
        problem = self._problem(scope)
        if problem is not None:
            await _refuse(protected, *problem)
            return
        await self._app(scope, receive, protected)

    def _problem(self, scope: Scope) -> tuple[int, Problem] | None:
        hosts, origins, sites = (_all(scope, name) for name in (b"host", b"origin", b"sec-fetch-site"))
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return 403, Problem(code="host", reason="this service is not reached under that host name; see its --name")
        if {origin.lower() for origin in origins} - self._origins:
            return 403, Problem(code="origin", reason="pages of other sites cannot use this service")
        if set(sites) - {"same-origin", "none"} and not _is_visit(scope):
            return 403, Problem(code="origin", reason="pages of other sites cannot use this service")
        if _all(scope, b"transfer-encoding"):
            return 411, Problem(code="size", reason="send the body in one piece, with its Content-Length")
        sizes = _all(scope, b"content-length")
        if any(not size.isdecimal() or int(size) > MOST_BYTES for size in sizes):
            return 413, Problem(code="size", reason=f"a request has at most {MOST_BYTES:,} bytes; send a shorter query")
        return None


def _is_visit(scope: Scope) -> bool:
    """Return whether a person opens a page as a top-level document, which no other page can read."""
    if scope["method"] not in {"GET", "HEAD"}:
        return False
    return (_all(scope, b"sec-fetch-mode"), _all(scope, b"sec-fetch-dest")) == (["navigate"], ["document"])


def _all(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


def _protecting(send: Send) -> Send:
    async def protected(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *HEADERS]}
        await send(message)

    return protected


async def _refuse(send: Send, status: int, problem: Problem) -> None:
    body = json.dumps({"error": problem.model_dump(exclude_none=True)}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
