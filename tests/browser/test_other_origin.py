"""A web page of somebody else, in the browser of a person who uses the local server, can neither do nor read anything there."""

import json
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from fastapi import FastAPI
from playwright.sync_api import Browser, expect

from flows.server import gate
from flows.server.gate import DESCRIPTIONS, Gate, content_policy
from tests.browser.attacks import ATTACKS, Recorder, Target, attack, elsewhere, serving, target_of
from tests.browser.chromium import launched, visiting
from tests.browser.prefect_ui import log_in
from tests.flows.stack import RUN_SECONDS, Stack, wait_for
from tests.ports import free_port

REBOUND = "evil.test"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser in which a name of the attacker's leads to this machine."""
    with launched(names=(REBOUND, "localhost")) as started:
        yield started


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of the attacker's site."""
    with elsewhere() as found:
        yield found


KINDS = ("another port", "another name", "rebound")
"""Where the attacker's page comes from: this machine, another site, or a name of the attacker's that now leads to the server."""


def tried(
    browser: Browser, port: int, app: Callable[[Recorder, int], Any], *kinds: str
) -> dict[str, tuple[set[str], set[str]]]:
    """Attack a recorder, behind whatever an app is, from some kinds of pages; return what arrived, and what was read."""
    found = {}
    for kind in kinds:
        recorder, own = Recorder(), free_port()
        with serving(app(recorder, own), own) as target:
            site = {
                "another port": f"http://127.0.0.1:{port}/",
                "another name": f"http://localhost:{port}/",
                "rebound": f"http://{REBOUND}:{own}/rebound",
            }[kind]
            with visiting(browser) as victim:
                told = attack(victim.page.context, site, target_of(REBOUND, own) if kind == "rebound" else target)
        found[kind] = (set(recorder.reached), {name for name, text in told.items() if text})
    return found


class NoHostCheck(Gate):
    """Planted: a name that somebody has made to lead here counts as ours."""

    def _is_ours(self, scope: Any) -> bool:
        host = next(value for key, value in scope["headers"] if key == b"host").decode()
        port = self._origin.rpartition(":")[2]
        return host.endswith(f":{port}") and all(
            value.decode().endswith(f":{port}") for key, value in scope["headers"] if key == b"origin"
        )


class NoOriginCheck(Gate):
    """Planted: only the host name is looked at."""

    def _is_ours(self, scope: Any) -> bool:
        kept = [(key, value) for key, value in scope["headers"] if key not in {b"origin", b"sec-fetch-site"}]
        return super()._is_ours({**scope, "headers": kept})


class NoSiteCheck(Gate):
    """Planted: a request without an origin counts as ours."""

    def _is_ours(self, scope: Any) -> bool:
        kept = [(key, value) for key, value in scope["headers"] if key != b"sec-fetch-site"]
        return super()._is_ours({**scope, "headers": kept})


def test_without_a_gate_everything_that_a_page_tries_arrives(browser: Browser, port: int) -> None:
    for kind, (reached, read) in tried(browser, port, lambda recorder, _: recorder, *KINDS).items():
        assert reached == set(ATTACKS), kind
        assert read >= {"json", "get", "events", "socket"}, kind


def test_nothing_that_a_page_tries_passes_the_gate(browser: Browser, port: int) -> None:
    for kind, (reached, read) in tried(browser, port, lambda recorder, own: Gate(recorder, port=own), *KINDS).items():
        # Of a rebound name the page may read the refusal itself, which is of its own origin.
        assert (reached, read & {"events", "socket"}) == (set(), set()), kind


@pytest.mark.parametrize(
    ("planted", "kind", "passes"),
    [
        (NoHostCheck, "rebound", {"json", "get", "socket"}),
        (NoOriginCheck, "another port", {"blob", "beacon", "plain", "socket"}),
        (NoSiteCheck, "another name", {"image", "frame"}),
    ],
)
def test_a_gate_with_a_hole_is_found(
    planted: type[Gate], kind: str, passes: set[str], browser: Browser, port: int
) -> None:
    reached, _ = tried(browser, port, lambda recorder, own: planted(recorder, port=own), kind)[kind]
    assert passes <= reached


LATER = {"type": "SCHEDULED", "state_details": {"scheduled_time": "2099-01-01T00:00:00Z"}}
RUN = {"state": LATER, "tags": ["attack"]}
RESUME_ALL = {
    "name": "attack",
    "trigger": {"type": "event", "posture": "Reactive", "expect": ["attack"], "threshold": 1, "within": 0},
    "actions": [{"type": "resume-flow-run"}],
}


def held(stack: Stack) -> dict[str, Any]:
    """Return what the server holds that a page might change."""
    deployment = stack.deployment()
    return {
        "runs": stack.read("POST", "/flow_runs/count", {"flow_runs": {"tags": {"all_": ["attack"]}}}),
        "automations": sorted(it["name"] for it in stack.read("POST", "/automations/filter", {})),
        "deployment": {name: deployment[name] for name in ("parameters", "tags", "path", "job_variables", "updated")},
    }


def test_the_local_server_does_and_tells_nothing_for_another_page(stack: Stack, browser: Browser, port: int) -> None:
    """The person is logged in, in another window, and the attacker knows everything but the password."""
    deployment, before = stack.deployment()["id"], held(stack)
    attempts = {f"deployments/{deployment}/create_flow_run": RUN, "automations/": RESUME_ALL}
    sites = (
        (f"http://127.0.0.1:{port}/", "127.0.0.1"),
        (f"http://localhost:{port}/", "127.0.0.1"),
        (f"http://{REBOUND}:{stack.port}/rebound", REBOUND),
    )
    with visiting(browser) as person:
        log_in(person.page, stack.login)
        for (site, host), (path, body) in product(sites, attempts.items()):
            api = f"{host}:{stack.port}/api"
            read, socket = f"http://{api}/deployments/{deployment}?NAME", f"ws://{api}/events/out?NAME"
            target = Target(f"http://{api}/{path}?NAME", read, socket, json.dumps(body))
            told = attack(person.page.context, site, target)
            assert not any("visits" in str(text) for text in told.values()), (site, told)
            assert told["events"] is told["socket"] is None, site
    assert held(stack) == before
    # Control: whoever has the password can do both, with the very same bodies.
    with stack.client(timeout=RUN_SECONDS) as client:
        proof = stack.proof(client, "POST")
        run, automation = (
            client.post(path, content=json.dumps(body), headers=proof) for path, body in attempts.items()
        )
    assert (run.status_code, automation.status_code) == (201, 201), (run.text, automation.text)
    after = held(stack)
    stack.read("DELETE", f"/flow_runs/{run.json()['id']}")
    stack.read("DELETE", f"/automations/{automation.json()['id']}")
    assert after["runs"] == before["runs"] + 1
    assert after["automations"] == sorted([*before["automations"], "attack"])


def test_the_printed_address_logs_a_person_in_and_leaves_no_trace(stack: Stack, browser: Browser) -> None:
    with visiting(browser) as visitor:
        visitor.page.goto(stack.page)
        expect(visitor.page.get_by_placeholder("admin:pass")).to_be_visible()
        visitor.shoot("login", schemes=("dark",))
        log_in(visitor.page, stack.login)
        expect(visitor.page).to_have_url(f"{stack.page}/dashboard")
        visitor.page.get_by_text("Deployments", exact=True).first.click()
        expect(visitor.page.get_by_role("link", name="visits", exact=True)).to_be_visible()
        visitor.shoot("deployments", schemes=("dark",))
        secret = stack.password.partition(":")[2]
        assert not [url for url in visitor.requests if secret in url.partition("#")[0]]
    log = (stack.folder / ".dpflow" / "ui" / "server.log").read_text(encoding="utf-8")
    assert secret not in log


def test_an_old_address_says_what_to_do_and_a_new_one_in_the_same_tab_logs_in(stack: Stack, browser: Browser) -> None:
    with visiting(browser) as visitor:
        address, _, secret = stack.login.partition("#")
        for fragment in ("dpflow:guess", "%E0%A4%A", "dpflow:\u0434", "%D0%B4", "\u00e9", ""):
            visitor.page.goto("about:blank")
            visitor.page.goto(f"{address}#{fragment}")
            expect(visitor.page.get_by_text("Run dpflow ui again")).to_be_visible()
            expect(visitor.page).to_have_url(address)
            assert visitor.page.evaluate("() => localStorage.getItem('prefect-password')") is None
        log_in(visitor.page, f"{address}#{secret}")  # the browser loads nothing, since only the fragment changes
        expect(visitor.page).to_have_url(f"{stack.page}/dashboard")


LISTENS = 'addEventListener("hashchange", open)'
CATCHES = "try { token = btoa(decodeURIComponent(said)) } catch { return say(old) }"
REMOVES = 'history.replaceState(null, "", location.pathname)'


async def refusing(_scope: Any, _receive: Any, send: Any) -> None:
    """A server to which no password is right."""
    await send({"type": "http.response.start", "status": 401, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize(
    ("planted", "fragments"),
    [
        ({LISTENS: ""}, ("dpflow:guess", "dpflow:another")),
        ({REMOVES: "", CATCHES: "token = btoa(decodeURIComponent(said))\n" + REMOVES}, ("%E0%A4%A",)),
    ],
)
def test_a_page_that_leaves_a_password_in_its_address_is_found(
    monkeypatch: pytest.MonkeyPatch, browser: Browser, planted: dict[str, str], fragments: tuple[str, ...]
) -> None:
    own = free_port()
    with serving(Gate(refusing, port=own), own), visiting(browser) as visitor:
        address = f"http://127.0.0.1:{own}/open"
        script = gate.OPEN_SCRIPT
        for old, new in planted.items():
            assert old in script
            script = script.replace(old, new)
        monkeypatch.setattr(gate, "OPEN_SCRIPT", script)
        for fragment in fragments:
            visitor.page.goto(f"{address}#{fragment}")
        assert visitor.page.evaluate("() => location.href") == f"{address}#{fragments[-1]}"


def test_under_another_name_of_this_machine_a_person_is_led_to_the_address(stack: Stack, browser: Browser) -> None:
    with visiting(browser) as visitor:
        visitor.page.goto(f"http://localhost:{stack.port}/runs?page=2")
        wait_for(lambda: visitor.page.url.startswith(stack.page), "the server's own address")
        log_in(visitor.page, stack.login.replace("127.0.0.1", "localhost"))  # what follows the sign # goes along
        stored = [it for it in visitor.page.context.storage_state()["origins"] if it["localStorage"]]
        assert [it["origin"] for it in stored] == [stack.page]


def test_no_page_can_show_the_servers_pages_in_a_frame(stack: Stack, browser: Browser, port: int) -> None:
    with visiting(browser) as visitor:
        visitor.page.goto(f"http://127.0.0.1:{port}/")
        visitor.page.set_content(f'<iframe src="{stack.page}/dashboard"></iframe>')
        frame = visitor.page.frames[-1]
        frame.wait_for_load_state()
        assert "Prefect" not in frame.content()


CATALOGUE = "/blocks/catalog"
"""A page of Prefect's that wants pictures from another machine."""

PAGES = ("/", "/v2/dashboard", "/no/such/page", "/api/health", *sorted(DESCRIPTIONS))
"""Every kind of answer that a browser shows as a page, and the pages that the server must not have."""


def test_no_page_of_the_server_asks_anything_of_another_machine(stack: Stack, browser: Browser) -> None:
    with visiting(browser) as visitor:
        for path in PAGES:
            answer = visitor.page.goto(f"{stack.page}{path}")
            assert answer
            assert answer.headers["content-security-policy"] == content_policy(f"127.0.0.1:{stack.port}").decode(), path
        log_in(visitor.page, stack.login)
        with visitor.page.expect_event("requestfailed", lambda it: it.failure == "csp"):
            visitor.page.goto(f"{stack.page}{CATALOGUE}")
        visitor.page.wait_for_load_state("networkidle")
        assert visitor.requests
        assert visitor.outside == []
        assert all("Loading the image" in it for it in visitor.blocked), visitor.blocked


class Careless(Gate):
    """Planted: all pages are handed out as they are, as long as they are asked for by ourselves."""

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)

    def _headers(self, scope: Any) -> list[tuple[bytes, bytes]]:
        return []


class NoList(Gate):
    """Planted: pages about the API are handed out, and only the policy is left to protect from them."""

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        await super()._serve({**scope, "path": f"{scope['path']}/"}, receive, send)


@pytest.mark.parametrize(("planted", "stopped"), [(Careless, False), (NoList, True)])
def test_a_page_about_the_api_would_ask_another_machine_for_its_scripts(
    planted: type[Gate], stopped: bool, browser: Browser
) -> None:
    """Control: that such requests are seen, and that the policy alone stops them as well."""

    async def described(scope: Any, receive: Any, send: Any) -> None:
        await FastAPI()({**scope, "path": scope["path"].rstrip("/")}, receive, send)

    own = free_port()
    with serving(planted(described, port=own), own), visiting(browser) as visitor:
        visitor.page.goto(f"http://127.0.0.1:{own}/docs", wait_until="networkidle")
        assert (bool(visitor.outside), bool(visitor.blocked)) == (not stopped, stopped)
