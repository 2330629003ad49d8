"""One question from Python: paid before the table is read, kept beside its price, refused without a loss."""

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpcore import ask
from dpcore.errors import BudgetRefused, SourceBroken, SourceError, StepFailed, UsageError
from dpcore.ledger import RunState, open_ledger
from dpcore.mechanisms import (
    BoundedMean,
    BoundedSum,
    CountsAbove,
    DiscreteLaplace,
    NoisyChoice,
    NoisyCount,
    NoisyHistogram,
    NoisyQuantiles,
    TopCategories,
)
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.steward.verify import verify_ledger
from dpcore.tables.sources.memory_table import MemoryTable
from dpcore.universe import Boolean, Categorical, Integer, Universe
from tests.conftest import visits

PERSON = Protection(unit="person", rows_per_unit=2, neighbours=Neighbours.ADD_REMOVE)
AGE = Integer(minimum=0, maximum=99)
TABLE = visits(2000, seed=3)


def count(epsilon: float = 1.0, protection: Protection = PERSON) -> NoisyCount:
    return NoisyCount.for_epsilon(epsilon, delta=1e-9, protection=protection)


def balance():
    with open_ledger() as ledger:
        return ledger.balance("visits")


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        (count(), (TABLE["smoker"],)),
        (BoundedSum.for_epsilon(1.0, delta=1e-9, attribute=AGE, step=1, protection=PERSON), (TABLE["age"],)),
        (BoundedMean.for_epsilon(1.0, delta=1e-9, attribute=AGE, step=1, protection=PERSON), (TABLE["age"],)),
    ],
)
def test_an_answer_is_charged_at_its_price_and_kept_with_it(workspace, query, columns):
    workspace.open_account()
    answer = ask("visits", query, *columns, ids=TABLE["person"])
    with open_ledger() as ledger:
        run = next(iter(ledger.runs("visits")))
        done = ledger.operation(run.id, "answer")
    assert run.state is RunState.SETTLED
    assert run.spent == done.amount == query.price(Currency.ZCDP) == balance().spent
    assert done.mechanism == query.describe()
    stored = json.loads(done.output)
    assert stored == (vars(answer) if isinstance(query, BoundedMean) else answer)
    verify_ledger()


CITY = Categorical(("north", "south", "west"))
SELECTING = {
    "quantiles": (
        NoisyQuantiles.for_epsilon(1.0, delta=1e-9, attribute=AGE, step=1, shares=["0.5", "0.9"], protection=PERSON),
        (TABLE["age"],),
    ),
    "top": (
        TopCategories.for_epsilon(1.0, delta=1e-9, attribute=CITY, k=2, protection=PERSON),
        (TABLE["city"],),
    ),
    "choice": (
        NoisyChoice.for_epsilon(1.0, delta=1e-9, candidates=["F", "M"], wanted="most", target=None, protection=PERSON),
        (TABLE["sex"] == "F", TABLE["sex"] == "M"),
    ),
    "above": (
        CountsAbove.for_epsilon(1.0, delta=1e-9, threshold=900, positives=1, protection=PERSON),
        (TABLE["age"] > 100, TABLE["age"] >= 0),
    ),
}


@pytest.mark.parametrize("what", list(SELECTING))
def test_a_selection_is_charged_at_its_price_and_kept_with_it(workspace, what):
    workspace.open_account()
    query, columns = SELECTING[what]
    answer = ask("visits", query, *columns, ids=TABLE["person"])
    with open_ledger() as ledger:
        done = ledger.operation(next(iter(ledger.runs("visits"))).id, "answer")
    assert done.amount == query.price(Currency.ZCDP) == balance().spent
    assert done.mechanism == query.describe()
    assert json.loads(done.output) == (answer if isinstance(answer, str) else list(answer))
    verify_ledger()


@pytest.mark.parametrize("what", list(SELECTING))
def test_a_selection_from_columns_that_do_not_fit_costs_nothing(workspace, what):
    workspace.open_account()
    query, columns = SELECTING[what]
    for wrong, ids in (((TABLE,), TABLE["person"]), (columns, None), (columns, TABLE["person"][:-1])):
        with pytest.raises(UsageError):
            ask("visits", query, *wrong, ids=ids)
    if what in {"choice", "above"}:
        with pytest.raises(UsageError, match="pass"):
            ask("visits", query, ids=TABLE["person"])
    assert balance().spent == balance().reserved == 0


def test_a_histogram_is_answered_by_names_and_kept_in_full(workspace):
    workspace.open_account()
    universe = Universe({"smoker": Boolean(), "age": Integer(minimum=0, maximum=99, width=25)})
    query = NoisyHistogram.for_epsilon(2.0, delta=1e-9, universe=universe, order=1, protection=PERSON)
    answer = ask("visits", query, TABLE)
    assert {names: counts.shape for names, counts in answer.items()} == {("smoker",): (2,), ("age",): (4,)}
    with open_ledger() as ledger:
        stored = json.loads(ledger.operation(next(iter(ledger.runs("visits"))).id, "answer").output)
    assert [part["counts"] for part in stored] == [counts.tolist() for counts in answer.values()]


def test_what_the_account_cannot_pay_is_refused_before_the_table_is_read(workspace):
    workspace.open_account(epsilon=0.5)

    class Unread:
        def __getattr__(self, name):
            raise AssertionError("the table was read")

    with pytest.raises(BudgetRefused):
        ask("visits", count(1.0), Unread(), ids=Unread())
    assert balance().spent == balance().reserved == 0


@pytest.mark.parametrize(
    ("columns", "ids"),
    [
        ((TABLE["smoker"],), None),
        ((TABLE["smoker"],), TABLE["person"][:-1]),
        ((TABLE[["smoker"]],), TABLE["person"]),
        ((pa.array([[1], [2]]),), ["a", "b"]),
    ],
)
def test_columns_that_cannot_be_read_as_declared_cost_nothing(workspace, columns, ids):
    workspace.open_account()
    before = balance()
    with pytest.raises(UsageError):
        ask("visits", count(), *columns, ids=ids)
    assert balance() == before


@pytest.mark.parametrize("column", [np.array([1 + 2j, 3]), np.array([1, 2], dtype=">i4")])
def test_a_type_that_arrow_does_not_know_costs_nothing_and_is_refused_by_our_sentence(workspace, column):
    workspace.open_account()
    before = balance()
    for columns, ids in (((column,), ["a", "b"]), (([1, 2],), column)):
        with pytest.raises(SourceError, match="cannot be converted to Arrow") as refusal:
            ask("visits", count(), *columns, ids=ids)
        assert not isinstance(refusal.value, SourceBroken)
    assert balance() == before


@pytest.mark.parametrize(
    ("columns", "more"),
    [((), {"ids": TABLE["person"]}), ((TABLE["smoker"],), {"unit": TABLE["person"]}), ((TABLE, 1, 2), {})],
)
def test_a_mistyped_question_holds_nothing_of_the_budget(workspace, columns, more):
    workspace.open_account()
    before = balance()
    with pytest.raises(UsageError, match="see the arguments of its draw"):
        ask("visits", count(), *columns, **more)
    with pytest.raises(UsageError, match="only a query with a protection"):
        ask("visits", DiscreteLaplace(scale=1.0, sensitivity=PERSON.sensitivity), TABLE["smoker"])
    assert balance() == before


def test_a_column_that_breaks_while_it_is_read_keeps_the_reservation(workspace, monkeypatch):
    workspace.open_account()

    def breaking(self, columns):
        raise MemoryError
        yield

    monkeypatch.setattr(MemoryTable, "batches", breaking)
    with pytest.raises(SourceBroken):
        ask("visits", count(), TABLE["smoker"], ids=TABLE["person"])
    assert balance().reserved == count().price(Currency.ZCDP)


def test_a_failure_that_rows_may_have_decided_keeps_the_reservation(workspace, monkeypatch):
    workspace.open_account()

    def broken(*_, **__):
        raise SourceBroken("the disk is full")

    monkeypatch.setattr(NoisyCount, "read", broken)
    with pytest.raises(SourceBroken):
        ask("visits", count(), TABLE["smoker"], ids=TABLE["person"])
    assert balance().reserved == count().price(Currency.ZCDP)


def test_an_answer_that_was_charged_is_paid_for_whatever_happens(workspace, monkeypatch):
    workspace.open_account()
    monkeypatch.setattr(NoisyCount, "answer", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ask("visits", count(), TABLE["smoker"], ids=TABLE["person"])
    assert balance().spent == count().price(Currency.ZCDP)


@pytest.mark.parametrize(
    "protection",
    [
        Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE),
        Protection(unit="person", rows_per_unit=2, neighbours=Neighbours.REPLACE_ONE),
    ],
)
def test_a_query_that_protects_others_than_the_account_does_is_refused(workspace, protection):
    workspace.open_account()
    with pytest.raises(UsageError, match=r"ask with .*, or from another account"):
        ask("visits", count(protection=protection), TABLE["smoker"], ids=TABLE["person"])
    assert balance().spent == balance().reserved == 0


def test_a_gaussian_query_cannot_be_paid_in_pure_epsilon(workspace):
    workspace.open_account(delta=0.0)
    with pytest.raises(UsageError, match="Laplace"):
        ask("visits", count(), TABLE["smoker"], ids=TABLE["person"])
    assert isinstance(
        ask(
            "visits",
            NoisyCount.for_amount(AMOUNT_OF_ONE, currency=Currency.PURE, protection=PERSON),
            np.ones(3, dtype=bool),
            ids=list("abc"),
        ),
        int,
    )


@dataclass(frozen=True, kw_only=True)
class Loose(NoisyCount):
    """A count that keeps more rows of a unit than its noise is for."""

    def read(self, *columns: Any, **more: Any) -> Any:
        kept = replace(self.protection, rows_per_unit=3)
        return NoisyCount(protection=kept, noise=self.noise, scale=self.scale).read(*columns, **more)


def test_a_query_that_keeps_more_rows_than_its_noise_is_for_is_refused_and_refunded(workspace):
    workspace.open_account()
    before = balance()
    stated = count()
    with pytest.raises(StepFailed, match=r"bounded by another protection.*report this"):
        ask(
            "visits",
            Loose(protection=stated.protection, noise=stated.noise, scale=stated.scale),
            TABLE["smoker"],
            ids=TABLE["person"],
        )
    assert balance() == before
