"""Questions that are free, questions that are bought, and questions that are refused."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pandas as pd
import pytest

from dpcore import Session, answer, open_release
from dpcore.curator.curator import Curator
from dpcore.errors import BudgetRefused, UsageError
from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import budget_of
from dpcore.session.overview import close, listed
from dpcore.session.table import SessionTable
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace, visits
from tests.dpcore.session.conftest import EPSILON, GROUPED, narrower

ALL = "select count(*) as n from release"


def spent() -> int:
    with open_ledger() as ledger:
        return ledger.run("s").spent


def test_a_question_that_the_model_knows_is_free_and_touches_no_data(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SessionTable, "read", no_data)
    reply = session.ask(ALL, within=500)
    assert reply.price.free
    assert not reply.price.stored
    assert spent() == 0
    assert reply.table.n_low[0] <= reply.table.n[0] <= reply.table.n_high[0]


def no_data(*_: object, **__: object) -> None:
    message = "the data was touched"
    raise AssertionError(message)


def test_the_price_is_known_before_data_is_touched_and_is_what_is_charged(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(SessionTable, "read", no_data)
        within = narrower(session, GROUPED)
        price = session.price(GROUPED, within=within)
    assert price.amount > 0
    assert spent() == 0
    reply = session.ask(GROUPED, within=within)
    assert reply.price == price
    assert spent() == price.amount
    halves = np.maximum(reply.table.n_high - reply.table.n, reply.table.n - reply.table.n_low)
    assert halves.max() == pytest.approx(within)
    assert price.half_width == pytest.approx(within)


def test_a_repeated_question_returns_its_stored_answer_for_nothing(session: Session) -> None:
    within = narrower(session, GROUPED)
    first = session.ask(GROUPED, within=within)
    again = session.ask("select   city, count(*) AS n FROM release WHERE smoker GROUP BY city", within=2 * within)
    assert again.price.stored
    assert again.price.free
    pd.testing.assert_frame_equal(first.table, again.table)
    with Session.join("spec.yaml") as other:
        pd.testing.assert_frame_equal(first.table, other.ask(GROUPED, within=within).table)


def test_an_answer_that_was_free_before_has_the_names_and_the_order_of_the_new_question(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = session.ask(GROUPED, within=1e9).table

    def fails(*_: object, **__: object) -> None:
        raise UsageError("it is not known as accurately any more")

    monkeypatch.setattr("dpcore.session.session.quote", fails)
    other = "select count(*) as m, city as c from release where smoker group by city order by m desc limit 2"
    again = session.ask(other, within=1e9)
    assert again.price.free
    assert list(again.table.columns)[:1] + list(again.table.columns)[-1:] == ["m", "c"]
    assert again.table.m.to_list() == sorted(before.n, reverse=True)[:2]


class FailingOnce(Curator):
    """A curator whose first call of `coarsen` fails."""

    failed = False

    def coarsen(self, column: int, groups: np.ndarray) -> None:
        if not self.failed:
            self.failed = True
            raise UsageError("something is wrong; ask again")
        super().coarsen(column, groups)


def test_an_axis_that_could_not_be_made_is_made_by_the_next_question(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = "select count(*) as n from release where smoker and city = 'north'"
    monkeypatch.setattr(session._curator, "__class__", FailingOnce)
    within = narrower(session, one)
    with pytest.raises(UsageError, match="something is wrong"):
        session.ask(one, within=within)
    assert not session.ask(one, within=within).price.free
    axes = session._source._counted[None].added
    assert len(set(axes.values())) == len(axes) > 0


def test_threads_that_ask_the_same_at_once_pay_once(session: Session) -> None:
    within, together = narrower(session, GROUPED), Barrier(3)

    def ask(_: int) -> int:
        with Session.join("spec.yaml") as own:  # a session belongs to its thread
            together.wait(timeout=60)
            return own.ask(GROUPED, within=within).price.amount

    with ThreadPoolExecutor(3) as pool:
        amounts = list(pool.map(ask, range(3)))
    assert sorted(amounts)[:2] == [0, 0]
    assert sum(amounts) == spent() > 0


def test_a_narrower_answer_costs_only_what_is_missing(session: Session) -> None:
    one = "select count(*) as n from release where sex = 'F' and city = 'north'"
    wide, narrow = narrower(session, one, 0.8), narrower(session, one, 0.6)
    fresh = session.price(one, within=narrow).amount
    paid = session.ask(one, within=wide).price.amount
    more = session.ask(one, within=narrow).price.amount
    assert 0 < more < fresh
    # Precisions add up. If the model has learned more than the answer, the rest is cheaper.
    assert paid + more <= fresh * 1.001


def test_a_purchase_also_teaches_about_other_questions(session: Session) -> None:
    of_city = "select count(*) as n from release where smoker and city = 'CITY'"
    parts = [of_city.replace("CITY", city) for city in ("north", "south", "west")]

    def half_widths() -> float:
        return sum(session.price(part, within=1e9).half_width for part in parts)

    before = half_widths()
    session.ask(GROUPED, within=narrower(session, GROUPED, 0.5))
    assert half_widths() < 0.8 * before


def test_an_answer_is_the_average_of_what_was_known_and_what_was_bought(session: Session) -> None:
    within = narrower(session, GROUPED)
    known = session.ask(GROUPED, within=1e9).table
    reply = session.ask(GROUPED, within=within).table
    bought = session.knowledge.bought[0]
    names = session.knowledge.first.universe.names
    assert [names[column] for column in bought.grid.columns] == ["smoker", "city"]
    rows = bought.counts[1]  # of those who smoke
    value = np.where(known.n_low > 0, (known.n_low + known.n_high) / 2, known.n)
    half = np.maximum(known.n_high - value, value - known.n_low).to_numpy()
    weight = (half / 1.959964) ** 2 / ((half / 1.959964) ** 2 + bought.noise**2)
    assert reply.n.to_list() == pytest.approx(np.maximum(weight * rows + (1 - weight) * value, 0).tolist(), abs=0.01)


def test_a_count_moves_to_the_middle_of_its_interval_before_anything_is_bought(session: Session) -> None:
    moved = 0
    for where in ("city = 'north'", "city = 'south'", "sex = 'F'", "sex = 'M'", "smoker", "age < 50", "age >= 75"):
        one = f"select count(*) as n from release where {where}"  # noqa: S608  constants
        (known,) = session.look(one, within=None).table.to_dict("records")
        low, value, high = known["n_low"], known["n"], known["n_high"]
        half, side = (high - low) / 2, max(high - value, value - low)
        if low > 0 and side > 1.01 * half:
            moved += 1
            reply = session.ask(one, within=(half + side) / 2)
            assert reply.price.free
            assert reply.price.half_width == pytest.approx(half)
            (found,) = reply.table.to_dict("records")
            assert (found["n_low"], found["n_high"]) == (low, high)
            assert found["n"] == pytest.approx((low + high) / 2)
            assert session.price(one, within=0.9 * half).amount > 0
    assert moved  # otherwise nothing was tested
    assert spent() == 0


@pytest.mark.parametrize(
    ("query", "within", "problem"),
    [
        ("select count(*) from release where departmant = 1", 5, r"line 1, column 36: there is no column"),
        ("select count(*)\nfrom release where", 5, r"line 2, column"),
        (
            "select median(age) from release where sex = 'F'",
            0.01,
            r"median_age is known within [\d.]+ and cannot be bought",
        ),
        (
            "select sex, median(age) as middle from release group by sex",
            0.01,
            r"middle is known within [\d.]+ where sex is null and",
        ),
        ("select count(*) from release where age < 30", 5, r"divides a declared bin of age, from \d+ to before \d+"),
        (GROUPED, 1e-6, "no measurement is sold that is as accurate"),
        (GROUPED, "a lot", "say how accurate"),
    ],
)
def test_a_question_that_cannot_be_answered_costs_nothing(
    session: Session, monkeypatch: pytest.MonkeyPatch, query: str, within: float | str, problem: str
) -> None:
    monkeypatch.setattr(SessionTable, "read", no_data)
    for ask in (session.price, session.ask):
        with pytest.raises(UsageError, match=problem):
            ask(query, within=within)
    assert spent() == 0


def test_a_question_beyond_the_budget_is_refused_and_says_what_is_possible(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SessionTable, "read", no_data)
    with pytest.raises(BudgetRefused, match="for what is left, ask within") as refused:
        session.ask(GROUPED, within=narrower(session, GROUPED, 0.1))
    possible = float(str(refused.value).split("ask within ")[1].split()[0])
    assert refused.value.requested > refused.value.remaining
    assert session.price(GROUPED, within=possible * 1.001).amount <= refused.value.remaining
    assert spent() == 0


def test_a_session_goes_on_only_with_the_table_that_it_began_with(copied: Callable[[], Path]) -> None:
    folder = copied()
    visits(3000, seed=2).to_csv(folder / "visits.csv", index=False)
    with Session.join("spec.yaml") as session:
        with pytest.raises(UsageError, match="the table is not the one that this session began with"):
            session.ask(GROUPED, within=narrower(session, GROUPED))
        assert session.ask(ALL, within=500).price.free  # what is known stays known
    assert spent() == 0


def test_the_first_release_is_paid_from_the_budget_of_the_session(copied: Callable[[], Path]) -> None:
    copied()
    with Session.open("spec.yaml", epsilon=0.5, session="second") as second:
        assert second.described()["first"] == "second-first"
    with open_ledger() as ledger:
        both = ledger.run("second").reserved + ledger.run("second-first").reserved
        currency, delta = ledger.account("visits").currency, ledger.account("visits").delta
    assert both == budget_of(0.5, delta=delta, currency=currency)[1]


def test_an_account_that_cannot_pay_opens_no_session(workspace: Workspace) -> None:
    workspace.open_account(epsilon=0.5)
    with pytest.raises(BudgetRefused):
        Session.open(workspace.spec, session="s")
    with open_ledger() as ledger:
        assert ledger.runs("visits") == ()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("strategy: {name: mwem, rounds: 4}", "strategy: {name: pmw}"), "strategy pmw"),
        (("dataset: visits", "dataset: unknown"), "no account"),
    ],
)
def test_a_spec_without_sessions_is_refused(workspace: Workspace, change: tuple[str, str], problem: str) -> None:
    workspace.open_account()
    workspace.write_spec(change)
    with pytest.raises(UsageError, match=problem):
        Session.open(workspace.spec)


def test_a_session_is_published_as_a_release_for_nothing(session: Session) -> None:
    session.ask(GROUPED, within=narrower(session, GROUPED))
    paid = spent()
    outcome = session.release()
    again = session.release()
    assert again == outcome
    assert spent() == paid
    with open_ledger() as ledger:
        assert ledger.run(outcome["run"]).spent == 0
        together = [ledger.run(each).reserved for each in ("s", "s-first")]
    release = open_release(outcome["release"])
    assert release.manifest["privacy"]["epsilon"] == pytest.approx(
        EPSILON
    )  # the session's budget, with its first release
    assert release.manifest["privacy"]["rho"] == pytest.approx(sum(together) / 1e12)
    found = answer(release, GROUPED)
    known = session.knowledge.intervals
    assert found.n.to_list() == pytest.approx(
        next(iter(known.of(session._parsed(GROUPED), level=0.95)[1].values())).value.tolist(), abs=1.0
    )
    verify_ledger()


def test_a_closed_session_returns_what_it_has_not_spent(session: Session) -> None:
    within = narrower(session, GROUPED)
    price = session.ask(GROUPED, within=within).price
    told = close("spec.yaml")
    assert told["returned"] == pytest.approx(price.remaining - price.cost)
    assert [each["state"] for each in listed("spec.yaml")] == ["closed"]
    with pytest.raises(UsageError, match="is closed and buys no more"):
        session.ask(GROUPED, within=within / 2)
    assert session.ask(GROUPED, within=within).price.stored  # what was bought can still be read
    with pytest.raises(UsageError, match="no session of this spec is open"):
        Session.join("spec.yaml")


def test_nothing_is_bought_for_groups_that_the_condition_excludes(
    opened: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(opened)
    plain = "select count(*) as n from release where city = 'north' and smoker"
    with Session.join("spec.yaml", session="s") as session:
        half = session.price(plain, within=1e9).half_width
        for within in (1.01 * half, "50%"):
            alone = session.price(plain, within=within)
            grouped = session.price(plain.replace("count(*)", "city, count(*)") + " group by city", within=within)
            assert (alone.free, grouped.free) == (True, True)
