"""Tokens: nothing is answered without a valid one, and none is stored."""

import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from dpcore.errors import LedgerError, UsageError
from dpcore.ledger import Ledger, open_ledger
from dpcore.session.analysts import add_analyst, listed_analysts, remove_analyst
from tests.dpcore.service.conftest import ALL, Served, serving, spent

QUESTION = {"query": ALL, "within": 500}
WAIT_SECONDS = 60.0


def until(true: Callable[[], bool]) -> None:
    """Wait until something is true."""
    end = time.monotonic() + WAIT_SECONDS
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_nothing_is_answered_without_a_valid_token(served: Served) -> None:
    token = served.tokens["ada"]
    served.send("/ask", QUESTION)  # known from now on, and still nobody's without a token
    served.send("/price", QUESTION)
    for path, given in product(
        ("/price", "/ask", "/budget", "/answers"),
        (
            None,
            "",
            "Bearer",
            "Bearer ",
            token,
            f"Basic {token}",
            f"bearer {token}",
            f"Bearer {token}x",
            f"Bearer {token[:-1]}",
            f"Bearer  {token}",
            "Bearer \xe9",
        ),
    ):
        headers = {} if given is None else {"Authorization": given.encode("latin-1")}
        body = {"json": QUESTION} if path in {"/price", "/ask"} else {}
        refused = served.client.request("POST" if body else "GET", path, headers=headers, **body)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"
        assert refused.json().keys() == {"error"}
    assert served.send("/ask", QUESTION).status_code == served.send("/answers").status_code == 200


def test_the_hash_of_a_token_is_no_token(served: Served) -> None:
    with open_ledger() as ledger:
        kept = ledger.shares("s")["ada"].token
    refused = served.client.request("GET", "/budget", headers={"Authorization": f"Bearer {kept}"})
    assert refused.status_code == 401


def test_a_token_is_nowhere_on_disk(served: Served) -> None:
    served.send("/ask", QUESTION)
    token = served.tokens["ada"].encode()
    for path in Path.cwd().rglob("*"):
        assert not path.is_file() or token not in path.read_bytes()


def test_a_removed_analyst_is_refused_and_a_new_token_replaces_the_old(served: Served) -> None:
    old = served.tokens["ada"]
    served.tokens["new"] = add_analyst("spec.yaml", "ada", share=0.5).token
    until(lambda: served.send("/budget", analyst="new").status_code == 200)
    assert served.client.request("GET", "/budget", headers={"Authorization": f"Bearer {old}"}).status_code == 401
    remove_analyst("spec.yaml", "ada")
    until(lambda: served.send("/budget", analyst="new").status_code == 401)
    assert served.send("/budget", analyst="bob").status_code == 200
    (ada, _) = listed_analysts("spec.yaml")["analysts"]
    assert (ada["analyst"], ada["removed"], ada["remaining"]) == ("ada", True, 0)


def test_a_removed_analyst_buys_nothing_even_before_the_token_is_forgotten(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "select count(*) as n from release where smoker"
    within = served.narrower(query)
    monkeypatch.setattr(served.door, "_read", lambda _: None)  # it never looks again
    remove_analyst("spec.yaml", "ada")
    refused = served.send("/ask", {"query": query, "within": within})
    assert "analyst ada" in refused.json()["error"]["reason"].replace("'", "")
    assert spent() == 0


def test_too_many_requests_are_refused_for_one_analyst_only(copied: Callable[[], Path]) -> None:
    with serving(copied() / "spec.yaml", rate=0.0001, ada=0.5, bob=0.5) as service:
        service.door._buckets["ada"] = 1.0, time.monotonic()
        service.door._buckets["bob"] = 1.0, time.monotonic()
        assert service.send("/budget").status_code == 200
        refused = service.send("/budget")
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 1000
        assert service.send("/budget", analyst="bob").status_code == 200


def test_tokens_are_not_trusted_for_long_while_the_ledger_cannot_be_read(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_: Ledger) -> None:
        raise LedgerError("the ledger is gone")

    monkeypatch.setattr(served.door, "_read", unreadable)
    assert served.send("/price", QUESTION).status_code == 200

    def refused() -> bool:
        served.door._read_at = time.monotonic() - 20  # again and again: the ledger may just have been read
        return bool(served.send("/price", QUESTION).status_code == 503)

    until(refused)
    monkeypatch.undo()
    until(lambda: served.send("/price", QUESTION).status_code == 200)


def test_an_analyst_gets_a_cap_in_one_of_two_ways(served: Served) -> None:
    for wrong in ({}, {"epsilon": 1.0, "share": 0.5}, {"share": 0.0}, {"share": 1.5}):
        with pytest.raises(UsageError):
            add_analyst("spec.yaml", "eve", **wrong)
    issued = add_analyst("spec.yaml", "eve", epsilon=0.1)
    assert 0 < issued.cap < 0.1
    with pytest.raises(UsageError, match="would be more; give the analyst at most --share 1"):
        add_analyst("spec.yaml", "eve", epsilon=50)
    with pytest.raises(UsageError, match="has no analyst 'carl'"):
        remove_analyst("spec.yaml", "carl")
