"""The questions of a dashboard: priced together, bought until all are accurate, and free the next time."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from dpcore import Session
from dpcore.errors import BudgetRefused, UsageError
from dpcore.object_store import ObjectPath
from dpcore.session.dashboard import (
    LIST,
    WIDER,
    Dashboard,
    open_dashboard,
    opened,
    publish_answers,
    total_paid,
)
from dpcore.session.questions import MOST_QUERIES, Questions
from dpcore.session.table import SessionTable
from tests.dpcore.session.conftest import GROUPED, narrower
from tests.dpcore.session.test_session import no_data, spent
from tests.s3 import BUCKET, new_bucket, s3_server

ALL = "select count(*) as n from release"
BY_SEX = "select sex, count(*) as n from release where not smoker group by sex"
MEDIAN = "select median(age) as a from release where smoker"


def asked(*queries: str, within: str, accept_wider: bool = False) -> Questions:
    return Questions(queries, within, 0.95, accept_wider=accept_wider)


def finish(dashboard: Dashboard) -> None:
    while numbers := dashboard.price().to_buy:
        for number in numbers:
            dashboard.buy(number)


def test_all_are_bought_that_must_be_and_a_repetition_in_another_process_pays_nothing(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    within = f"{narrower(session, GROUPED, 0.8):.6g}"
    first = Dashboard(session, asked(ALL, GROUPED, BY_SEX, within=within))
    finish(first)
    answers = first.answers()
    assert answers[1].status == "bought"
    assert total_paid(answers) * 1e12 == pytest.approx(spent())
    assert spent() > 0
    assert all(each.reply.price.half_width <= float(within) * 1.000001 for each in answers)
    publish_answers(first, tmp_path / "board")

    monkeypatch.setattr(SessionTable, "read", no_data)
    before = spent()
    with Session.join("spec.yaml") as other:
        again = Dashboard(other, asked(ALL, GROUPED, BY_SEX, within=within))
        assert again.price().to_buy == ()
        for old, new in zip(answers, again.answers(), strict=True):
            pd.testing.assert_frame_equal(old.reply.table, new.reply.table)
            assert new.paid == 0
    assert spent() == before


def test_answers_go_to_an_object_store_and_only_stale_answers_are_removed(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Dashboard(session, asked(ALL, GROUPED, within="1000"))
    finish(first)
    fewer = Dashboard(session, asked(ALL, within="1000"))
    finish(fewer)
    with s3_server() as variables, monkeypatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        new_bucket()
        folder = ObjectPath(f"s3://{BUCKET}/releases/_answers/visits/board")
        publish_answers(first, folder)
        (folder / "notes.txt").write(b"of somebody else")
        publish_answers(fewer, folder)
        assert sorted(folder.entries()[1]) == [LIST, "notes.txt", "query-001.parquet"]
        with (folder / LIST).open() as file:
            assert pq.read_table(file)["sql"].to_pylist() == [ALL]


def test_an_answer_that_became_free_is_published_although_the_model_is_less_sure_later(session: Session) -> None:
    dashboard = Dashboard(session, asked(ALL, within="1000"))
    free = session.ask(ALL, within="1000")
    dear = replace(free, price=replace(free.price, amount=5, cost=5e-12))
    replies = iter([dear, dear])
    dashboard._look = lambda _: next(replies)  # type: ignore[method-assign]
    assert dashboard.price().to_buy == (1,)
    dashboard.buy(1)
    assert dashboard.price().to_buy == ()
    assert dashboard.answers()[0].status == "free"


def test_a_mistake_in_one_query_is_found_before_anything_is_charged(session: Session) -> None:
    within = f"{narrower(session, GROUPED):.6g}"
    with pytest.raises(UsageError, match=r"query 2: line 1, column 22"):
        Dashboard(session, asked(GROUPED, "select count(*) from nowhere", within=within)).price()
    assert spent() == 0


def test_what_all_of_them_cost_is_compared_with_what_is_left_before_anything_is_charged(session: Session) -> None:
    dashboard = Dashboard(session, asked(ALL, GROUPED, BY_SEX, within="1.5"))
    with pytest.raises(
        BudgetRefused, match=r"3 of 3 answers must be bought and cost .* left; ask for wider"
    ) as refused:
        dashboard.price()
    assert refused.value.requested > refused.value.remaining
    assert spent() == 0


def test_answers_that_cannot_be_bought_are_given_wider_if_that_is_accepted(session: Session, tmp_path: Path) -> None:
    dashboard = Dashboard(session, asked(ALL, MEDIAN, BY_SEX, within="1.5", accept_wider=True))
    finish(dashboard)
    answers = dashboard.answers()
    assert [each.status for each in answers].count(WIDER) >= 2
    assert "cannot be bought more accurately" in answers[1].reason
    assert "has" in answers[2].reason
    assert answers[2].reply.price.half_width > 1.5
    publish_answers(dashboard, tmp_path / "board")
    listed = pq.read_table(tmp_path / "board" / LIST)
    assert listed["status"].to_pylist() == [each.status for each in answers]
    about = json.loads(listed.schema.metadata[b"dpflow.dashboard"])
    assert about["remaining"] == dashboard.remaining
    first = pd.read_parquet(tmp_path / "board" / "query-001.parquet")
    pd.testing.assert_frame_equal(first, answers[0].reply.table, check_dtype=False)


def test_files_of_a_longer_dashboard_of_the_same_name_are_removed(session: Session, tmp_path: Path) -> None:
    for queries in ((ALL, GROUPED), (ALL,)):
        dashboard = Dashboard(session, asked(*queries, within="1000000"))
        dashboard.price()
        publish_answers(dashboard, tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == [LIST, "query-001.parquet"]


def test_a_share_of_a_number_is_paid_once_even_if_the_number_turns_out_smaller(session: Session) -> None:
    query = "select count(*) as n from release where smoker and city = 'west' and sex = 'F'"
    known = session.look(query, within=None)
    share = f"{60 * known.price.half_width / float(known.table.n[0]):.4f}%"
    bought = session.ask(query, within=share)
    assert not bought.price.free
    assert bought.table.n[0] < known.table.n[0]
    with Session.join("spec.yaml") as other:
        assert other.ask(query, within=share).price.stored
        assert not other.price(query, within=f"{float(share[:-1]) / 4}%").free


def test_an_accuracy_that_cannot_be_read_is_no_wider_answer(session: Session) -> None:
    with pytest.raises(UsageError, match="say how accurate"):
        Dashboard(session, asked(ALL, within="a lot", accept_wider=True))


def test_a_look_buys_nothing_and_tells_the_price(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SessionTable, "read", no_data)
    within = narrower(session, GROUPED)
    look = session.look(GROUPED, within=within)
    assert look.price.amount == session.price(GROUPED, within=within).amount > 0
    assert session.look(GROUPED, within=None).price.free
    assert spent() == 0


def test_a_dashboard_is_found_by_its_name_while_it_is_open(copied: Callable[[], Path]) -> None:
    copied()
    questions = asked(ALL, within="1000000")
    with open_dashboard("board", "spec.yaml", questions, session=None) as name:
        assert opened(name).questions is questions
        with (
            pytest.raises(UsageError, match="already open"),
            open_dashboard("board", "spec.yaml", questions, session="s"),
        ):
            pass
    with pytest.raises(UsageError, match="is not open in this process"):
        opened("board")


@pytest.mark.parametrize("count", [0, MOST_QUERIES + 1])
def test_a_dashboard_has_some_queries_and_not_too_many(count: int) -> None:
    with pytest.raises(UsageError, match=f"not {count};"):
        asked(*[ALL] * count, within="50")
