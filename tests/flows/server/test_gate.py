"""Which requests the gate hands on. What a real browser sends is in `tests/browser/test_other_origin.py`."""

import asyncio
import base64
from typing import Any

import pytest

from flows.server.gate import OPEN_PATH, PROTECTION, Gate

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


def test_every_answer_forbids_other_pages_to_show_it() -> None:
    answers = [sent({"host": OURS}), sent({"host": "evil.test"}), sent({"host": OURS}, path=OPEN_PATH)]
    for _, headers in answers:
        assert set(PROTECTION) <= set(headers.items())


def test_a_person_who_uses_another_name_is_sent_to_the_address_and_nowhere_else() -> None:
    status, headers = sent({"host": f"localhost:{PORT}", **VISIT}, path="//evil.test/x")
    assert (status, headers[b"location"]) == (307, f"{ORIGIN}//evil.test/x".encode())


def test_the_page_that_logs_in_is_for_whoever_opens_it_and_holds_no_secret() -> None:
    status, headers = sent({"host": OURS, "sec-fetch-site": "none", **VISIT}, path=OPEN_PATH)
    assert (status, headers[b"cache-control"]) == (200, b"no-store")


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
        ({"prefect-csrf-token": "guess"}, 200),
        ({"prefect-csrf-token": "gu\xe9ss"}, 401),
    ],
)
def test_secrets_that_prefect_can_not_compare_are_refused(secret: Headers, status: int) -> None:
    assert sent({"host": OURS, **secret}, method="POST")[0] == status
