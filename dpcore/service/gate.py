"""The gate of an HTTP server: known host names, its own pages only, bodies of one clear length, and headers that keep its answers to itself.

A page of any site can send requests to a server on loopback, and can make a host name of its own lead there (DNS rebinding). Such a page
has no token and no password. The gate rejects its requests before they reach the application.

Whoever disagrees with the server about where a request ends can pass off the rest of its body as another request (request smuggling). So
the gate rejects a request that gives its length in two ways, and the connection ends with every request that was not read to its end.
"""

from collections.abc import Collection
from typing import Any

from starlette.responses import JSONResponse

Scope = Any
Receive = Any
Send = Any
Headers = list[tuple[bytes, bytes]]

MOST_BYTES = 16_384
"""The largest body of a request to the service."""

WAIT_SECONDS = 30
"""For how long a server waits for a client: for a whole request, or until the client goes on reading."""

FOREIGN = (
    "this server answers under its own names only, and no pages of other sites; "
    "open the address that dpflow has printed, or see --name of serve-answers"
)
POLICY_VIOLATION = 1008

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The console loads and contacts nothing but this service, and no inline script runs."""

HEADERS: Headers = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


class Gate:
    """An ASGI application that forwards only sound requests for one of its names that come from no foreign page.

    Args:
        app: The application behind the gate.
        hosts: Host names, with their ports, under which the server is reached.
        origins: The origins of its own pages; by default those of all its host names.
        most_bytes: The largest body of a request; None for any, also without a length that is known beforehand.
    """

    def __init__(
        self,
        app: Any,
        *,
        hosts: Collection[str],
        origins: Collection[str] | None = None,
        most_bytes: int | None = MOST_BYTES,
    ) -> None:
        self._app = app
        self._hosts = {host.lower() for host in hosts}
        own = {f"{scheme}://{host}" for host in self._hosts for scheme in ("http", "https")}
        self._origins = own if origins is None else set(origins)
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or one WebSocket."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http":
            receive, send = self._guarded(scope, receive, send)
        refusal = self._refusal(scope)
        if refusal is None:
            await self._serve(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        else:
            status, code, reason = refusal
            response = JSONResponse({"error": {"code": code, "reason": reason}}, status)
            await response(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def _headers(self, scope: Scope) -> Headers:  # noqa: ARG002  other servers have pages of several kinds
        """Return the headers of every answer, also of refusals."""
        return HEADERS

    def _guarded(self, scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send]:
        """Add headers to an answer, and close the connection after it if it starts before the request was read to its end."""
        unread = bool(values(scope, b"transfer-encoding") or set(values(scope, b"content-length")) - {"0"})

        async def received() -> Any:
            nonlocal unread
            message = await receive()
            unread = unread and message.get("more_body", False)
            return message

        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                closing = [(b"connection", b"close")] if unread else []
                message = {**message, "headers": [*message.get("headers", []), *self._headers(scope), *closing]}
            await send(message)

        return received, sent

    def _refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        """Return status, code and reason if a request is refused."""
        if not self._is_ours(scope):
            return 403, "origin", FOREIGN
        sizes, most = values(scope, b"content-length"), self._most_bytes
        if values(scope, b"transfer-encoding") and (sizes or most is not None):
            return 411, "size", "send the body in one piece, with its Content-Length and without a Transfer-Encoding"
        if most is not None and any(not size.isdecimal() or int(size) > most for size in sizes):
            return 413, "size", f"a request has at most {most:,} bytes; send a shorter one"
        return None

    def _is_ours(self, scope: Scope) -> bool:
        hosts, origins, sites = (values(scope, name) for name in (b"host", b"origin", b"sec-fetch-site"))
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return False  # a foreign host name that resolves to this machine
        if not target(scope).startswith("/"):
            return False  # appended to an origin in a redirect, it could name another host
        if {origin.lower() for origin in origins} - self._origins:
            return False
        # Without an Origin header, Sec-Fetch-Site says whether the server's own page asks. A person may follow a link from anywhere.
        return not set(sites) - {"same-origin", "none"} or is_visit(scope)


def is_visit(scope: Scope) -> bool:
    """Return whether a person opens a page as a top-level document, which no other page can read."""
    if scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"}:
        return False
    return (values(scope, b"sec-fetch-mode"), values(scope, b"sec-fetch-dest")) == (["navigate"], ["document"])


def values(scope: Scope, name: bytes) -> list[str]:
    """Return all values of a header of a request."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


def target(scope: Scope) -> str:
    """Return path and query of a request, as the client has sent them."""
    query = scope.get("query_string", b"").decode("latin-1")
    path = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
    return f"{path}?{query}" if query else path
