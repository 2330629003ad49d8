"""A short version of `service_kills`, and proof that its rules find what they are for."""

from pathlib import Path

import pytest

from tests.faults.service_kills import Seen, broken, run
from tests.postgres import PostgresServer

SECONDS, KILL_SECONDS = 4.0, 1.5


def test_nothing_is_lost_or_paid_twice_while_servers_are_killed(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = postgres_server.new_database()
    found = run(tmp_path, url, seconds=SECONDS, kill_seconds=KILL_SECONDS, clients=4, asked=6)
    assert found["broken"] == []
    assert found["kills"] > 0
    assert found["purchases"] > 0
    assert set(found["refused"]) <= {402}


def test_every_rule_finds_what_it_is_for() -> None:
    def judged(**changes: object) -> list[str]:
        seen = changes.pop("seen", Seen(answers={"q": ["1"]}, paid={"q": [0.1]}))
        usual: dict = {"stored": {"q": "1"}, "bought": ["q"], "charged": 1, "kills": 1, "over": []}
        return broken(seen, **(usual | changes))  # type: ignore[arg-type]

    assert judged() == []
    assert judged(charged=2) == []  # a charge may be lost with the process that made it
    assert judged(charged=3) == ["2 charges without an answer, after 1 kills"]
    assert judged(bought=["q", "q"], charged=2) == ["bought 2 times: q"]
    assert judged(bought=["p"]) == ["an answer that was sold is lost: q"]
    assert judged(stored={"q": "2"}) == ["an answer has changed: q"]
    assert judged(seen=Seen(paid={"q": [0.1, 0.1]})) == ["paid 2 times: q"]
    assert judged(over=["ada"]) == ["ada has spent more than the share"]
