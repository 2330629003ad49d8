"""The gate: foreign hosts, foreign pages and large bodies do not reach the service."""

from collections.abc import AsyncIterator

from dpcore.service.gate import MOST_BYTES
from tests.dpcore.service.conftest import ALL, HOST, Served

QUESTION = {"query": ALL, "within": 500}


HEADERS: list[tuple[dict[str, str], int]] = [
    ({}, 200),
    ({"Origin": f"http://{HOST}"}, 200),
    ({"Sec-Fetch-Site": "same-origin"}, 200),
    ({"Sec-Fetch-Site": "none"}, 200),
    ({"Host": "evil.example"}, 403),
    ({"Host": "evil.example:8000"}, 403),
    ({"Host": "127.0.0.1:8001"}, 403),
    ({"Host": ""}, 403),
    ({"Origin": "http://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Origin": "http://127.0.0.1:8001"}, 403),
    ({"Origin": f"http://{HOST}.evil.example"}, 403),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Sec-Fetch-Site": "same-site"}, 403),
    ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 403),
]


def test_a_valid_token_does_not_help_a_foreign_host_or_page(served: Served) -> None:
    for headers, status in HEADERS:
        answer = served.send("/price", QUESTION, **headers)
        assert (answer.status_code, "error" in answer.json()) == (status, status != 200), headers


def test_a_person_may_follow_a_link_to_the_console_from_anywhere(served: Served) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert served.client.request("GET", "/", headers=link).status_code == 200
    framed = link | {"Sec-Fetch-Dest": "iframe"}
    assert served.client.request("GET", "/", headers=framed).status_code == 403


def test_no_answer_may_be_framed_stored_or_read_by_other_pages(served: Served) -> None:
    origin = {"Origin": f"http://{HOST}"}
    for answer in (
        served.client.request("GET", "/"),
        served.client.request("GET", "/nothing"),
        served.send("/price", QUESTION, **origin),
        served.client.request("OPTIONS", "/ask", headers=origin | {"Access-Control-Request-Method": "POST"}),
        served.client.request("GET", "/", headers={"Host": "evil.example"}),
    ):
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def in_parts() -> AsyncIterator[bytes]:
    yield b"{"
    yield b"}"


def test_large_bodies_and_bodies_in_parts_are_refused(served: Served) -> None:
    large = served.send("/price", QUESTION | {"query": "x" * MOST_BYTES})
    assert (large.status_code, large.json()["error"]["code"]) == (413, "size")
    token = {"Authorization": f"Bearer {served.tokens['ada']}", "Content-Type": "application/json"}
    parts = served.client.request("POST", "/price", content=in_parts(), headers=token)
    assert parts.status_code == 411
    for size in ("-1", "1e9", "x", str(MOST_BYTES + 1)):
        assert (
            served.client.request("POST", "/price", content=b"{}", headers=token | {"Content-Length": size}).status_code
            == 413
        )
