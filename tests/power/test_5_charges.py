"""Charge equals noise: every draw of a whole run is the one that its ledger row describes and prices, and none is without a row.

A run's bytes of entropy are recorded. Each draw is then made again by the mechanism that the ledger row describes, from the same bytes, and
must come out the same: what was paid for is what was drawn, whatever the code between them looks like. What a person can move is measured
as well, by a second run without that person that is given the first run's answers.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpcore import ask, synthesize
from dpcore.comparison.figures import buy_figures
from dpcore.curator.curator import Curator
from dpcore.errors import StepFailed
from dpcore.ledger import Ledger, Operation, open_ledger
from dpcore.mechanisms import (
    BoundedMean,
    BoundedSum,
    CountsAbove,
    DiscreteGaussian,
    ExponentialMechanism,
    NoisyChoice,
    NoisyCount,
    NoisyHistogram,
    NoisyQuantiles,
    TopCategories,
    from_description,
)
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, budget_of
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity
from dpcore.runs.reading import Reading
from dpcore.runs.synthesis import Synthesis
from dpcore.strategies import step_name
from dpcore.universe import Categorical, Integer, Universe
from tests.conftest import Workspace, visits
from tests.power.recording import DECLARED, ENTROPY, Draw, Recording, replayed

pytestmark = [
    pytest.mark.system_entropy,  # the recording listens to the operating system
    pytest.mark.usefixtures("rough_models"),
]
FINDING = """\
dataset: visits
source: {path: visits.csv}
privacy: {unit: person, max_rows_per_unit: 2, neighbours: add-remove, epsilon: 1.0, delta: 1e-9}
universe:
  city: {type: categorical, discover: {most: 8, length: 6, alphabet: abcdefghijklmnopqrstuvwxyz, share: 0.2}, outside: other}
  age: {type: integer, min: 0, max: 99, discover: {bins: 6, share: 0.1}}
  smoker: {type: boolean}
workload: {marginals: 2}
strategy: {name: mwem, rounds: 2}
"""
BLOCKS = ("universe:", "blocks: {column: day, every: month, start: 2024-01-01}\nuniverse:")
LAST = {"person": "the last one", "sex": "F", "age": 40, "smoker": True, "city": "west", "day": "2024-02-01"}
OTHER = {**LAST, "sex": "M", "age": 80, "smoker": False, "city": "north"}
DELTA = {Currency.PURE: "0", Currency.ZCDP: "1e-9", Currency.GDP: "1e-9"}
DAYS = Integer(minimum=0, maximum=99)
CITY = Categorical(("north", "south", "west"))
STRATEGIES = {
    "mwem": "{name: mwem, rounds: 4}",
    "pmw": "{name: pmw, rounds: 12, alpha: 0.02}",
    "adaptive": "{name: adaptive}",
}


@dataclass(frozen=True)
class Plan:
    """What is run: a spec, an account, and whether a person is added or replaced."""

    workspace: Workspace
    currency: Currency
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    blocks_by: str | None = None

    def tables(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """A table whose last person's two rows lie in one cell, and its neighbour."""
        others = visits(1500, seed=3).assign(day="2024-02-01")
        gone = others if self.neighbours is Neighbours.ADD_REMOVE else with_rows(others, [OTHER] * 2)
        return with_rows(others, [LAST] * 2), gone

    def recorded(self, table: pd.DataFrame, *, answers_of: Recording | None = None) -> Recording:
        """Run on a table and a fresh ledger."""
        self.prepare(table)
        recording = Recording()
        with recording.of_a_run(answers_of=answers_of):
            synthesize(self.workspace.spec, as_of=date(2024, 5, 1) if self.blocks_by else None)
        return recording

    def prepare(self, table: pd.DataFrame) -> None:
        for old in (".dpflow", "releases"):  # what was seen of the last ledger as well
            shutil.rmtree(self.workspace.folder / old, ignore_errors=True)
        table.to_csv(self.workspace.folder / "visits.csv", index=False)
        epsilon, delta = 10.0, float(DELTA[self.currency])
        with open_ledger(create=True) as ledger:
            ledger.open_account(
                "visits",
                currency=self.currency,
                cap=budget_of(epsilon, delta=delta, currency=self.currency)[1],
                epsilon=epsilon,
                delta=delta,
                unit="person",
                neighbours=self.neighbours,
                blocks_by=self.blocks_by,
            )

    def complaints(self) -> set[str]:
        """All that is wrong with a run and with its neighbour."""
        here, there = self.tables()
        first = self.recorded(here)
        return complaints(first, self.currency) | movements(first, self.recorded(there, answers_of=first))


def with_rows(table: pd.DataFrame, rows: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.concat([table, pd.DataFrame(rows)], ignore_index=True)[list(table)]


def complaints(recording: Recording, currency: Currency) -> set[str]:
    """What is wrong with a run's draws, charges and entropy, in words."""
    found = {problem for draw in recording.draws for problem in _complaints_of(draw)}
    paid = [draw.operation for draw in recording.draws]
    if any(paid.count(operation) > 1 for operation in recording.charged):
        found.add("two draws for one charge")
    if any(from_description(row.mechanism).price(currency) > row.amount for row in recording.charged):
        found.add("charged less than the ledger row describes")
    outside = {taken.caller for taken in recording.taken if taken.operation is None}
    within = {taken.caller for taken in recording.taken if taken.operation is not None}
    if outside - DECLARED.keys():
        found.add("entropy taken outside of a charged operation")
    if within - {ENTROPY}:
        found.add("another source of randomness within an operation")
    return found


def _complaints_of(draw: Draw) -> Iterator[str]:
    if draw.operation is None:
        yield "a draw without a charged operation"
        return
    if not draw.words:
        yield "a draw that took no entropy"
        return
    with replayed(draw.words) as left:
        try:
            again = from_description(draw.operation.mechanism).draw(draw.values)  # type: ignore[attr-defined]
        except LookupError:
            again = None
    if left or not np.array_equal(again, draw.result):
        yield "a draw other than the one that was paid for"


def movements(here: Recording, there: Recording) -> set[str]:
    """Compare what the mechanisms were given on neighbouring tables with the sensitivities that were paid for."""
    if len(here.draws) != len(there.draws):
        return {"another number of draws on the neighbour"}
    found, most = set(), 0.0
    for one, other in zip(here.draws, there.draws, strict=True):
        if one.operation is None or other.operation is None:
            continue
        row, moved = one.operation.mechanism, np.abs(one.values - other.values)
        if "l1" in row:
            paid = Sensitivity(int(row["l1"]), int(row["l2_squared"]), int(row["linf"]))
            true = Sensitivity(int(moved.sum()), int((moved**2).sum()), int(moved.max()))
            if true.l1 > paid.l1 or true.l2_squared > paid.l2_squared or true.linf > paid.linf:
                found.add("a person moves a measurement by more than was paid for")
            most = max(most, true.l1 / paid.l1)
        elif moved.max() > row["sensitivity"]:
            found.add("a person moves a score by more than was paid for")
    if most < 1:
        found.add("nobody moved anything as far as was paid for: this comparison has no power")
    return found


@pytest.mark.parametrize("currency", list(Currency))
@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_every_draw_of_a_run_is_paid_for(workspace: Workspace, strategy: str, currency: Currency) -> None:
    workspace.write_spec(
        ("{name: mwem, rounds: 4}", STRATEGIES[strategy]), ("delta: 1e-9", f"delta: {DELTA[currency]}")
    )
    assert Plan(workspace, currency).complaints() == set()


@pytest.mark.parametrize("currency", list(Currency))
def test_every_draw_is_paid_for_where_a_person_may_be_exchanged(workspace: Workspace, currency: Currency) -> None:
    workspace.write_spec(("add-remove", "replace-one"), ("delta: 1e-9", f"delta: {DELTA[currency]}"))
    assert Plan(workspace, currency, Neighbours.REPLACE_ONE).complaints() == set()


@pytest.mark.parametrize("currency", list(Currency))
def test_every_draw_is_paid_for_where_the_total_is_bought_first(workspace: Workspace, currency: Currency) -> None:
    workspace.write_spec(
        ("epsilon: 1.0", "expect_rows: [500, 5000], epsilon: 1.0"), ("delta: 1e-9", f"delta: {DELTA[currency]}")
    )
    plan = Plan(workspace, currency)
    assert plan.complaints() == set()
    assert plan.recorded(plan.tables()[0]).charged[0].step == "expected-total"


@dataclass(frozen=True)
class ManyRows(Plan):
    """A plan whose last person has far more rows in one cell than are kept of anybody."""

    def tables(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return a table with that person, and its neighbour."""
        others = visits(1500, seed=3).assign(day="2024-02-01")
        gone = others if self.neighbours is Neighbours.ADD_REMOVE else with_rows(others, [OTHER])
        return with_rows(others, [LAST] * 100), gone


LIMITED = ("max_rows_per_unit: 2", "max_rows_per_unit: auto")


@pytest.mark.parametrize("currency", list(Currency))
def test_every_draw_is_paid_for_where_the_limit_is_chosen(workspace: Workspace, currency: Currency) -> None:
    workspace.write_spec(LIMITED, ("delta: 1e-9", f"delta: {DELTA[currency]}"))
    plan = ManyRows(workspace, currency)
    assert plan.complaints() == set()
    assert plan.recorded(plan.tables()[0]).charged[0].step == "rows-per-unit"


def test_every_draw_is_paid_for_where_the_limit_is_chosen_and_a_person_exchanged(workspace: Workspace) -> None:
    workspace.write_spec(LIMITED, ("add-remove", "replace-one"))
    assert ManyRows(workspace, Currency.ZCDP, Neighbours.REPLACE_ONE).complaints() == set()


def test_rows_kept_beyond_the_chosen_limit_are_refused(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reading, "limited", lambda reading, _declaration: reading)
    workspace.write_spec(LIMITED)
    plan = ManyRows(workspace, Currency.ZCDP)
    with pytest.raises(StepFailed, match="bounded by another protection"):
        plan.recorded(plan.tables()[0])


def test_a_histogram_of_rows_for_the_price_of_one_of_units_is_noticed(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpcore.tables.ingest.records.tallied", lambda coded: coded)
    workspace.write_spec(LIMITED)
    found = ManyRows(workspace, Currency.ZCDP).complaints()
    assert "a person moves a measurement by more than was paid for" in found


TOGETHER = ("universe:", "persons: {rows_of: person, constant: [sex, age]}\nuniverse:")


@pytest.mark.parametrize("currency", list(Currency))
def test_every_draw_is_paid_for_where_the_rows_of_persons_are_kept_together(
    workspace: Workspace, currency: Currency
) -> None:
    workspace.write_spec(TOGETHER, ("delta: 1e-9", f"delta: {DELTA[currency]}"))
    plan = ManyRows(workspace, currency)
    assert plan.complaints() == set()
    assert plan.recorded(plan.tables()[0]).charged[0].step == "rows-of-persons/by-size"


def test_rows_counted_for_the_price_of_persons_are_noticed(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpcore.tables.ingest.records.tallied", lambda coded: coded)
    workspace.write_spec(TOGETHER)
    found = ManyRows(workspace, Currency.ZCDP).complaints()
    assert "a person moves a measurement by more than was paid for" in found


@pytest.mark.parametrize("currency", list(Currency))
def test_every_draw_of_a_discovery_is_paid_for(workspace: Workspace, currency: Currency) -> None:
    workspace.spec.write_text(FINDING.replace("delta: 1e-9", f"delta: {DELTA[currency]}"), encoding="utf-8")
    assert Plan(workspace, currency).complaints() == set()


def test_every_draw_of_a_run_over_blocks_is_paid_for(workspace: Workspace) -> None:
    workspace.write_spec(BLOCKS)
    assert Plan(workspace, Currency.ZCDP, blocks_by="month of day").complaints() == set()


def test_a_draw_that_a_crash_has_lost_is_drawn_anew_and_paid_for_anew(workspace: Workspace) -> None:
    plan, lost, resumed, step = Plan(workspace, Currency.ZCDP), Recording(), Recording(), step_name(2, "measure")
    plan.prepare(plan.tables()[0])
    with lost.of_a_run(), pytest.MonkeyPatch.context() as patch:
        commit = Ledger.commit

        def dies(self: Ledger, operation: Operation, output: bytes) -> Operation:
            if operation.step == step:
                raise KeyboardInterrupt
            return commit(self, operation, output)

        patch.setattr(Ledger, "commit", dies)
        with pytest.raises(KeyboardInterrupt):
            synthesize(workspace.spec, run_id="r")
    with resumed.of_a_run():
        synthesize(workspace.spec, run_id="r", resume=True)
    assert complaints(lost, Currency.ZCDP) | complaints(resumed, Currency.ZCDP) == set()
    again = [lost.charged[-1], resumed.charged[0]]
    assert [(operation.step, operation.attempt) for operation in again] == [(step, 1), (step, 2)]
    assert lost.draws[-1].words != resumed.draws[0].words


ASKED = {
    "count": lambda **bought: NoisyCount.for_amount(AMOUNT_OF_ONE // 10, **bought),
    "sum": lambda **bought: BoundedSum.for_amount(AMOUNT_OF_ONE // 10, attribute=DAYS, step=1, **bought),
    "mean": lambda **bought: BoundedMean.for_amount(AMOUNT_OF_ONE // 10, attribute=DAYS, step=1, **bought),
    "histogram": lambda **bought: NoisyHistogram.for_amount(
        AMOUNT_OF_ONE // 10, universe=Universe({"age": DAYS}), **bought
    ),
    "quantiles": lambda **bought: NoisyQuantiles.for_amount(
        AMOUNT_OF_ONE // 10, attribute=DAYS, step=1, shares=["0.25", "0.5"], **bought
    ),
    "top": lambda **bought: TopCategories.for_amount(AMOUNT_OF_ONE // 10, attribute=CITY, k=2, **bought),
    "choice": lambda **bought: NoisyChoice.for_amount(
        AMOUNT_OF_ONE // 10, candidates=["smokers"], wanted="most", target=None, **bought
    ),
    "above": lambda **bought: CountsAbove.for_amount(AMOUNT_OF_ONE // 10, threshold=90, positives=1, **bought),
}


@pytest.mark.parametrize("currency", list(Currency))
@pytest.mark.parametrize("what", list(ASKED))
def test_every_draw_of_a_question_is_paid_for(workspace: Workspace, what: str, currency: Currency) -> None:
    workspace.open_account(delta=float(DELTA[currency]), unit="row", currency=currency)
    table = visits(300, seed=1)
    protection = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
    query = ASKED[what](currency=currency, protection=protection)
    columns = {"histogram": table[["age"]], "top": table["city"]}
    column = columns.get(what, table["smoker" if what in {"count", "choice", "above"} else "age"])
    recording = Recording()
    with recording.of_a_run():
        answer = ask("visits", query, column)
    (row,) = recording.charged
    described = from_description(row.mechanism)
    assert described.price(currency) <= row.amount
    assert all(draw.operation == row and draw.words for draw in recording.draws)
    if what == "histogram":
        described = replace(described, universe=query.universe)  # type: ignore[type-var]
    if what == "top":
        described = replace(described, attribute=query.attribute)  # type: ignore[type-var]
    exact = query.read(column)
    within = [taken for taken in recording.taken if taken.operation is not None]  # a session compares without a draw
    assert within
    assert all(taken.operation == row and taken.caller == ENTROPY for taken in within)
    with replayed(tuple(taken.content for taken in within)) as left:
        again = described.answer(exact)  # type: ignore[attr-defined]
    assert left == []
    assert str(again) == str(answer)


@pytest.mark.parametrize("currency", list(Currency))
def test_every_draw_of_bought_figures_is_paid_for(workspace: Workspace, currency: Currency) -> None:
    workspace.write_spec(("rounds: 4", "rounds: 1"), ("delta: 1e-9", f"delta: {DELTA[currency]}"))
    plan = Plan(workspace, currency)
    here, there = plan.tables()
    plan.prepare(here)
    release = synthesize(workspace.spec).release
    first, second = Recording(), Recording()
    with first.of_a_run():
        buy_figures(release, workspace.spec, epsilon=0.5, approved=False)
    there.to_csv(workspace.folder / "visits.csv", index=False)
    with second.of_a_run(answers_of=first):
        buy_figures(release, workspace.spec, epsilon=0.5, approved=False)
    assert len(first.draws) == len(first.charged) == 3
    assert complaints(first, currency) == set()
    # Errors of a person's rows may cancel out, so they need not move as far as was paid for.
    assert movements(first, second) <= {"nobody moved anything as far as was paid for: this comparison has no power"}


def test_the_bytes_that_a_run_takes_are_those_of_its_draws_and_the_declared_ones(workspace: Workspace) -> None:
    recording = Plan(workspace, Currency.ZCDP).recorded(visits(300, seed=1))
    assert {taken.caller for taken in recording.taken} == {ENTROPY, *DECLARED}
    within = [taken.content for taken in recording.taken if taken.operation is not None]
    assert within == [words for draw in recording.draws for words in draw.words]


Plant = Callable[[pytest.MonkeyPatch], None]


def selections_for_free(patch: pytest.MonkeyPatch) -> None:
    pay = Curator._charge_then

    def charge_measurements(self: Curator, step: str, mechanism: Any, draw: Any) -> bytes:
        if not step.endswith("select"):
            return pay(self, step, mechanism, draw)
        assert self._received is not None
        self._paid[step] = 0
        output: bytes = draw(self._received[0])
        return output

    patch.setattr(Curator, "_charge_then", charge_measurements)


def drawn_before_it_is_paid(patch: pytest.MonkeyPatch) -> None:
    pay = Curator._charge_then

    def draw_then_charge(self: Curator, step: str, mechanism: Any, draw: Any) -> bytes:
        assert self._received is not None
        drawn = draw(self._received[0])
        return pay(self, step, mechanism, lambda _histogram: drawn)

    patch.setattr(Curator, "_charge_then", draw_then_charge)


def best_of_two(patch: pytest.MonkeyPatch) -> None:
    pay = Curator._charge_then

    def charge_then_draw_twice(self: Curator, step: str, mechanism: Any, draw: Any) -> bytes:
        return pay(self, step, mechanism, lambda histogram: max(draw(histogram), draw(histogram)))

    patch.setattr(Curator, "_charge_then", charge_then_draw_twice)


def half_the_price(patch: pytest.MonkeyPatch) -> None:
    charge = Ledger.charge

    def cheap(self: Ledger, *arguments: Any, amount: int, **named: Any) -> Any:
        return charge(self, *arguments, amount=amount // 2, **named)

    patch.setattr(Ledger, "charge", cheap)


def described_with_more_noise(patch: pytest.MonkeyPatch) -> None:
    describe = DiscreteGaussian.describe
    patch.setattr(DiscreteGaussian, "describe", lambda self: {**describe(self), "sigma": repr(self.sigma * 1.03)})


def drawn_with_less_noise(patch: pytest.MonkeyPatch) -> None:
    draw = DiscreteGaussian.draw
    patch.setattr(DiscreteGaussian, "draw", lambda self, counts: draw(replace(self, sigma=self.sigma / 1.03), counts))


def noise_of_numpy(patch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng()
    patch.setattr(
        DiscreteGaussian,
        "draw",
        lambda self, counts: counts + np.rint(rng.normal(0, self.sigma, counts.shape)).astype(np.int64),
    )


def selection_of_numpy(patch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng()

    def draw(self: ExponentialMechanism, scores: Any) -> int:
        return int(np.argmax(scores * (self.epsilon / (2 * self.sensitivity)) + rng.gumbel(size=scores.size)))

    patch.setattr(ExponentialMechanism, "draw", draw)


def a_coin_between_the_steps(patch: pytest.MonkeyPatch) -> None:
    select = Synthesis.select

    def tossed(self: Synthesis, number: int) -> Any:
        entropy.random_words(1)
        return select(self, number)

    patch.setattr(Synthesis, "select", tossed)


@pytest.mark.parametrize(
    ("plant", "complaint"),
    [
        (selections_for_free, "a draw without a charged operation"),
        (drawn_before_it_is_paid, "a draw without a charged operation"),
        (best_of_two, "two draws for one charge"),
        (half_the_price, "charged less than the ledger row describes"),
        (described_with_more_noise, "a draw other than the one that was paid for"),
        (drawn_with_less_noise, "a draw other than the one that was paid for"),
        (noise_of_numpy, "a draw that took no entropy"),
        (selection_of_numpy, "a draw that took no entropy"),
        (a_coin_between_the_steps, "entropy taken outside of a charged operation"),
    ],
)
def test_what_is_not_paid_for_is_noticed(workspace: Workspace, plant: Plant, complaint: str) -> None:
    plan = Plan(workspace, Currency.ZCDP)
    with planted(plant):
        recording = plan.recorded(plan.tables()[0])
    assert complaint in complaints(recording, Currency.ZCDP)


def neighbours_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Protection, "sensitivity", Protection.count_sensitivity)


def rows_per_person_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Protection, "most", 1)


@pytest.mark.parametrize("plant", [neighbours_ignored, rows_per_person_ignored])
def test_a_sensitivity_that_is_too_small_is_noticed(workspace: Workspace, plant: Plant) -> None:
    workspace.write_spec(("add-remove", "replace-one"))
    with planted(plant):
        found = Plan(workspace, Currency.ZCDP, Neighbours.REPLACE_ONE).complaints()
    assert "a person moves a measurement by more than was paid for" in found


@contextmanager
def planted(plant: Plant) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        yield
