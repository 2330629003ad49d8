"""Where mechanisms meet the data: paid first, drawn once, never from anything but the stated sensitivity."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from dpcore.curator.charges import ChargedStep, Statistic
from dpcore.curator.curator import Curator, Offer, _weighted_errors
from dpcore.curator.gate import CountQuery, Gatekeeper
from dpcore.errors import StepFailed
from dpcore.ledger import Ledger, open_ledger
from dpcore.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialMechanism,
    RoundedGaussian,
    SparseVector,
    from_description,
)
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.tables.histogram import LocalHistogram
from tests.conftest import Workspace

STEPS = {
    "select_marginal": "round-001/select",
    "select_cell": "round-001/select",
    "measure_mean_error": "error/workload",
    "measure_largest_error": "error/largest",
}
SHAPE = (2, 3)
COUNTS = np.array([[50, 0, 10], [5, 100, 35]])
MECHANISMS = (DiscreteGaussian, DiscreteLaplace, ExponentialMechanism, RoundedGaussian)


PERSON = Protection(unit="person", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)


def histogram(counts: np.ndarray = COUNTS, *, protection: Protection = PERSON) -> LocalHistogram:
    codes = [code.astype(np.uint8) for code in np.unravel_index(np.arange(counts.size), counts.shape)]
    return LocalHistogram.of(codes=codes, counts=counts.ravel(), shape=counts.shape, protection=protection)


@pytest.fixture
def make_curator(workspace: Workspace) -> Callable[..., tuple[Curator, Ledger]]:
    def make(
        *,
        delta: float = 1e-9,
        currency: Currency | None = None,
        rows_per_unit: int = 1,
        neighbours: Neighbours = Neighbours.ADD_REMOVE,
    ) -> tuple[Curator, Ledger]:
        workspace.open_account(delta=delta, currency=currency)
        ledger = open_ledger()
        ledger.reserve("r", account="visits", amount=10**11, claim="c")
        protection = Protection(unit="person", rows_per_unit=rows_per_unit, neighbours=neighbours)
        curator = Curator(ledger=ledger, run_id="r", protection=protection, currency=ledger.account("visits").currency)
        curator.receive(histogram(protection=protection), lease=ledger.lease("r"))
        opened.append(ledger)
        return curator, ledger

    opened: list[Ledger] = []
    yield make
    for ledger in opened:
        ledger.close()


def marginals() -> list[Offer]:
    return [Offer((axis,), np.zeros(SHAPE[axis], dtype=np.int64)) for axis in (0, 1)]


def ask_everything(curator: Curator) -> None:
    curator.select_marginal("round-001/select", marginals, share=Fraction(1, 10))
    curator.select_cell("round-002/select", lambda: [Offer((0,), np.zeros(2, dtype=np.int64))], share=Fraction(1, 10))
    curator.measure_marginal("round-001/measure", (0, 1), share=Fraction(1, 10))
    curator.measure_cell("round-002/measure", (0,), 1, share=Fraction(1, 10))
    curator.measure_cell("total", (), None, share=Fraction(1, 10))
    curator.measure_mean_error("error/workload", marginals, share=Fraction(1, 10))
    curator.measure_largest_error("error/largest", marginals, share=Fraction(1, 10))


@pytest.mark.parametrize(
    ("delta", "currency"), [(0.0, Currency.PURE), (1e-9, Currency.ZCDP), (1e-9, Currency.GDP)], ids=list(Currency)
)
def test_nothing_is_drawn_before_its_charge_is_in_the_ledger(
    make_curator: Any, monkeypatch: pytest.MonkeyPatch, delta: float, currency: Currency
) -> None:
    curator, ledger = make_curator(delta=delta, currency=currency)
    drawn: list[tuple[int, int]] = []

    def watched(draw: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, values: Any) -> Any:
            paid = sum(event.details["amount"] for event in ledger.history("visits") if event.kind == "charged")
            drawn.append((self.price(ledger.account("visits").currency), paid))
            return draw(self, values)

        return call

    for mechanism in MECHANISMS:
        monkeypatch.setattr(mechanism, "draw", watched(mechanism.draw))
    ask_everything(curator)
    assert len(drawn) == 7
    charges = 0
    for charge, paid in drawn:
        charges += charge
        assert paid >= charges


def test_the_same_question_is_answered_from_the_ledger_without_charge_draw_or_data(
    make_curator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    curator, ledger = make_curator()
    first = curator.measure_marginal("one-way/m", (0, 1), share=Fraction(1, 2))
    chosen = curator.select_marginal("round-001/select", marginals, share=Fraction(1, 2))
    head = ledger.head()
    blind = Curator(
        ledger=ledger,
        run_id="r",
        protection=PERSON,
        currency=Currency.ZCDP,
    )
    again = blind.measure_marginal("one-way/m", (0, 1), share=Fraction(1, 2))
    assert (again.values == first.values).all()
    assert blind.select_marginal("round-001/select", lambda: pytest.fail("not needed"), share=Fraction(1, 2)) == chosen
    assert ledger.head() == head
    with pytest.raises(StepFailed):
        blind.measure_marginal("one-way/new", (0,), share=Fraction(1, 2))


@pytest.mark.parametrize(
    ("delta", "currency", "marginal", "cell"),
    [
        (0.0, Currency.PURE, "discrete-laplace", "discrete-laplace"),
        (1e-9, Currency.ZCDP, "discrete-gaussian", "discrete-laplace"),
        (1e-9, Currency.GDP, "rounded-gaussian", "rounded-gaussian"),
    ],
    ids=list(Currency),
)
def test_each_currency_is_spent_on_the_mechanisms_that_suit_it(
    make_curator: Any, delta: float, currency: Currency, marginal: str, cell: str
) -> None:
    curator, ledger = make_curator(delta=delta, currency=currency)
    expected = curator.expected_noise(Fraction(1, 10))
    ask_everything(curator)
    rows = ledger.transcript("r")
    assert [row.mechanism["name"] for row in rows] == ["exponential", "exponential", marginal, *[cell] * 4]
    for row in rows:
        assert from_description(row.mechanism).price(currency) == row.amount
    measured = curator.measure_marginal("round-001/measure", (0, 1), share=Fraction(1, 10))
    assert expected < measured.noise < 1.3 * expected  # some was spent in between


@pytest.mark.parametrize(
    ("neighbours", "rows", "squared"), [("add-remove", 1, 1), ("add-remove", 3, 9), ("replace-one", 3, 18)]
)
def test_the_noise_follows_from_unit_and_neighbours(
    make_curator: Any, neighbours: str, rows: int, squared: int
) -> None:
    curator, ledger = make_curator(rows_per_unit=rows, neighbours=Neighbours(neighbours))
    curator.measure_marginal("one-way/m", (0, 1), share=Fraction(1, 2))
    curator.select_marginal("round-001/select", marginals, share=Fraction(1, 2))
    curator.measure_cell("round-001/measure", (0,), 0, share=Fraction(1, 2))
    measured, selected, counted = ledger.transcript("r")
    assert measured.mechanism["l2_squared"] == squared
    assert selected.mechanism["sensitivity"] == rows * (2 if neighbours == "replace-one" else 1)
    assert counted.mechanism["l1"] == rows


def test_selection_finds_what_the_model_gets_most_wrong(make_curator: Any) -> None:
    curator, _ = make_curator(delta=0.0)
    offered = [
        Offer((0,), COUNTS.sum(axis=1)),
        Offer((1,), COUNTS.sum(axis=0) + np.array([-40000, 0, 0])),
        Offer((0, 1), COUNTS + 10),
    ]
    assert curator.select_marginal("round-001/select", lambda: offered, share=Fraction(1, 2)).axes == (1,)
    expected = [Offer((0,), COUNTS.sum(axis=1)), Offer((0, 1), COUNTS + np.eye(2, 3, 1, dtype=np.int64) * 40000)]
    chosen = curator.select_cell("round-002/select", lambda: expected, share=Fraction(1, 2))
    assert chosen.axes == (0, 1)
    assert chosen.cell in (1, 5)


@pytest.mark.parametrize(
    "offered",
    [
        [],
        [Offer((0,), COUNTS.sum(axis=1)), Offer((1,), np.full(3, np.iinfo(np.int64).min))],  # what a NaN becomes
        [Offer((0,), np.array([2**53, 2]))],
        *([Offer((0,), np.zeros(2, dtype=np.int64), weight)] for weight in (0, -1, 101, 2.0, True)),
        *([Offer((0,), np.zeros(2, dtype=np.int64), 1, tolerated)] for tolerated in (-1, 2**53 + 1, 2.0)),
    ],
    ids=[
        "nothing",
        "no numbers",
        "too many rows",
        "no weight",
        "less",
        "too much weight",
        "no whole weight",
        "no number",
        "tolerates less than nothing",
        "tolerates too much",
        "tolerates no whole number",
    ],
)
@pytest.mark.parametrize("kind", list(STEPS))
def test_what_no_score_can_be_made_of_is_refused_and_not_paid(make_curator: Any, kind: str, offered: Any) -> None:
    curator, ledger = make_curator()
    with pytest.raises(StepFailed):
        getattr(curator, kind)(STEPS[kind], lambda: offered, share=Fraction(1, 2))
    assert ledger.run("r").spent == 0
    assert not ledger.transcript("r")
    getattr(curator, kind)(STEPS[kind], lambda: [Offer((0,), np.array([2**52, 0]), 100)], share=Fraction(1, 2))
    assert ledger.run("r").spent > 0


@pytest.mark.parametrize("kind", ["select_marginal", "select_cell"])
def test_an_error_counts_as_often_as_its_weight_says(make_curator: Any, kind: str) -> None:
    curator, _ = make_curator(delta=0.0)
    wrong = np.array([0, 900_000, 0])  # far more than chance could make up for

    def offered(weight: int) -> list[Offer]:
        return [Offer((0,), COUNTS.sum(axis=1), weight), Offer((1,), COUNTS.sum(axis=0) + wrong, 1)]

    def selected(step: str, offers: list[Offer]) -> tuple[int, ...]:
        return getattr(curator, kind)(step, lambda: offers, share=Fraction(1, 2)).axes  # type: ignore[no-any-return]

    assert selected("round-001/select", offered(100)) == (1,)
    lighter = [Offer((0,), COUNTS.sum(axis=1) + wrong[1:], 1), Offer((1,), COUNTS.sum(axis=0) + wrong // 2, 100)]
    assert selected("round-002/select", lighter) == (1,)


def test_an_error_that_is_tolerated_is_no_reason_to_select(make_curator: Any) -> None:
    curator, _ = make_curator(delta=0.0)
    large, small = np.array([0, 900_000, 0]), np.array([400_000, 0])  # far more than chance could make up for

    def selected(step: str, *, tolerated: int) -> tuple[int, ...]:
        offers = [
            Offer((1,), COUNTS.sum(axis=0) + large, 3, tolerated),
            Offer((0,), COUNTS.sum(axis=1) + small, 3),
        ]
        return curator.select_marginal(step, lambda: offers, share=Fraction(1, 2)).axes  # type: ignore[no-any-return]

    assert selected("round-001/select", tolerated=0) == (1,)
    assert selected("round-002/select", tolerated=400_000) == (1,)
    assert selected("round-003/select", tolerated=600_000) == (0,)
    assert selected("round-004/select", tolerated=2**53) == (0,)


ROWS_OF_A_UNIT = 2
LITTLE = (2, 2)
WEIGHTED = [
    Offer((0,), np.array([2, 0]), 3),
    Offer((1,), np.array([0, 2]), 7, tolerated=5),
    Offer((0, 1), np.zeros(LITTLE, dtype=np.int64)),
]
TABLES = [np.array(counts).reshape(LITTLE) for counts in product(range(3), repeat=4) if sum(counts) <= 4]


def are_neighbours(one: np.ndarray, other: np.ndarray, relation: Neighbours) -> bool:
    """Tell whether one table becomes the other by a unit's rows that come, or that go as well."""
    come, gone = np.maximum(other - one, 0).sum(), np.maximum(one - other, 0).sum()
    return bool(come <= ROWS_OF_A_UNIT and gone <= (ROWS_OF_A_UNIT if relation is Neighbours.REPLACE_ONE else 0))


@pytest.mark.parametrize("relation", list(Neighbours))
@pytest.mark.parametrize("kind", ["select_marginal", "select_cell"])
@pytest.mark.parametrize("offered", [WEIGHTED, WEIGHTED[:1]], ids=["several", "one"])
def test_no_score_moves_by_more_than_the_sensitivity_that_is_paid_for_and_without_the_weight_it_would(
    make_curator: Any, monkeypatch: pytest.MonkeyPatch, relation: Neighbours, kind: str, offered: Sequence[Offer]
) -> None:
    curator, ledger = make_curator(rows_per_unit=ROWS_OF_A_UNIT, neighbours=relation)
    seen: list[np.ndarray] = []
    monkeypatch.setattr(ExponentialMechanism, "draw", lambda _, scores: seen.append(scores) or 0)
    lease, bounded = ledger.lease("r"), replace(PERSON, rows_per_unit=ROWS_OF_A_UNIT, neighbours=relation)
    for number, table in enumerate(TABLES):
        curator.receive(histogram(table, protection=bounded), lease=lease)
        getattr(curator, kind)(f"round-{number:03}/select", lambda: offered, share=Fraction(1, 1000))
    declared = {row.mechanism["sensitivity"] for row in ledger.transcript("r")}
    assert len(declared) == 1
    moved = max(
        int(np.abs(seen[one] - seen[other]).max())
        for one, other in permutations(range(len(TABLES)), 2)
        if are_neighbours(TABLES[one], TABLES[other], relation)
    )
    sensitivity = bounded.sensitivity
    assert moved == declared.pop()  # never more, and no smaller number would do
    assert moved > (sensitivity.l1 if kind == "select_marginal" else sensitivity.linf)  # the control


@pytest.mark.parametrize("relation", list(Neighbours))
@pytest.mark.parametrize("kind", ["measure_mean_error", "measure_largest_error"])
@pytest.mark.parametrize("offered", [WEIGHTED, WEIGHTED[:1]], ids=["several", "one"])
def test_no_error_moves_by_more_than_the_sensitivity_that_is_paid_for(
    make_curator: Any, monkeypatch: pytest.MonkeyPatch, relation: Neighbours, kind: str, offered: Sequence[Offer]
) -> None:
    curator, ledger = make_curator(delta=0.0, rows_per_unit=ROWS_OF_A_UNIT, neighbours=relation)
    listed = [ChargedStep("any", statistic, r"error/\d+") for statistic in Statistic]
    monkeypatch.setattr("dpcore.curator.charges.CHARGED_STEPS", listed)  # one step for each table
    seen: list[int] = []
    monkeypatch.setattr(DiscreteLaplace, "draw", lambda _, exact: seen.append(int(exact[0])) or exact)
    lease, bounded = ledger.lease("r"), replace(PERSON, rows_per_unit=ROWS_OF_A_UNIT, neighbours=relation)
    for number, table in enumerate(TABLES):
        curator.receive(histogram(table, protection=bounded), lease=lease)
        getattr(curator, kind)(f"error/{number}", lambda: offered, share=Fraction(1, 1000))
    (declared,) = {row.mechanism["l1"] for row in ledger.transcript("r")}
    moved = max(
        abs(seen[one] - seen[other])
        for one, other in permutations(range(len(TABLES)), 2)
        if are_neighbours(TABLES[one], TABLES[other], relation)
    )
    sensitivity = bounded.sensitivity
    assert declared == (sensitivity.l1 if kind == "measure_mean_error" else sensitivity.linf)
    assert moved <= declared
    if len(offered) == 1:
        assert moved == declared  # no smaller number would do


@pytest.mark.parametrize(
    "changed",
    [
        {"rows_per_unit": 3},
        {"rows_per_unit": 2, "neighbours": Neighbours.REPLACE_ONE},
        {"rows_per_unit": 2, "weight": "days", "row_weight": 2},
        {"rows_per_unit": 1, "neighbours": Neighbours.REPLACE_ONE},
        {"rows_per_unit": 2, "unit": "doctor"},
    ],
    ids=lambda changed: " ".join(map(str, changed.values())),
)
def test_counts_that_are_bounded_otherwise_than_the_run_says_are_refused_and_cost_nothing(
    make_curator: Any, changed: dict[str, Any]
) -> None:
    curator, ledger = make_curator(rows_per_unit=2)
    with pytest.raises(StepFailed, match=r"bounded by another protection.*report this"):
        curator.receive(histogram(protection=replace(PERSON, **changed)), lease=ledger.lease("r"))
    assert ledger.run("r").spent == 0


@pytest.mark.parametrize("relation", list(Neighbours))
def test_the_noise_is_for_what_was_counted_rows_or_units(make_curator: Any, relation: Neighbours) -> None:
    curator, ledger = make_curator(rows_per_unit=5, neighbours=relation)
    rows = replace(PERSON, rows_per_unit=5, neighbours=relation)
    for number, protection in enumerate((rows, rows.of_one_answer)):
        marginal, count = f"one-way/{number}", f"round-{number}/measure"
        curator.receive(histogram(protection=protection), lease=ledger.lease("r"))
        curator.measure_marginal(marginal, (0,), share=Fraction(1, 9))
        curator.measure_cell(count, (0,), 0, share=Fraction(1, 9))
        paid = from_description(ledger.operation("r", marginal).mechanism)
        assert paid.sensitivity == protection.sensitivity
        paid = from_description(ledger.operation("r", count).mechanism)
        assert paid.sensitivity == protection.count_sensitivity
    with pytest.raises(StepFailed, match="not for a marginal of these rows; report this"):
        curator.measure_grid(
            "ask/grid", (0,), mechanism=DiscreteLaplace(scale=9.0, sensitivity=rows.sensitivity), keep=bytes
        )
    assert ledger.operation("r", "ask/grid") is None


def test_a_gate_and_a_count_for_fewer_rows_than_are_kept_are_refused_and_cost_nothing(make_curator: Any) -> None:
    _, ledger = make_curator(rows_per_unit=2)
    kept = histogram(protection=replace(PERSON, rows_per_unit=2))
    keeper = Gatekeeper(ledger=ledger, currency=Currency.ZCDP, histogram=kept, lease=ledger.lease("r"))
    gate = SparseVector(epsilon=0.01, sensitivity=1, positives=1, monotone=False)
    everything = CountQuery((), np.array(True))
    with pytest.raises(StepFailed, match="report this"):
        keeper.open_gate("hard-1/gate", gate, threshold=5)
    with pytest.raises(StepFailed, match="report this"):
        keeper.measure("hard-1/count", everything, DiscreteLaplace(scale=99.0, sensitivity=PERSON.count_sensitivity))
    assert ledger.run("r").spent == 0
    keeper.open_gate("hard-1/gate", replace(gate, sensitivity=2), threshold=5)
    keeper.measure(
        "hard-1/count", everything, DiscreteLaplace(scale=99.0, sensitivity=kept.protection.count_sensitivity)
    )
    assert ledger.run("r").spent > 0


def test_errors_are_those_of_the_expected_counts_plus_noise(make_curator: Any) -> None:
    curator, _ = make_curator(delta=0.0)
    offered = [Offer((0,), COUNTS.sum(axis=1) - 9000, 3), Offer((1,), COUNTS.sum(axis=0) + np.array([0, 0, 70_000]), 1)]
    mean = curator.measure_mean_error("error/workload", lambda: offered, share=Fraction(1, 2))
    assert abs(int(mean.values[0]) - (3 * 18_000 + 70_000) // 4) < 40 * mean.noise
    largest = curator.measure_largest_error("error/largest", lambda: offered, share=Fraction(1))
    assert abs(int(largest.values[0]) - 70_000) < 40 * largest.noise
    again = curator.measure_mean_error("error/workload", lambda: pytest.fail("not needed"), share=Fraction(1, 2))
    assert (again.values == mean.values).all()


def test_measurements_are_the_true_counts_plus_noise(make_curator: Any) -> None:
    curator, _ = make_curator(delta=0.0)
    measured = curator.measure_marginal("one-way/m", (1, 0)[::-1], share=Fraction(99, 100))
    assert np.abs(measured.values - COUNTS).max() < 40 * measured.noise
    total = curator.measure_cell("total", (), None, share=Fraction(99, 100))
    assert abs(int(total.values.sum()) - 200) < 40 * total.noise


def test_interruptions_that_use_up_the_reservation_are_seen(make_curator: Any) -> None:
    curator, ledger = make_curator()
    assert not curator.exhausted("one-way/m", answers=1)
    curator.measure_marginal("one-way/m", (0,), share=Fraction(1))
    assert ledger.run("r").remaining < 100
    assert curator.exhausted("n", answers=1)
    assert not curator.exhausted("one-way/m", answers=1)


def test_all_that_is_on_offer_is_counted_together_in_groups_that_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = []
    monkeypatch.setattr("dpcore.curator.curator.KEPT_CELLS", 7)
    monkeypatch.setattr(LocalHistogram, "prepare", lambda _, sets: prepared.append(list(sets)))
    sizes = {(0,): 3, (1,): 4, (0, 1): 12, (1, 0): 2}
    offered = [Offer(axes=axes, expected=np.zeros(size, dtype=np.int64)) for axes, size in sizes.items()]
    monkeypatch.setattr(LocalHistogram, "marginal", lambda _, axes: np.ones(sizes[axes], dtype=np.int64))
    errors = list(_weighted_errors(histogram(), offered))
    assert [error.sum() for error in errors] == list(sizes.values())
    assert prepared == [[(0,), (1,)], [(0, 1)], [(1, 0)]]
