"""The gate in front of a local Prefect server: it also logs in a person, and rejects secrets that Prefect can't compare."""

import asyncio
import base64
import hashlib
import json
from typing import Any

from starlette.responses import HTMLResponse, PlainTextResponse, Response

from dpcore.service.gate import (
    POLICY_VIOLATION,
    WAIT_SECONDS,
    Headers,
    Receive,
    Scope,
    Send,
    is_visit,
    target,
    values,
)
from dpcore.service.gate import Gate as ServiceGate

LOOPBACK = "127.0.0.1"
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


class Gate(ServiceGate):
    """An ASGI application that forwards only requests that name this machine as host and come from no foreign web page.

    Args:
        app: The application behind the gate.
        port: The port of 127.0.0.1 on which it is served.
    """

    def __init__(self, app: Any, *, port: int) -> None:
        end = "" if port == 80 else f":{port}"  # browsers omit the default port
        self._host = f"{LOOPBACK}{end}"
        self._origin = f"http://{self._host}"
        super().__init__(app, hosts=[self._host, f"localhost{end}"], origins=[self._origin], most_bytes=None)

    def _headers(self, scope: Scope) -> Headers:
        inline = OPEN_SCRIPT if _opens(scope) else None
        return [(b"content-security-policy", content_policy(self._host, inline=inline)), *PROTECTION]

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await super()._serve(scope, _with_sound_token(receive, send), send)
        else:
            await (self._own_answer(scope) or super()._serve)(scope, receive, send)

    def _own_answer(self, scope: Scope) -> Response | None:
        """Return the gate's own answer to a request; None if Prefect answers it."""
        if not _has_ascii_secrets(scope):
            return PlainTextResponse("The password or the token is wrong.\n", 401)
        if (_opens(scope) or is_visit(scope)) and values(scope, b"host") != [self._host]:
            # Prefect's pages call the API at 127.0.0.1. Loaded as localhost they would be of another origin, with a storage of their own.
            return PlainTextResponse("", 307, {"location": f"{self._origin}{target(scope)}"})
        if _opens(scope):
            return HTMLResponse(_open_page(), headers={"cache-control": "no-store"})
        if scope["path"] in DESCRIPTIONS:
            return PlainTextResponse("This server does not describe its API.\n", 404)
        return None


def _opens(scope: Scope) -> bool:
    return bool(scope["path"] == OPEN_PATH or scope["path"].startswith(f"{OPEN_PATH}/"))


def _has_ascii_secrets(scope: Scope) -> bool:
    """Return whether any password and CSRF token of a request are ASCII, as ours always are. Prefect raises when it compares others."""
    secrets = values(scope, b"authorization") + values(scope, b"prefect-csrf-token")
    return all(secret.isascii() and _decoded(secret).isascii() for secret in secrets)


def _decoded(secret: str) -> bytes:
    try:
        scheme, credentials = secret.split()  # at any whitespace, as Prefect does
        return base64.b64decode(credentials) if scheme == "Basic" else b""
    except ValueError:  # Prefect rejects it
        return b""


def _with_sound_token(receive: Receive, send: Send) -> Receive:
    """Close a WebSocket if its first message, which must carry the password, is late or makes Prefect raise."""
    first = True

    async def checked() -> Any:
        nonlocal first
        try:
            async with asyncio.timeout(WAIT_SECONDS if first else None):
                message = await receive()
        except TimeoutError:
            message = {"type": "websocket.receive"}
        if message["type"] == "websocket.receive" and first:
            first = False
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


def _open_page() -> str:
    head = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>dpflow</title></head>'
    return f"{head}<body><p>Opening the Prefect UI</p>\n<script>{OPEN_SCRIPT}</script></body></html>"
