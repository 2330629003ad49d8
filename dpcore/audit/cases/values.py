"""Audit of counts, values and sums of a column, with the sensitivities that they derive from the declarations."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from dpcore.audit.case import Bug, Case
from dpcore.audit.cases.outputs import once
from dpcore.audit.checks import Draw, EventCheck, StreamCheck
from dpcore.audit.events import Outcomes
from dpcore.audit.made_up import ROW
from dpcore.mechanisms.bounded_sum import BoundedSum
from dpcore.mechanisms.grid import ValueGrid
from dpcore.mechanisms.noisy_count import NoisyCount
from dpcore.mechanisms.noisy_value import NoisyValue
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.universe import Integer, Number

EPSILON = 2
AMOUNT = EPSILON * AMOUNT_OF_ONE
DRAWS = 10_000

REPLACED = replace(ROW, neighbours=Neighbours.REPLACE_ONE)
_PERSON = Protection(unit="person", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
_BALANCE = Integer(minimum=-1, maximum=1)
_DAYS = Integer(minimum=3, maximum=7)
"""A range without 0: replacing a value by a null changes a sum more than replacing one bound by the other."""

PRICES = {
    Currency.PURE: "the price of discrete Laplace noise",
    Currency.ZCDP: "the price of discrete Gaussian noise",
    Currency.GDP: "the price of rounded Gaussian noise",
}


class Priced(Protocol):
    """A mechanism with a price."""

    def price(self, currency: Currency) -> int:
        """Return the price of one draw."""


def told(answer: Callable[[], float]) -> Draw:
    """Return a draw that calls `answer` once for each number. `answer` must not read the table, since reading takes far longer."""

    def draw(count: int) -> Outcomes:
        return np.rint(np.fromiter((answer() for _ in range(count)), dtype=np.float64, count=count)).astype(np.int64)

    return draw


def event(setting: str, drawn: Priced, *, here: Draw, there: Draw) -> EventCheck:
    """Return the check of a mechanism against its own price, or against `AMOUNT` if that is less."""
    return EventCheck(
        setting=setting,
        currency=Currency.PURE,
        charged=min(drawn.price(Currency.PURE), AMOUNT),
        here=once(here),
        there=once(there),
        draws=DRAWS,
    )


def price_halved(check: EventCheck) -> Bug:
    """Return the bug in which half the price is charged, with the draws of a sound check."""
    return Bug(
        name="price halved",
        how="half of the price is charged",
        check=replace(check, setting=f"{check.setting}, at half its price", charged=check.charged // 2),
    )


def noisy_count() -> Case:
    """Return the audit of a count."""
    persons = NoisyCount.for_amount(AMOUNT, currency=Currency.PURE, protection=_PERSON)
    rows = NoisyCount.for_amount(AMOUNT, currency=Currency.PURE, protection=ROW)

    def of_person(number: int) -> Draw:
        property_of_rows, ids = np.ones(number, dtype=np.bool_), np.full(number, 7)
        exact = persons.read(property_of_rows, ids=ids)
        return told(lambda: persons.answer(exact))

    def of_rows(number: int) -> Draw:
        property_of_rows = np.ones(number, dtype=np.bool_)
        exact = rows.read(property_of_rows)
        return told(lambda: rows.answer(exact))

    sound = event("a person with 5 rows, 1 kept, or nobody", persons, here=of_person(5), there=of_person(0))
    return Case(
        name=NoisyCount.name,
        theorem="A count of rows changes by at most the rows that one unit contributes, so noise on a single integer makes it private.",
        reference="Dwork, McSherry, Nissim and Smith 2006",
        prices=PRICES,
        checks=(
            sound,
            StreamCheck(setting="100 counts", draw=of_person(5)),
        ),
        bugs=(
            Bug(
                name="sensitivity halved",
                how="persons have two rows each, but the unit is declared to be one row",
                check=event("two rows of a person, paid as one", rows, here=of_rows(2), there=of_rows(0)),
            ),
            price_halved(sound),
        ),
    )


def _sum(attribute: Integer, protection: Protection) -> BoundedSum:
    return BoundedSum.for_amount(AMOUNT, currency=Currency.PURE, attribute=attribute, step=1, protection=protection)


def _sums(drawn: BoundedSum, values: Sequence[int | None]) -> Draw:
    exact = drawn.read(pa.array(values, type=pa.int64()))
    return told(lambda: drawn.answer(exact))


def bounded_sum() -> Case:
    """Return the audit of a sum."""
    added, replaced, days = _sum(_BALANCE, ROW), _sum(_BALANCE, REPLACED), _sum(_DAYS, REPLACED)
    unclipped = replace(added, grid=ValueGrid.of(Integer(minimum=-2, maximum=2), step=1))
    first = event("a row of 100, clipped to 1, or none", added, here=_sums(added, [100]), there=_sums(added, []))
    return Case(
        name=BoundedSum.name,
        theorem="A sum of values clipped to declared bounds on a grid changes by at most the larger absolute bound, or, if a row is replaced, by the largest distance among the bounds and 0.",
        reference="Dwork, McSherry, Nissim and Smith 2006; Mironov 2012",
        prices=PRICES,
        checks=(
            first,
            event(
                "a row of -100 replaced by 100", replaced, here=_sums(replaced, [-100]), there=_sums(replaced, [100])
            ),
            event("7, of 3 to 7, replaced by a null", days, here=_sums(days, [7]), there=_sums(days, [None])),
            StreamCheck(setting="100 sums", draw=_sums(added, [1])),
        ),
        bugs=(
            Bug(
                name="sensitivity halved",
                how="values are clipped to twice the bounds that the noise is calibrated for",
                check=event(
                    "a row of 100, clipped to 2, paid as 1",
                    added,
                    here=_sums(unclipped, [100]),
                    there=_sums(unclipped, []),
                ),
            ),
            Bug(
                name="neighbour flag ignored",
                how="rows are replaced, but the noise is for adding or removing one",
                check=event(
                    "-1 replaced by 1, paid as add-remove", added, here=_sums(added, [-1]), there=_sums(added, [1])
                ),
            ),
            price_halved(first),
        ),
    )


def noisy_value() -> Case:
    """Return the audit of a real-valued answer on a grid."""
    drawn = NoisyValue.for_amount(
        AMOUNT, currency=Currency.PURE, attribute=Number((0.0, 2.0)), step="0.5", moves_by="0.75"
    )

    def of(value: float) -> Draw:
        return told(lambda: 2 * drawn.draw(value))

    sound = event("an answer of 0.2 or 0.95, in steps of 0.5", drawn, here=of(0.2), there=of(0.95))
    return Case(
        name=NoisyValue.name,
        theorem="An answer that changes by at most d changes by at most d / step, rounded up, on its grid, and integer noise makes it private.",
        reference="Dwork, McSherry, Nissim and Smith 2006; Mironov 2012",
        prices=PRICES,
        checks=(
            sound,
            StreamCheck(setting="100 answers", draw=of(0.5)),
        ),
        bugs=(
            Bug(
                name="sensitivity halved",
                how="the answer changes by twice the declared amount",
                check=event("an answer of 0.2 or 1.7, paid as 0.75", drawn, here=of(0.2), there=of(1.7)),
            ),
            price_halved(sound),
        ),
    )
