"""The Chromium of this machine, as a person would use it, with every request that it makes written down."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",  # as root, in a container, there is none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LOCAL_CHECKS = "LocalNetworkAccessChecks,LocalNetworkAccessChecksWebSockets,BlockInsecurePrivateNetworkRequests"
WITHOUT_HOST = {"data", "blob", "about", "file"}
SCREENSHOTS = Path(__file__).parents[2] / "test-output" / "screenshots"
PICTURES = bool(os.environ.get("DPFLOW_SCREENSHOTS"))
SCHEMES = ("dark", "light")
WIDTH, HEIGHT = 1280, 1000
POLICY = "Content Security Policy"
ACTION_MILLISECONDS = 300_000


@dataclass(frozen=True)
class Visitor:
    """A person with one page open."""

    page: Page
    requests: list[str] = field(default_factory=list)
    """What was asked for. What the policy of a page kept the browser from asking is not among it."""
    blocked: list[str] = field(default_factory=list)
    """What the browser says of things that a page's own policy does not let it do."""

    @property
    def outside(self) -> list[str]:
        """The requests that were not for this machine."""
        return [url for url in self.requests if is_outside(url)]

    def shoot(self, name: str, *, schemes: tuple[str, ...] = SCHEMES) -> None:
        """Keep pictures of the whole page, in dark and in light, if `DPFLOW_SCREENSHOTS` is set: somebody wants to look at them."""
        if not PICTURES:
            return
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        before = self.page.viewport_size or {"width": WIDTH, "height": HEIGHT}
        self.page.set_viewport_size({"width": before["width"], "height": max(HEIGHT, self._height())})
        for scheme in schemes:
            self.wear(scheme)
            self.page.screenshot(path=SCREENSHOTS / f"{name}-{scheme}.png", animations="disabled")
        self.page.set_viewport_size(before)

    def wear(self, scheme: str) -> None:
        """Switch to dark or light: for a page that asks the system, and for Prefect's, which go by the class of their root."""
        self.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        self.page.evaluate("scheme => { document.documentElement.className = scheme }", scheme)

    def _height(self) -> int:
        """The height of all there is; in Prefect's pages it is a part of the page that scrolls."""
        return int(
            self.page.evaluate(
                "() => (document.querySelector('.app-router-view') ?? document.documentElement).scrollHeight"
            )
        )


def is_outside(url: str) -> bool:
    """Tell whether a request goes to another machine, or may."""
    parts = urlsplit(url)
    return parts.scheme not in WITHOUT_HOST and parts.hostname != "127.0.0.1"


def browser_path() -> str:
    """Return where the browser is; without one, skip the test, or fail it where a browser is required."""
    for name in NAMES:
        if found := shutil.which(name):
            return found
    if os.environ.get("CI") or os.environ.get("DPFLOW_SKIP_NOTHING"):
        pytest.fail("no Chromium is installed, and here the browser tests must run")
    pytest.skip("no Chromium is installed (Debian: apt install chromium)")


@contextmanager
def launched(names: tuple[str, ...] = ()) -> Iterator[Browser]:
    """Start a browser and close it at the end. Never for the whole session: meanwhile nothing else here can use asyncio.

    Args:
        names: Host names that lead to this machine, which new Chromiums would let no page use so; they are told to be as other browsers
            are. Whatever a page or the browser itself may want, no other name leads anywhere.
    """
    path = browser_path()
    rules = ", ".join([*(f"MAP {name} 127.0.0.1" for name in names), "MAP * ~NOTFOUND", "EXCLUDE 127.0.0.1"])
    flags = [*FLAGS, f"--host-resolver-rules={rules}", *([f"--disable-features={LOCAL_CHECKS}"] if names else [])]
    expect.set_options(timeout=ACTION_MILLISECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags, headless=True)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visiting(browser: Browser) -> Iterator[Visitor]:
    """Open a page in a fresh profile; every request from it is written down."""
    context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
    try:
        context.set_default_timeout(ACTION_MILLISECONDS)
        visitor = Visitor(context.new_page())
        context.on("request", lambda request: visitor.requests.append(request.url))
        context.on("requestfailed", lambda it: visitor.requests.remove(it.url) if it.failure == "csp" else None)
        visitor.page.on("websocket", lambda socket: visitor.requests.append(socket.url))
        context.on("console", lambda said: visitor.blocked.append(said.text) if POLICY in said.text else None)
        yield visitor
    finally:
        context.close()
