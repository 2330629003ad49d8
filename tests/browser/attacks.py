"""What a web page can try on a server that is not its own, and a server that notes which of it arrives."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import uvicorn
from playwright.sync_api import BrowserContext

from tests.flows.stack import wait_for

SECRET = "Kd3_read%"  # noqa: S105  what the server tells whoever may read
WRITES = ("urlencoded", "multipart", "plain", "blob", "beacon", "json", "credentials", "put", "delete")
READS = ("get", "read-credentials", "image", "script", "frame", "events")
SOCKET = "socket"
ATTACKS = (*WRITES, *READS, SOCKET)

# Each attack is waited for until the browser says how it ended, and returns what the page has learned.
SCRIPT = """async ({write, read, socket, body}) => {
  const told = {}, at = (path, name) => path.replace("NAME", name)
  const ended = (it, good, bad) => new Promise(done => { it[good] = () => done("loaded"); it[bad] = () => done(null); setTimeout(() => done(null), 20000) })
  const form = (name, enctype) => {
    const frame = document.createElement("iframe"), made = document.createElement("form"), field = document.createElement("input")
    frame.name = name; document.body.append(frame)
    Object.assign(made, {method: "post", enctype, target: name, action: at(write, name)})
    // As text/plain a form sends NAME=VALUE: put together, that is JSON.
    Object.assign(field, {name: body.slice(0, -1) + ', "x": "', value: '"}'}); made.append(field); document.body.append(made)
    const over = new Promise(done => { frame.onload = () => done(null); setTimeout(() => done(null), 20000) })
    made.submit(); return over
  }
  const element = (name, tag, key) => { const it = document.createElement(tag); const over = ended(it, "onload", "onerror"); it[key] = at(read, name); document.body.append(it); return over }
  const ask = (path, options) => fetch(path, options).then(answer => answer.text()).catch(() => null)
  const untyped = () => new Blob([body]), json = {"Content-Type": "application/json"}
  told.beacon = navigator.sendBeacon(at(write, "beacon"), untyped()) && null
  told.blob = await ask(at(write, "blob"), {method: "POST", mode: "no-cors", body: untyped()})
  told.urlencoded = await form("urlencoded", "application/x-www-form-urlencoded")
  told.multipart = await form("multipart", "multipart/form-data")
  told.plain = await form("plain", "text/plain")
  told.json = await ask(at(write, "json"), {method: "POST", headers: json, body})
  told.credentials = await ask(at(write, "credentials"), {method: "POST", mode: "no-cors", credentials: "include", body})
  told.put = await ask(at(write, "put"), {method: "PUT", headers: json, body})
  told.delete = await ask(at(write, "delete"), {method: "DELETE"})
  told.get = await ask(at(read, "get"), {})
  told["read-credentials"] = await ask(at(read, "read-credentials"), {mode: "no-cors", credentials: "include"})
  told.image = await element("image", "img", "src") && null
  told.script = await element("script", "script", "src") && null
  told.frame = await element("frame", "iframe", "src") && null
  const events = new EventSource(at(read, "events")); told.events = await ended(events, "onopen", "onerror"); events.close()
  const ws = new WebSocket(at(socket, "socket"), ["prefect"]); told.socket = await ended(ws, "onopen", "onerror"); ws.close()
  return told
}"""


@dataclass(frozen=True)
class Target:
    """The addresses that are attacked, in which NAME stands for the attack."""

    write: str
    read: str
    socket: str
    body: str = "{}"


@dataclass
class Recorder:
    """A server as careless as can be: everybody may do and read everything. It notes what arrives, by the attack's name."""

    reached: list[str] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            return
        preflight = scope.get("method") == "OPTIONS"
        if not preflight:
            self.reached.append(scope["path"].rpartition("/")[2])
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept", "subprotocol": "prefect"})
            return
        kind = b"text/event-stream" if scope["path"].endswith("/events") else b"text/html"
        open_to_all = [(f"access-control-allow-{name}".encode(), b"*") for name in ("origin", "methods", "headers")]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind), *open_to_all]})
        await send({"type": "http.response.body", "body": SECRET.encode()})


@contextmanager
def serving(app: Any, port: int) -> Iterator[Target]:
    """Serve an application on a port, and yield where to attack it."""
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_for(lambda: server.started, "a server of a test")
        yield target_of("127.0.0.1", port)
    finally:
        server.should_exit = True
        thread.join(30)


def target_of(host: str, port: int) -> Target:
    """Return where a recorder is attacked under a name."""
    return Target(f"http://{host}:{port}/w/NAME", f"http://{host}:{port}/r/NAME", f"ws://{host}:{port}/s/NAME")


class Elsewhere(BaseHTTPRequestHandler):
    """The site of the attacker: an empty page."""

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title><body></body>")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def elsewhere() -> Iterator[int]:
    """Serve the attacker's page on a port of its own, and yield that."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield int(server.server_address[1])
        server.shutdown()


def attack(context: BrowserContext, page: str, target: Target) -> dict[str, str | None]:
    """Open a page and try everything from there; return what the page has learned, by attack.

    Whatever has the path `/rebound` is answered here: a page that was loaded while its host name still led to the attacker.

    Args:
        context: The browser's profile of the person who is attacked, who may be logged in in another window.
        page: The attacker's page.
        target: Where the requests go.
    """
    opened = context.new_page()
    empty = "<!doctype html><body></body>"
    opened.route("**/rebound", lambda route: route.fulfill(content_type="text/html", body=empty))
    opened.goto(page)
    told = dict(opened.evaluate(SCRIPT, vars(target)))
    opened.close()
    return told
