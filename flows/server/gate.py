"""The gate in front of a local Prefect server: it admits programs and the server's own pages, and rejects other web pages.

A page of any site can send requests to a server on loopback, and can make a host name of its own resolve there (DNS rebinding). The
password keeps the page from doing anything; this gate keeps its requests from reaching the server at all.
"""

import base64
import hashlib
import json
from collections.abc import Iterable
from typing import Any

Scope = Any
Receive = Any
Send = Any
ASGIApp = Any
Headers = list[tuple[bytes, bytes]]

LOOPBACK = "127.0.0.1"
HTTP_PORT = 80
POLICY_VIOLATION = 1008
OPEN_PATH = "/open"
"""Path of the login page, and of any path below it. The page moves the password from its own address to where Prefect's pages read it."""

OPEN_SCRIPT = """
const say = text => { document.querySelector("p").textContent = text }
const old = "This address is no longer valid. Run dpflow ui again, and open the address that it prints."
const open = () => {
  const said = location.hash.slice(1)
  history.replaceState(null, "", location.pathname)
  let token
  try { token = btoa(decodeURIComponent(said)) } catch { return say(old) }
  fetch("/api/admin/version", {headers: {Authorization: `Basic ${token}`}}).then(answer => {
    if (!answer.ok) { return say(old) }
    localStorage.setItem("prefect-password", token)
    location.replace("/dashboard")
  }).catch(() => say("The server does not answer. Run dpflow ui, and open the address that it prints."))
}
addEventListener("hashchange", open)
open()
"""

DESCRIPTIONS = frozenset(
    f"{base}/{page}" for base in ("", "/api") for page in ("docs", "docs/oauth2-redirect", "redoc", "openapi.json")
)
"""Prefect's pages about its API. They need no password, and load scripts from other hosts, which could read the stored password."""

# No other page may frame ours to capture clicks, or learn an address from the referrer of a link.
PROTECTION: Headers = [
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),  # a page that opened ours gets no handle to its window
]


def content_policy(host: str, *, inline: str | None = None) -> bytes:
    """Return the content security policy under which our pages load nothing from, and send nothing to, other hosts.

    Args:
        host: Name and port of the server.
        inline: The only inline script that the page may run.
    """
    own = f" 'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'" if inline else ""
    rules = {
        "default-src": "'self'",
        "script-src": f"'self' 'unsafe-eval'{own}",  # the run graph compiles shader bindings
        "style-src": "'self' 'unsafe-inline'",  # Prefect's pages set styles on elements
        "img-src": "'self' data:",  # the plots of our artifacts
        "font-src": "'self' data:",
        "worker-src": "'self' blob:",  # Markdown is rendered in a worker
        "connect-src": f"'self' ws://{host}",
        "frame-ancestors": "'none'",
        "object-src": "'none'",
        "base-uri": "'self'",
        "form-action": "'self'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items()).encode()


class Gate:
    """An ASGI application that forwards only requests that name this machine as host and come from no foreign web page.

    Args:
        app: The application behind the gate.
        port: The port of 127.0.0.1 on which it is served.
    """

    def __init__(self, app: ASGIApp, *, port: int) -> None:
        self._app = app
        end = "" if port == HTTP_PORT else f":{port}"  # browsers omit the default port
        self._host = f"{LOOPBACK}{end}"
        self._origin = f"http://{self._host}"
        self._hosts = {self._host, f"localhost{end}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or one WebSocket."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif not self._is_ours(scope):
            await self._refuse(scope, send)
        elif scope["type"] == "websocket":
            await self._app(scope, _with_sound_token(receive, send), send)
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        opens = scope["path"] == OPEN_PATH or scope["path"].startswith(f"{OPEN_PATH}/")
        protected = _protecting(send, content_policy(self._host))
        if not _has_ascii_secrets(scope):
            await _answer(protected, 401, b"The password or the token is wrong.\n", b"text/plain")
        elif (opens or _is_visit(scope)) and _all(scope, b"host") != [self._host]:
            # Prefect's pages call the API at 127.0.0.1. Loaded as localhost they would be of another origin, with a storage of their own.
            await _answer(protected, 307, b"", b"text/plain", (b"location", f"{self._origin}{_target(scope)}".encode()))
        elif opens:
            protected = _protecting(send, content_policy(self._host, inline=OPEN_SCRIPT))
            await _answer(protected, 200, _open_page(), b"text/html; charset=utf-8")
        elif scope["path"] in DESCRIPTIONS:
            await _answer(protected, 404, b"This server does not describe its API.\n", b"text/plain")
        else:
            await self._app(scope, receive, protected)

    def _is_ours(self, scope: Scope) -> bool:
        hosts, origins, sites = (_all(scope, name) for name in (b"host", b"origin", b"sec-fetch-site"))
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return False  # a foreign host name that resolves to this machine
        if not _target(scope).startswith("/"):
            return False  # appended to our origin in a redirect, it could name another host
        if set(origins) - {self._origin}:
            return False
        # Without an Origin header, Sec-Fetch-Site says whether the server's own page asks. A person may follow a link from anywhere.
        return not set(sites) - {"same-origin", "none"} or _is_visit(scope)

    async def _refuse(self, scope: Scope, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
            return
        words = f"This server only answers its own pages; open {self._origin}\n"
        await _answer(_protecting(send, content_policy(self._host)), 403, words.encode(), b"text/plain")


def _is_visit(scope: Scope) -> bool:
    """Return whether a person opens a page as a top-level document, which no other page can read."""
    if scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"}:
        return False
    return (_all(scope, b"sec-fetch-mode"), _all(scope, b"sec-fetch-dest")) == (["navigate"], ["document"])


def _all(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


def _has_ascii_secrets(scope: Scope) -> bool:
    """Return whether any password and CSRF token of a request are ASCII, as ours always are. Prefect raises when it compares others."""
    given = _all(scope, b"authorization") + _all(scope, b"prefect-csrf-token")
    return all(secret.isascii() and _decoded(secret).isascii() for secret in given)


def _decoded(secret: str) -> bytes:
    try:
        scheme, credentials = secret.split()  # at any whitespace, as Prefect does
        return base64.b64decode(credentials) if scheme == "Basic" else b""
    except ValueError:  # Prefect rejects it
        return b""


def _with_sound_token(receive: Receive, send: Send) -> Receive:
    """Close a WebSocket if its first message, which must carry the password, is malformed in a way that makes Prefect raise."""
    first = [True]

    async def checked() -> Any:
        message = await receive()
        if message["type"] == "websocket.receive" and first:
            first.clear()
            if not _is_sound(message.get("text")):
                await send({"type": "websocket.close", "code": POLICY_VIOLATION})
                return {"type": "websocket.disconnect", "code": POLICY_VIOLATION}
        return message

    return checked


def _is_sound(text: str | None) -> bool:
    try:
        said = json.loads(text or "")
    except (ValueError, RecursionError):
        return False
    if not isinstance(said, dict):
        return False
    token = said.get("token")
    return token is None or (isinstance(token, str) and token.isascii())


def _target(scope: Scope) -> str:
    query = scope.get("query_string", b"").decode("latin-1")
    path = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
    return f"{path}?{query}" if query else path


def _protecting(send: Send, policy: bytes) -> Send:
    async def protected(message: Any) -> None:
        if message["type"] == "http.response.start":
            ours = [(b"content-security-policy", policy), *PROTECTION]
            message = {**message, "headers": [*message.get("headers", []), *ours]}
        await send(message)

    return protected


def _open_page() -> bytes:
    head = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>dpflow</title></head>'
    return f"{head}<body><p>Opening the Prefect UI</p>\n<script>{OPEN_SCRIPT}</script></body></html>".encode()


async def _answer(send: Send, status: int, body: bytes, kind: bytes, *more: tuple[bytes, bytes]) -> None:
    headers: Iterable[tuple[bytes, bytes]] = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})
