"""Means, sums and shares that are bought: their prices, their intervals, and what is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore import Session
from dpcore.answers.intervals import Interval
from dpcore.errors import BudgetRefused, TableChanged, UsageError
from dpcore.ledger import open_ledger
from dpcore.mechanisms import from_description
from dpcore.mechanisms.noise import LARGEST_SIGMA, LEAST_NOISE
from dpcore.mechanisms.weighing import Weighing
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.session.purchase import LEAST, cheapest, needed_noise, plan
from dpcore.session.questions import Within
from dpcore.session.quote import Quote, quote
from dpcore.session.table import SessionTable
from dpcore.session.values import have_sums
from dpcore.steward.verify import verify_ledger
from dpcore.universe import Universe
from dpcore.universe.constraints import Violations
from dpcore.universe.orders import Order
from tests.dpcore.session.conftest import narrower
from tests.dpcore.session.test_session import no_data, spent

MEAN = "select avg(age) as x from release where sex = 'F'"
MEANS = "select sex, avg(age) as x from release where sex is not null group by sex"
SUM = "select sum(age) as x from release where sex = 'F'"
SHARE = "select 100 * count(*) filter (where smoker) / count(*) as x from release where sex = 'F'"
SHARES = "select sex, count(*) / sum(count(*)) over () as x from release where sex is not null group by sex"
KINDS = (MEAN, MEANS, SUM, SHARE, SHARES)

PROTECTIONS = [
    Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE),
    Protection(unit="person", rows_per_unit=3, neighbours=Neighbours.REPLACE_ONE),
]


@pytest.mark.parametrize("query", KINDS)
def test_it_is_priced_before_data_is_touched_charged_kept_and_verified(
    session: Session, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(SessionTable, "read", no_data)
        within = narrower(session, query, 0.7)
        price = session.price(query, within=within)
    reply = session.ask(query, within=within)
    assert reply.price == price
    assert spent() == price.amount > 0
    assert price.half_width == pytest.approx(within)
    halves = np.maximum(reply.table.x_high - reply.table.x, reply.table.x - reply.table.x_low)
    assert 0.7 * within < halves.max() < 1.1 * within  # it follows from how many rows there are
    again = session.ask(query, within=within)
    assert again.price.stored
    pd.testing.assert_frame_equal(again.table, reply.table)
    with open_ledger() as ledger:
        (row,) = ledger.transcript("s")
        assert from_description(row.mechanism).price(Currency.ZCDP) == row.amount
    verify_ledger()


def offered(session: Session, query: str, **terms: Any) -> Quote:
    """Return what a purchase of an answer takes, if nothing were known about it."""
    within = Within.of(narrower(session, query, 0.4))
    declared = {"currency": Currency.ZCDP, "protection": session._declaration.protection, **terms}
    parsed = session._parsed(query)
    found = quote(parsed, session.knowledge, within=within, have_sums=session._have_sums, **declared)
    nothing = {
        number: Interval(known.value, known.value - 1e9, known.value + 1e9, known.basis)
        for number, known in found.numbers.items()
    }
    return replace(found, numbers=nothing)


def kept_rows(session: Session, sold: Quote) -> tuple[np.ndarray, np.ndarray]:
    """Return the kept rows by sex, smoking and age, and what a purchase measures of them."""
    values, grid = sold.purchase.values, sold.purchase.grid
    session._read_table(values)
    histogram = session._source._counted[values and values.column].histogram
    others = tuple(column for column in grid.columns if values is None or column != values.column)
    counts = histogram.marginal((*others, values.column) if values else others)
    for place, column in enumerate(others):
        chosen = np.eye(max(grid.groups[grid.columns.index(column)]) + 1, dtype=np.int64)
        merged = chosen[grid.groups[grid.columns.index(column)]]
        counts = np.moveaxis(np.tensordot(counts, merged, axes=(place, 0)), -1, place)
    return histogram.marginal((0, 2, 1)), counts if values is None else sold.purchase.weighing.totals(counts)


def truth(rows: np.ndarray, query: str) -> np.ndarray:
    """Compute the numbers of a question in another way: from the kept rows."""
    by_age = rows.sum(axis=1)[:2]
    if query in {SHARE, SHARES}:
        return (
            np.array([100 * rows[0, 1].sum() / rows[0].sum()]) if query == SHARE else by_age.sum(axis=1) / by_age.sum()
        )
    sums = by_age @ np.arange(100)
    return {MEAN: sums[:1] / by_age[:1].sum(), SUM: sums[:1], MEANS: sums / by_age.sum(axis=1)}[query]


def coverage(session: Session, query: str, *, declared: float = 1.0, draws: int = 300) -> float:
    sold = offered(session, query)
    rows, exact = kept_rows(session, sold)
    stated = replace(sold, purchase=replace(sold.purchase, deviation=declared * sold.purchase.deviation))
    true, hits = truth(rows, query), []
    for _ in range(draws):
        (answer,) = stated.answer(sold.noise.draw(exact)).values()
        low, high = answer.low[: len(true)], answer.high[: len(true)]  # not the group that is excluded
        hits.append((low <= true) & (true <= high))
    return float(np.mean(hits))


@pytest.mark.parametrize("query", KINDS)
def test_an_interval_covers_and_one_for_too_little_noise_would_not(session: Session, query: str) -> None:
    assert 0.92 <= coverage(session, query) <= 0.985
    assert (
        coverage(session, query, declared=0.6, draws=80) < 0.87
    )  # planted: there is more noise than is said, which covers 0.76


def test_an_interval_of_a_mean_is_wider_by_how_far_values_may_be_from_their_cells(session: Session) -> None:
    sold = offered(session, MEAN)
    values = replace(sold.purchase.values, error=0.25)
    apart = replace(sold, purchase=replace(sold.purchase, values=values))
    noisy = sold.noise.draw(kept_rows(session, sold)[1])
    ((near,), (wide,)) = (each.answer(noisy).values() for each in (sold, apart))
    assert wide.high[0] - near.high[0] == pytest.approx(0.25, rel=0.01)
    assert near.low[0] - wide.low[0] == pytest.approx(0.25, rel=0.01)


@pytest.mark.parametrize("currency", list(Currency))
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_all_groups_cost_as_much_as_the_least_accurate_and_every_currency_pays(
    session: Session, currency: Currency, neighbours: Neighbours
) -> None:
    protection = replace(session._declaration.protection, neighbours=neighbours)
    sold = offered(session, MEANS, currency=currency, protection=protection)
    assert sold.noise.sensitivity == sold.purchase.weighing.sensitivity(protection)
    (number,) = sold.bought
    variance, _ = sold.purchase.errors(number, sold.expected, reach=2 * sold.within.normal)
    enough = sold.within.size  # it is not averaged with what the model infers
    assert 0.95 * enough < sold.within.normal * np.sqrt(variance[:2].max()) <= 1.001 * enough


def test_wide_noise_of_gaussian_dp_is_drawn_on_rounded_sums(session: Session) -> None:
    protection, sold = session._declaration.protection, offered(session, MEAN).purchase
    terms = {"currency": Currency.GDP, "protection": protection}
    purchase, noise = plan(sold.merging, sold.grid, sold.values, needed=lambda _: 1e5, **terms)
    assert purchase.weighing.grain > 1
    assert noise.standard_deviation <= LARGEST_SIGMA
    assert purchase.deviation * purchase.weighing.grain == pytest.approx(1e5, rel=0.01)
    exact = Weighing(purchase.weighing.weights).sensitivity(protection)
    assert noise.price(Currency.GDP) == pytest.approx(100 * exact.l2_squared, rel=0.15)  # mu^2 in multiples of 1e-12


def test_a_mean_that_the_rest_cannot_pay_is_refused_with_what_it_can(session: Session) -> None:
    with pytest.raises(BudgetRefused, match=r"costs epsilon [\d.]+ \(.* rho\), but session s has epsilon") as refused:
        session.ask(MEAN, within=0.2)
    possible = float(str(refused.value).split("ask within ")[1].split()[0])
    assert session.price(MEAN, within=possible * 1.001).amount <= refused.value.remaining
    assert spent() == 0


def test_a_mean_is_kept_and_teaches_the_model_nothing(session: Session) -> None:
    """A model that has learned how many rows have a value would seem to have measured the two columns together."""
    other = "select avg(age) as x from release where sex = 'M'"
    before = session.look(other, within=None).table
    session.ask(MEAN, within=1.2)
    assert session.knowledge.learned == ()
    pd.testing.assert_frame_equal(session.look(other, within=None).table, before)
    assert session.ask(MEAN, within=1.2).price.free


def test_groups_without_rows_stay_as_they_are_and_the_others_are_sold(session: Session) -> None:
    within = 7.0
    reply = session.ask("select sex, avg(age) as x from release group by sex", within=within)
    sold = reply.table[reply.table["x_high"] - reply.table["x_low"] <= 2 * within * 1.5]
    assert {"F", "M"} <= set(sold["sex"])
    assert set(sold["x_basis"]) == {"measured"}


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("select median(age) as x from release", "x is known within [\\d.]+ and cannot be bought more accurately"),
        ("select avg(age) as x from release where age < 30", "divides a declared bin of age"),
    ],
)
def test_what_is_not_computed_from_whole_cells_is_not_sold(session: Session, query: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        session.price(query, within=0.01)


def test_a_column_with_bins_and_a_constraint_is_not_read_in_finer_cells(session: Session) -> None:
    universe = session._declaration.universe
    assert have_sums(session._declaration, universe) == {1}
    rule = Order(low="age", high="age", violations=Violations.DROP)
    bound = replace(session._declaration, universe=Universe(universe.attributes, (rule,)))
    assert have_sums(bound, universe) == frozenset()


def test_a_mean_is_bought_of_the_table_that_the_release_has_read_and_of_no_other(session: Session) -> None:
    table = session._declaration.path.parent / "visits.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:-50]) + "\n")
    with pytest.raises(TableChanged):
        session.ask(MEAN, within=narrower(session, MEAN, 0.7))
    assert spent() == 0


@given(known=st.floats(1.0, 1e6), share=st.floats(0.01, 0.99), cells=st.integers(1, 50), normal=st.floats(0.5, 4.0))
def test_the_needed_noise_reaches_the_wanted_width_and_not_less(
    known: float, share: float, cells: int, normal: float
) -> None:
    wanted = known * share
    noise = needed_noise(np.array([known]), np.array([wanted]), np.array([float(cells)]), normal=normal)
    variance = 1 / ((normal / known) ** 2 + 1 / (cells * noise**2))
    assert normal * variance**0.5 == pytest.approx(wanted)


def test_the_most_demanding_group_decides() -> None:
    halves, wanted = np.array([100.0, 100.0, 10.0]), np.array([50.0, 60.0, 50.0])
    noise = needed_noise(halves, wanted, np.ones(3), normal=1.96)
    assert noise == needed_noise(halves[:1], wanted[:1], np.ones(1), normal=1.96)


@pytest.mark.parametrize("currency", list(Currency))
@pytest.mark.parametrize("protection", PROTECTIONS)
@pytest.mark.parametrize("noise", [0.51, 1.0, 7.3, 250.0])
def test_the_cheapest_noise_is_as_small_as_wanted_and_hardly_smaller(
    currency: Currency, protection: Protection, noise: float
) -> None:
    found = cheapest(noise, currency=currency, sensitivity=protection.sensitivity)
    assert found is not None
    assert found.sensitivity == protection.sensitivity
    assert found.standard_deviation <= noise
    price = found.price(currency)
    for cheaper, enough in ((price - price // 10**6 - 1, False), (price + price // 10**6 + 1, True)):
        bought = LEAST_NOISE[currency].for_amount(cheaper, currency=currency, sensitivity=protection.sensitivity)
        assert (bought.standard_deviation <= noise) == enough


def test_almost_exact_counts_are_not_sold() -> None:
    assert cheapest(LEAST / 2, currency=Currency.ZCDP, sensitivity=PROTECTIONS[0].sensitivity) is None


@pytest.mark.parametrize("currency", list(Currency))
def test_more_noise_than_can_be_drawn_costs_the_least_price(currency: Currency) -> None:
    assert cheapest(1e30, currency=currency, sensitivity=PROTECTIONS[0].sensitivity) is not None
