"""What a program has left in a person's browser, for a port that it had earlier, does not get the password of the local server."""

import base64
from typing import Any

import pytest
from playwright.sync_api import Browser

from flows.cli import ui
from flows.server.gate import OPEN_PATH, Gate
from flows.server.password import new_login_path
from tests.browser.attacks import serving
from tests.browser.chromium import visiting
from tests.browser.squatter import STOLEN, VARIANTS, leave, squatting

PASSWORD = "dpflow:Zx8_read"  # noqa: S105
WELCOME = "welcome"


async def prefect(scope: Any, _receive: Any, send: Any) -> None:
    """Stands for Prefect's server: it knows whether a password is right, and has one page."""
    right = f"Basic {base64.b64encode(PASSWORD.encode()).decode()}".encode()
    refused = scope["path"].startswith("/api/") and dict(scope["headers"]).get(b"authorization") != right
    headers = [(b"content-type", b"text/html")]
    await send({"type": "http.response.start", "status": 401 if refused else 200, "headers": headers})
    await send({"type": "http.response.body", "body": f"<!doctype html><title>{WELCOME}</title>".encode()})


def opened(browser: Browser, variant: str, *, fixed: bool, path: str) -> str:
    """Let a program leave something, start the server, open the address that it prints; return the title of the page that is there.

    Args:
        browser: The browser of the person.
        variant: What is left.
        fixed: Whether the server is started on the port that the program had. Else it has a port of its own choice, as by default.
        path: The path of the address.
    """
    with visiting(browser) as visitor, squatting("thief", 0) as thief:
        with squatting(variant, thief) as earlier:
            leave(visitor.page.context, variant, earlier)
            with ui._listening(None) as listening:
                port = earlier if fixed else int(listening.getsockname()[1])
        with serving(Gate(prefect, port=port), port):
            visitor.page.goto(f"http://127.0.0.1:{port}{path}#{PASSWORD}")
            visitor.page.wait_for_function(
                "([stolen, welcome]) => document.title.startsWith(stolen) || document.title === welcome",
                arg=[STOLEN, WELCOME],
            )
            return visitor.page.title()


@pytest.mark.parametrize("variant", VARIANTS)
def test_by_default_nothing_that_was_left_gets_the_password(browser: Browser, variant: str) -> None:
    assert opened(browser, variant, fixed=False, path=new_login_path()) == WELCOME


@pytest.mark.parametrize("variant", VARIANTS)
def test_on_a_known_port_and_path_it_gets_the_password(browser: Browser, variant: str) -> None:
    """Control: the browser does keep what was left, and the address would be given to it."""
    assert opened(browser, variant, fixed=True, path=OPEN_PATH) == f"{STOLEN}#{PASSWORD}"


def test_on_a_known_port_a_service_worker_gets_it_whatever_the_path(browser: Browser) -> None:
    """So it is the port that matters, and `--port` says so."""
    assert opened(browser, "worker", fixed=True, path=new_login_path()) == f"{STOLEN}#{PASSWORD}"
