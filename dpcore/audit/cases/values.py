"""Audit of counts, values and sums of a column, with the sensitivities that they derive from the declarations."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from dpcore.audit.case import Bug, Case
from dpcore.audit.cases.outputs import Priced, answers, event, told
from dpcore.audit.checks import Draw, EventCheck, StreamCheck
from dpcore.audit.made_up import ROW
from dpcore.mechanisms.bounded_sum import BoundedSum
from dpcore.mechanisms.grid import ValueGrid
from dpcore.mechanisms.noisy_count import NoisyCount
from dpcore.mechanisms.noisy_value import NoisyValue
from dpcore.mechanisms.query import Query
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.universe import Integer, Number

AMOUNT = 2 * AMOUNT_OF_ONE
DRAWS = 10_000

REPLACED = replace(ROW, neighbours=Neighbours.REPLACE_ONE)
_PERSON = Protection(unit="person", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
_BALANCE = Integer(minimum=-1, maximum=1)
_DAYS = Integer(minimum=3, maximum=7)
"""A range without 0: replacing a value by a null changes a sum more than replacing one bound by the other."""

_WHOLE = pa.int64()

PRICES = dict.fromkeys(Currency, "the price of its noise")


def bought_event(
    setting: str,
    drawn: Priced,
    draws_on: Callable[[Any], Draw],
    *,
    tables: tuple[Any, Any],
    draws: int = DRAWS,
) -> EventCheck:
    """Return the check of a mechanism against its own price, or against `AMOUNT` if that is less."""
    return event(setting, draws_on, tables=tables, paid=min(drawn.price(Currency.PURE), AMOUNT), draws=draws)


def of_column(
    query: Query[Any], code: Callable[[Any], float] = float, *, kind: pa.DataType = _WHOLE
) -> Callable[[Sequence[Any]], Draw]:
    """Return the draws of a query's answer for the values of a column."""
    return lambda values: answers(query, query.read(pa.array(values, type=kind)), code)


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
        return answers(persons, persons.read(np.ones(number, dtype=np.bool_), ids=np.full(number, 7)))

    def of_rows(number: int) -> Draw:
        return answers(rows, rows.read(np.ones(number, dtype=np.bool_)))

    sound = bought_event("a person with 5 rows, 1 kept, or nobody", persons, of_person, tables=(5, 0))
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
                check=bought_event("two rows of a person, paid as one", rows, of_rows, tables=(2, 0)),
            ),
            price_halved(sound),
        ),
    )


def _sum(attribute: Integer, protection: Protection) -> BoundedSum:
    return BoundedSum.for_amount(AMOUNT, currency=Currency.PURE, attribute=attribute, step=1, protection=protection)


def bounded_sum() -> Case:
    """Return the audit of a sum."""
    added, replaced, days = _sum(_BALANCE, ROW), _sum(_BALANCE, REPLACED), _sum(_DAYS, REPLACED)
    unclipped = replace(added, grid=ValueGrid.of(Integer(minimum=-2, maximum=2), step=1))
    first = bought_event("a row of 100, clipped to 1, or none", added, of_column(added), tables=([100], []))
    return Case(
        name=BoundedSum.name,
        theorem="A sum of values clipped to declared bounds on a grid changes by at most the larger absolute bound, or, if a row is replaced, by the largest distance among the bounds and 0.",
        reference="Dwork, McSherry, Nissim and Smith 2006; Mironov 2012",
        prices=PRICES,
        checks=(
            first,
            bought_event("a row of -100 replaced by 100", replaced, of_column(replaced), tables=([-100], [100])),
            bought_event("7, of 3 to 7, replaced by a null", days, of_column(days), tables=([7], [None])),
            StreamCheck(setting="100 sums", draw=of_column(added)([1])),
        ),
        bugs=(
            Bug(
                name="sensitivity halved",
                how="values are clipped to twice the bounds that the noise is calibrated for",
                check=bought_event(
                    "a row of 100, clipped to 2, paid as 1", added, of_column(unclipped), tables=([100], [])
                ),
            ),
            Bug(
                name="neighbour flag ignored",
                how="rows are replaced, but the noise is for adding or removing one",
                check=bought_event("-1 replaced by 1, paid as add-remove", added, of_column(added), tables=([-1], [1])),
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

    sound = bought_event("an answer of 0.2 or 0.95, in steps of 0.5", drawn, of, tables=(0.2, 0.95))
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
                check=bought_event("an answer of 0.2 or 1.7, paid as 0.75", drawn, of, tables=(0.2, 1.7)),
            ),
            price_halved(sound),
        ),
    )
