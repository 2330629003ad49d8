"""Which requests the gate hands on. What a real browser sends is in `tests/browser/test_other_origin.py`."""

import asyncio
import base64
import json
from typing import Any

import pytest
from fastapi import FastAPI

from flows.server import gate
from flows.server.gate import DESCRIPTIONS, OPEN_PATH, PROTECTION, Gate, content_policy
from flows.server.password import new_login_path

PORT = 4200
OURS = f"127.0.0.1:{PORT}"
ORIGIN = f"http://{OURS}"
VISIT = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
Headers = dict[str, str]


def sent(
    headers: Headers | list[tuple[str, str]], *, kind: str = "http", method: str = "GET", path: str = "/api/x"
) -> Any:
    """Send a request through the gate; return `passed`, or what the gate itself has answered."""
    said: list[dict[str, Any]] = []
    pairs = headers.items() if isinstance(headers, dict) else headers
    raw = [(name.encode(), value.encode("latin-1")) for name, value in pairs]

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    scope = {"type": kind, "method": method, "path": path, "query_string": b"", "headers": raw}
    asyncio.run(Gate(app, port=PORT)(scope, None, send))
    return said[0].get("status", said[0]["type"]), dict(said[0].get("headers", []))


AFTER_OUR_ADDRESS = ("@evil.test/", ".evil.test/", "0/", "*", "http://evil.test/", "")
"""Request targets that are no path. The first leads to another host if it is written after `http://127.0.0.1:4200`."""

PASS: list[tuple[Headers, dict[str, str]]] = [
    ({"host": OURS}, {}),  # a program
    ({"host": OURS}, {"method": "POST"}),
    ({"host": f"localhost:{PORT}"}, {"method": "POST"}),
    ({"host": OURS}, {"kind": "websocket"}),
    ({"host": OURS, "origin": ORIGIN, "sec-fetch-site": "same-origin"}, {"method": "POST"}),
    ({"host": OURS, "origin": ORIGIN}, {"kind": "websocket"}),
    ({"host": OURS, "sec-fetch-site": "none", **VISIT}, {"path": "/"}),  # typed
    ({"host": OURS, "sec-fetch-site": "cross-site", **VISIT}, {"path": "/"}),  # a link in a mail
]

REFUSE: list[tuple[Headers | list[tuple[str, str]], dict[str, str]]] = [
    ({}, {}),
    ([("host", OURS), ("host", "evil.test")], {}),
    ({"host": "evil.test"}, {}),
    ({"host": f"evil.test:{PORT}"}, {}),
    ({"host": f"evil.test:{PORT}"}, {"kind": "websocket"}),
    ({"host": "127.0.0.1"}, {}),
    ({"host": f"127.0.0.1:{PORT + 1}"}, {}),
    ({"host": f"127.0.0.1.evil.test:{PORT}"}, {}),
    ({"host": f"localhost.:{PORT}"}, {}),
    ({"host": f"2130706433:{PORT}"}, {}),
    ({"host": f"0.0.0.0:{PORT}"}, {}),
    ({"host": f"\xe9vil:{PORT}"}, {}),
    ({"host": OURS, "origin": "null"}, {"method": "POST"}),
    ({"host": OURS, "origin": "http://evil.test"}, {"method": "POST"}),
    ({"host": OURS, "origin": f"http://127.0.0.1:{PORT + 1}"}, {"method": "POST"}),
    ({"host": OURS, "origin": f"http://localhost:{PORT}"}, {"method": "POST"}),
    ({"host": OURS, "origin": f"https://127.0.0.1:{PORT}"}, {"method": "POST"}),
    ({"host": OURS, "origin": f"{ORIGIN}.evil.test"}, {"method": "POST"}),
    ([("host", OURS), ("origin", ORIGIN), ("origin", "http://evil.test")], {"method": "POST"}),
    ({"host": OURS, "origin": "http://evil.test"}, {"kind": "websocket"}),
    ({"host": OURS, "sec-fetch-site": "cross-site"}, {"method": "POST"}),
    ({"host": OURS, "sec-fetch-site": "same-site"}, {}),
    ({"host": OURS, "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}, {}),
    ({"host": OURS, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, {}),
    ({"host": OURS, "sec-fetch-site": "same-site", **VISIT}, {"method": "POST"}),
    ({"host": OURS, "sec-fetch-site": "cross-site", **VISIT, "origin": "null"}, {"path": OPEN_PATH}),
    *[({"host": f"localhost:{PORT}", **VISIT}, {"path": path}) for path in AFTER_OUR_ADDRESS],
    *[({"host": OURS}, {"path": path, "kind": "websocket"}) for path in AFTER_OUR_ADDRESS],
]


@pytest.mark.parametrize(("headers", "how"), PASS)
def test_programs_and_our_own_pages_pass(headers: Headers, how: dict[str, str]) -> None:
    assert sent(headers, **how)[0] == 200


@pytest.mark.parametrize(("headers", "how"), REFUSE, ids=str)
def test_what_comes_from_elsewhere_is_refused(headers: Headers, how: dict[str, str]) -> None:
    assert sent(headers, **how)[0] == ("websocket.close" if how.get("kind") else 403)


def rules(headers: dict[bytes, bytes]) -> dict[str, str]:
    """The policy that an answer gives to browsers, by what it is about."""
    parts = (part.strip().partition(" ") for part in headers[b"content-security-policy"].decode().split(";"))
    return {name: value for name, _, value in parts}


def test_every_answer_forbids_other_pages_to_show_it_and_itself_to_load_anything_from_elsewhere() -> None:
    hosts: list[Headers] = [{"host": OURS}, {"host": "evil.test"}, {"host": OURS, "authorization": "Basic \xe9"}]
    paths = ("/api/x", "/", OPEN_PATH, "/docs")
    for _, headers in [sent(host, path=path) for host in hosts for path in paths]:
        assert set(PROTECTION) <= set(headers.items())
        found = rules(headers)
        assert (found["default-src"], found["frame-ancestors"], found["object-src"]) == ("'self'", "'none'", "'none'")
        named = {word for value in found.values() for word in value.split() if not word.startswith("'")}
        assert named == {"data:", "blob:", f"ws://{OURS}"}
        assert "'unsafe-inline'" not in found["script-src"]


def test_every_page_about_the_api_is_gone() -> None:
    """As FastAPI has them, which Prefect's two applications leave as they are."""
    made = FastAPI()
    pages = (made.docs_url, made.swagger_ui_oauth2_redirect_url, made.redoc_url, made.openapi_url)
    assert {f"{base}{page}" for base in ("", "/api") for page in pages} == DESCRIPTIONS
    for path in DESCRIPTIONS:
        assert sent({"host": OURS, "sec-fetch-site": "none", **VISIT}, path=path)[0] == 404


def test_a_person_who_uses_another_name_is_sent_to_the_address_and_nowhere_else() -> None:
    status, headers = sent({"host": f"localhost:{PORT}", **VISIT}, path="//evil.test/x")
    assert (status, headers[b"location"]) == (307, f"{ORIGIN}//evil.test/x".encode())


@pytest.mark.parametrize("how", [{}, VISIT])  # not every browser says that a person opens a page
def test_under_another_name_the_page_that_logs_in_stores_nothing(how: Headers) -> None:
    path = new_login_path()
    status, headers = sent({"host": f"localhost:{PORT}", **how}, path=path)
    assert (status, headers[b"location"]) == (307, f"{ORIGIN}{path}".encode())


@pytest.mark.parametrize("path", [OPEN_PATH, new_login_path()], ids=["bare", "new"])
def test_the_page_that_logs_in_is_for_whoever_opens_it_and_holds_no_secret(path: str) -> None:
    status, headers = sent({"host": OURS, "sec-fetch-site": "none", **VISIT}, path=path)
    assert (status, headers[b"cache-control"]) == (200, b"no-store")


def test_only_the_page_that_logs_in_may_have_a_script_in_itself() -> None:
    assert b"sha256" not in content_policy(OURS)
    assert b"sha256" in sent({"host": OURS}, path=OPEN_PATH)[1][b"content-security-policy"]


def basic(credentials: bytes) -> str:
    return f"Basic {base64.b64encode(credentials).decode()}"


@pytest.mark.parametrize(
    ("secret", "status"),
    [
        ({"authorization": basic(b"dpflow:guess")}, 200),  # the server behind the gate compares it
        ({"authorization": "Basic ====a"}, 200),
        ({"authorization": "Bearer w6k="}, 200),
        ({"authorization": basic("dpflow:gu\u00e9ss".encode())}, 401),
        ({"authorization": basic("\u0434:guess".encode())}, 401),
        ({"authorization": basic(b"dpflow:\xff")}, 401),
        ({"authorization": "Basic \xe9"}, 401),
        ({"authorization": ""}, 200),
        ({"authorization": "Basic"}, 200),
        ({"authorization": "Basic a b"}, 200),
        ({"authorization": f"Basic\t{base64.b64encode(b'dpflow:guess').decode()}"}, 200),
        *[({"authorization": f"Basic{gap}w6k="}, 401) for gap in ("\t", "  ", "\t \t", "\x0b", "\xa0")],
        ({"prefect-csrf-token": "guess"}, 200),
        ({"prefect-csrf-token": "gu\xe9ss"}, 401),
    ],
)
def test_secrets_that_prefect_can_not_compare_are_refused(secret: Headers, status: int) -> None:
    assert sent({"host": OURS, **secret}, method="POST")[0] == status


def spoken(*said: dict[str, Any]) -> tuple[list[Any], list[dict[str, Any]]]:
    """Say something on a WebSocket; return what the server behind the gate hears, and what it or the gate answers."""
    heard: list[Any] = []
    answers: list[dict[str, Any]] = []
    waiting = [{"type": "websocket.connect"}, *({"type": "websocket.receive", **it} for it in said)]

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while waiting:
            heard.append(await receive())

    async def receive() -> dict[str, Any]:
        message = waiting.pop(0)
        if message.get("late"):
            await asyncio.sleep(0.001)
        return message

    async def send(message: dict[str, Any]) -> None:
        answers.append(message)

    scope = {"type": "websocket", "path": "/api/events/out", "headers": [(b"host", OURS.encode())]}
    asyncio.run(Gate(app, port=PORT)(scope, receive, send))
    return heard, answers


@pytest.mark.parametrize("token", ["dpflow:guess", "", None])
def test_what_brings_a_password_to_a_websocket_is_for_the_server_to_compare(token: str | None) -> None:
    first, later = {"text": json.dumps({"type": "auth", "token": token})}, {"text": "\u0434"}
    heard, answers = spoken(first, later)
    assert [it["text"] for it in heard] == [first["text"], later["text"]]
    assert [it["type"] for it in answers] == ["websocket.accept"]


@pytest.mark.parametrize(
    "first",
    [
        *[
            {"text": json.dumps({"type": "auth", "token": token})}
            for token in ("\u0434", "\xe9", True, 1, ["x"], {"x": 1})
        ],
        {"text": '{"type": "auth", "token": "\u0434"}'},
        *[{"text": text} for text in ("[]", "null", "1", '"x"', "", "not json", "[" * 100_000)],
        {"bytes": b'{"type": "auth"}'},
        {"bytes": b"{}", "text": None},
    ],
    ids=lambda it: str(it)[:40],
)
def test_a_first_message_that_prefect_fails_to_look_at_closes_the_websocket(first: dict[str, Any]) -> None:
    heard, answers = spoken(first)
    assert [it["type"] for it in heard] == ["websocket.disconnect"]
    assert answers[1:] == [{"type": "websocket.close", "code": 1008}]


PROMPT, LATE = {"text": "{}"}, {"text": "{}", "late": True}


@pytest.mark.parametrize(
    ("said", "seconds", "types"),
    [
        ([LATE], 0, ["websocket.disconnect"]),
        ([PROMPT, LATE], 0, ["websocket.receive", "websocket.receive"]),
        ([LATE], None, ["websocket.receive"]),  # planted: no limit
    ],
)
def test_a_websocket_must_bring_its_password_in_time(
    monkeypatch: pytest.MonkeyPatch, said: list[dict[str, Any]], seconds: int | None, types: list[str]
) -> None:
    monkeypatch.setattr(gate, "WAIT_SECONDS", seconds)
    assert [it["type"] for it in spoken(*said)[0]] == types
