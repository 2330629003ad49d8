"""Prices, answers, budgets and errors of the service, as its clients see them."""

import asyncio
import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event
from types import SimpleNamespace
from typing import Any

import pytest

from dpcore.answers.answer import plain_rows
from dpcore.answers.sql import statement
from dpcore.errors import LedgerError
from dpcore.ledger import open_ledger
from dpcore.places import private_folder
from dpcore.private_log import FILE_NAME
from dpcore.service.desk import Desk
from dpcore.session.questions import Question
from dpcore.session.session import Session
from dpcore.session.table import SessionTable
from dpcore.steward.verify import verify_ledger
from tests.conftest import visits
from tests.dpcore.answers.malformed import odd
from tests.dpcore.service.conftest import ALL, GROUPED, Served, serving, spent
from tests.dpcore.session.conftest import narrower

WAIT_SECONDS = 60


def no_data(*_: object, **__: object) -> None:
    message = "the data was touched"
    raise AssertionError(message)


def test_a_price_and_a_free_answer_touch_no_data_and_cost_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SessionTable, "read", no_data)
    question = {"query": ALL, "within": 500}
    price = served.send("/price", question).json()
    assert (price["free"], price["cost"]) == (True, 0)
    answer = served.send("/ask", question).json()
    assert answer["price"] == price
    assert answer["columns"] == ["n", "n_low", "n_high", "n_basis"]
    (row,) = answer["rows"]
    assert row["n_low"] <= row["n"] <= row["n_high"]
    assert row["n_high"] - row["n"] == pytest.approx(price["half_width"])
    paid = served.send("/price", {"query": GROUPED, "within": served.narrower(GROUPED)}).json()
    assert paid["cost"] > 0
    assert spent() == 0


def test_the_columns_that_can_be_asked_about_are_listed_and_no_data_is_touched(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SessionTable, "read", no_data)
    columns = {each["name"]: each for each in served.send("/columns").json()["columns"]}
    assert columns["smoker"]["type"] == "boolean"
    assert columns["city"]["categories"]
    for each in columns.values():
        question = {
            "query": "select NAME, count(*) as n from release group by NAME".replace("NAME", each["sql"]),
            "within": 1e6,
        }
        assert served.send("/price", question).is_success
    assert served.client.request("GET", "/columns").status_code == 401
    assert spent() == 0


def test_a_free_answer_is_given_again_without_the_session(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    question = {"query": ALL, "within": 500}
    first = served.send("/ask", question).json(), served.send("/price", question).json()

    async def no_session(*_: object) -> None:
        message = "the session was used"
        raise AssertionError(message)

    monkeypatch.setattr(Desk, "_run", no_session)
    assert (served.send("/ask", question).json(), served.send("/price", question).json()) == first
    assert served.send("/ask", {"query": ALL, "within": 501}).status_code == 500


def test_a_bought_answer_costs_what_was_said_and_is_listed_for_its_analyst_only(served: Served) -> None:
    question = {"query": GROUPED, "within": served.narrower(GROUPED)}
    price = served.send("/price", question).json()
    before = served.send("/budget").json()
    answer = served.send("/ask", question | {"at_most": price["cost"]}).json()
    assert answer["price"] == price
    after = served.send("/budget").json()
    assert after["spent"] == pytest.approx(price["cost"])
    assert before["session"]["remaining"] - after["session"]["remaining"] == pytest.approx(price["cost"])
    (bought,) = served.send("/answers").json()["answers"]
    paid = {"cost": price["cost"], "epsilon": price["epsilon"]}
    assert bought == {"query": GROUPED, **paid, "level": 0.95, "rows": answer["rows"]}
    assert price["epsilon_after"] == pytest.approx(after["epsilon"]["remaining"])
    assert served.send("/answers", analyst="bob").json() == {"answers": []}
    again = served.send("/ask", question, analyst="bob").json()  # what one has bought is free for the other
    assert again["price"]["stored"]
    assert again["rows"] == answer["rows"]
    verify_ledger()


def test_a_free_answer_says_what_the_one_who_asks_has_left(served: Served) -> None:
    def left(analyst: str) -> float:
        return float(
            served.send("/ask", {"query": ALL, "within": 500}, analyst=analyst).json()["price"]["epsilon_after"]
        )

    assert left("ada") > left("bob")
    bought = {"query": GROUPED, "within": served.narrower(GROUPED)}
    assert not served.send("/ask", bought, analyst="ada").json()["price"]["free"]
    budgets = {
        analyst: served.send("/budget", analyst=analyst).json()["epsilon"]["remaining"] for analyst in ("ada", "bob")
    }
    assert {analyst: left(analyst) for analyst in budgets} == pytest.approx(budgets)


def test_nobody_pays_more_than_was_agreed_to(served: Served) -> None:
    question = {"query": GROUPED, "within": served.narrower(GROUPED)}
    price = served.send("/price", question).json()
    for at_most in (0, 0.99 * price["cost"]):
        refused = served.send("/ask", question | {"at_most": at_most})
        assert (refused.status_code, refused.json()["error"]["code"]) == (402, "budget")
        assert "more than was agreed to" in refused.json()["error"]["reason"]
    assert spent() == 0


def test_no_analyst_goes_past_the_cap(served: Served) -> None:
    question = {"query": GROUPED, "within": served.narrower(GROUPED)}
    refused = served.send("/ask", question, analyst="bob")
    assert refused.status_code == 402
    told = refused.json()["error"]
    assert told["requested"] > told["remaining"] == served.send("/budget", analyst="bob").json()["remaining"]
    assert "analyst bob has" in told["reason"]
    assert "ask within" in told["reason"]
    assert spent() == 0


def test_two_requests_of_one_analyst_at_once_stay_within_the_cap(copied: Callable[[], Path]) -> None:
    spec = copied() / "spec.yaml"
    queries = [GROUPED, "select sex, count(*) as n from release where age < 50 group by sex"]
    with Session.join(spec) as session:
        prices = {query: session.price(query, within=25).amount for query in queries}
        share = (min(prices.values()) + max(prices.values())) / 2 / session.run.reserved
    assert min(prices.values()) > 0
    with serving(spec, ada=share) as first, serving(spec) as second:
        second.tokens |= first.tokens
        together = Barrier(2)

        def ask(service: Served, query: str) -> int:
            together.wait()
            return int(service.send("/ask", {"query": query, "within": 25}).status_code)

        with ThreadPoolExecutor() as pool:
            codes = list(pool.map(ask, (first, second), queries))
    assert max(codes) == 402
    with open_ledger() as ledger:
        known = ledger.shares("s")["ada"]
        assert known.spent <= known.cap
    verify_ledger()


BAD: list[tuple[Any, str, str]] = [
    ({"query": "select cit from release", "within": 5}, "query", "did you mean city?"),
    ({"query": "select count(*)\n  frm release", "within": 5}, "query", "line 2"),
    ({"query": "drop table release", "within": 5}, "query", "line 1"),
    ({"query": ALL, "within": "2 rows"}, "question", "say how accurate"),
    ({"query": ALL, "within": 0.1}, "question", "ask for a wider interval"),
    ({"query": "", "within": 5}, "request", "body.query"),
    ({"query": "x" * 8_001, "within": 5}, "request", "body.query"),
    ({"query": ALL, "within": -1}, "request", "body.within"),
    ({"query": ALL}, "request", "body.within"),
    ({"query": ALL, "within": 5, "level": 1}, "request", "body.level"),
    ({"query": ALL, "within": 5, "more": 1}, "request", "body.more"),
    ([], "request", "body"),
]


def test_bad_questions_get_a_reason_and_cost_nothing(served: Served) -> None:
    for body, code, part in BAD:
        refused = served.send("/ask", body)
        told = refused.json()["error"]
        assert (refused.status_code, told["code"], "line" in told) == (422, code, code == "query"), body
        assert part in told["reason"]
    assert spent() == 0


def test_a_session_that_was_closed_gives_free_answers_and_sells_none(served: Served) -> None:
    question = {"query": GROUPED, "within": served.narrower(GROUPED)}
    with Session.join("spec.yaml") as session:
        session.close()
    assert served.send("/ask", {"query": ALL, "within": 600}).status_code == 200
    assert "is closed and buys no more" in served.send("/ask", question).json()["error"]["reason"]


def test_a_failure_says_nothing_private_and_the_next_question_is_answered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Session, "price", _raising(ValueError("row 17 is secret")))
        failed = served.send("/price", {"query": ALL, "within": 600})
        patch.setattr(Session, "price", _raising(LedgerError("the ledger is locked; try again")))
        locked = served.send("/price", {"query": ALL, "within": 600})
    assert failed.status_code == 500
    assert "secret" not in failed.text
    assert (locked.status_code, locked.json()["error"]["code"]) == (503, "ledger")
    assert served.send("/price", {"query": ALL, "within": 600}).json()["free"]


def _raising(error: Exception) -> Callable[..., None]:
    def raising(*_: object, **__: object) -> None:
        raise error

    return raising


def test_nobody_waits_for_all_questions_of_somebody_else(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def priced(_: Session, query: str, **__: object) -> Any:
        order.append(query)
        return SimpleNamespace(to_json=dict)

    async def together() -> None:
        asked = [("ada", number) for number in range(5)] + [("bob", number) for number in range(2)]
        await asyncio.gather(
            *(served.desk.price(Question(f"{name} {number}", 5, 0.95), name) for name, number in asked)
        )

    monkeypatch.setattr(Session, "price", priced)
    asyncio.run(together())
    assert order == ["ada 0", "bob 0", "ada 1", "bob 1", "ada 2", "ada 3", "ada 4"]


def test_too_many_waiting_questions_are_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpcore.service.desk.MOST_WAITING", 0)
    refused = served.send("/answers")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")


def test_columns_and_budgets_do_not_wait_for_a_question(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, told = Event(), Event()
    price = Session.price

    def slow(*arguments: Any, **more: Any) -> Any:
        begun.set()
        assert told.wait(WAIT_SECONDS)
        return price(*arguments, **more)

    monkeypatch.setattr(Session, "price", slow)
    with ThreadPoolExecutor(1) as other:
        priced = other.submit(served.send, "/price", {"query": ALL, "within": 601}, analyst="bob")
        assert begun.wait(WAIT_SECONDS)
        assert served.send("/budget").json()["analyst"] == "ada"
        assert served.send("/columns").is_success
        assert not priced.done()
        told.set()
        assert priced.result().json()["free"]


def test_a_question_that_would_let_others_wait_is_refused(
    copied: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpcore.service.desk.MOST_CELLS", 10)
    large = {"query": "select age, city, count(*) as n from release group by age, city", "within": 1e6}
    with serving(copied() / "spec.yaml", ada=1.0) as served:
        for path in ("/price", "/ask"):
            refused = served.send(path, large)
            assert (refused.status_code, refused.json()["error"]["code"]) == (422, "question")
            assert "at most 10 are computed here" in refused.json()["error"]["reason"]
        assert served.send("/ask", {"query": ALL, "within": 602}).is_success


@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [
        (lambda path: path.unlink(), 503, "cannot be bought now"),
        (
            lambda path: visits(3000, seed=2).to_csv(path, index=False),
            503,
            "cannot be bought now; tell the steward",
        ),
    ],
)
def test_without_its_table_a_session_gives_what_it_knows_and_sells_nothing(
    copied: Callable[[], Path],
    caplog: pytest.LogCaptureFixture,
    change: Callable[[Path], None],
    status: int,
    reason: str,
) -> None:
    folder = copied()
    with Session.join("spec.yaml") as session:
        within = narrower(session, GROUPED)
        bought = session.ask(GROUPED, within=within)
    change(folder / "visits.csv")
    before = spent()
    with caplog.at_level("WARNING", logger="dpcore.progress"), serving(folder / "spec.yaml", ada=1.0) as served:
        assert "nothing can be bought: " in caplog.text
        again = served.send("/ask", {"query": GROUPED, "within": within}).json()
        assert again["price"]["stored"]
        assert again["rows"] == plain_rows(bought.table)
        refused = served.send("/ask", {"query": GROUPED, "within": within / 2})
        assert refused.status_code == status
        assert reason in refused.json()["error"]["reason"]
    assert spent() == before


def test_unknown_paths_and_methods_have_the_same_shape(served: Served) -> None:
    for method, path, status, code in (("GET", "/docs", 404, "path"), ("PUT", "/ask", 405, "method")):
        refused = served.client.request(method, path)
        assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)


def statuses(served: Served, bodies: Iterable[Any]) -> set[int]:
    """Send questions as JSON with escapes, and return the status of each. None of them may reach the steward's log."""
    headers = {"Authorization": f"Bearer {served.tokens['ada']}", "Content-Type": "application/json"}
    found = [served.client.request("POST", "/ask", content=json.dumps(body), headers=headers) for body in bodies]
    return {each.status_code for each in found}


ODD_BODIES: tuple[Any, ...] = (
    *({"query": each, "within": 1e6} for each in odd(30, seed=2, category="city", number="age", flag="smoker")),
    {"query": ALL, "within": "\ud800"},
    {"query": ALL, "within": 1e6, "\ud800": 1},
    {"query": ALL, "within": 1e400},
    {"query": ALL, "within": 1e-320},
    {"query": ALL, "within": 1e6, "level": 1e-400},
    ["\udfff"],
    "\udfff",
)


def test_odd_questions_are_answered_or_refused_and_fill_no_log(served: Served) -> None:
    assert statuses(served, ODD_BODIES) == {200, 422}
    assert not (private_folder() / FILE_NAME).exists()
    assert spent() == 0


def test_a_failure_of_the_service_is_caught_by_that_test(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement, "MOST_DEPTH", 10**9)
    assert 500 in statuses(served, ODD_BODIES[:5])
    assert (private_folder() / FILE_NAME).exists()
