"""The gate in front of a local Prefect server: it lets in the server's own pages and programs, and no other web page.

A page of any site can send requests to a server on loopback, and a host name of its own choosing can lead there. A password keeps
such a page from doing anything. This gate keeps its requests from reaching the server at all.
"""

import base64
from collections.abc import Iterable
from typing import Any

Scope = Any
Receive = Any
Send = Any
ASGIApp = Any
Headers = list[tuple[bytes, bytes]]

LOOPBACK = "127.0.0.1"
HTTP_PORT = 80
OPEN_PATH = "/open"
"""The page that takes the password out of its own address, checks it, and leaves it where Prefect's pages look for it."""

OPEN_PAGE = b"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>dpflow</title></head><body><p>Opening the Prefect UI</p>
<script>
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
</script></body></html>"""

# No other page may show ours in a frame and have a person click there without knowing, or learn an address from a link.
PROTECTION: Headers = [
    (b"content-security-policy", b"frame-ancestors 'none'"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
]


class Gate:
    """An ASGI application that hands to another what was sent to this machine by name, and by no foreign web page.

    Args:
        app: The application behind the gate.
        port: Where it is served on 127.0.0.1.
    """

    def __init__(self, app: ASGIApp, *, port: int) -> None:
        self._app = app
        end = "" if port == HTTP_PORT else f":{port}"  # browsers leave out the usual one
        self._origin = f"http://{LOOPBACK}{end}"
        self._hosts = {f"{LOOPBACK}{end}", f"localhost{end}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or one WebSocket."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif not self._is_ours(scope):
            await self._refuse(scope, send)
        elif scope["type"] == "websocket":
            await self._app(scope, receive, send)
        elif not _has_ascii_secrets(scope):
            await _answer(send, 401, b"The password or the token is wrong.\n", b"text/plain")
        elif scope["path"] == OPEN_PATH:
            await _answer(send, 200, OPEN_PAGE, b"text/html; charset=utf-8")
        elif _is_visit(scope) and _all(scope, b"host") != [self._origin.removeprefix("http://")]:
            # Prefect's pages call the API by its address. Under another name they would be foreign to it.
            await _answer(send, 307, b"", b"text/plain", (b"location", f"{self._origin}{_target(scope)}".encode()))
        else:
            await self._app(scope, receive, _protecting(send))

    def _is_ours(self, scope: Scope) -> bool:
        hosts, origins, sites = (_all(scope, name) for name in (b"host", b"origin", b"sec-fetch-site"))
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return False  # a name that somebody else has made to lead here
        if not _target(scope).startswith("/"):
            return False  # written after our address, it could make that the address of another host
        if set(origins) - {self._origin}:
            return False
        # A browser that sends no origin says whether the page that asks is the server's own. A person may follow a link from anywhere.
        return not set(sites) - {"same-origin", "none"} or _is_visit(scope)

    async def _refuse(self, scope: Scope, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        await _answer(
            send, 403, f"This server answers its own pages only; open {self._origin}\n".encode(), b"text/plain"
        )


def _is_visit(scope: Scope) -> bool:
    """Tell whether a person opens a page in a window of its own, of which no other page can read anything."""
    if scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"}:
        return False
    return (_all(scope, b"sec-fetch-mode"), _all(scope, b"sec-fetch-dest")) == (["navigate"], ["document"])


def _all(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


def _has_ascii_secrets(scope: Scope) -> bool:
    """Tell whether the password and the token of a request, if any, are ASCII, as ours always are. Prefect fails to compare others."""
    secrets = _all(scope, b"authorization") + _all(scope, b"prefect-csrf-token")
    return all(secret.isascii() and _decoded(secret).isascii() for secret in secrets)


def _decoded(secret: str) -> bytes:
    scheme, _, credentials = secret.partition(" ")
    try:
        return base64.b64decode(credentials) if scheme == "Basic" else b""
    except ValueError:  # Prefect refuses it
        return b""


def _target(scope: Scope) -> str:
    query = scope.get("query_string", b"").decode("latin-1")
    path = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
    return f"{path}?{query}" if query else path


def _protecting(send: Send) -> Send:
    async def protected(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *PROTECTION]}
        await send(message)

    return protected


async def _answer(send: Send, status: int, body: bytes, kind: bytes, *more: tuple[bytes, bytes]) -> None:
    headers: Iterable[tuple[bytes, bytes]] = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *more,
        *PROTECTION,
    ]
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})
