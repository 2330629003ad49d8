"""Counts, sums and means of a column under audit, with the sensitivities that they derive from what is declared."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dpcore.accounting import UNIT, Currency
from dpcore.auditing.case import Bug, Case
from dpcore.auditing.checks import Draw, EventCheck, StreamCheck
from dpcore.auditing.events import Outcomes
from dpcore.mechanisms.bounded_mean import BoundedMean
from dpcore.mechanisms.bounded_sum import BoundedSum
from dpcore.mechanisms.grid import ValueGrid
from dpcore.mechanisms.noisy_count import NoisyCount
from dpcore.mechanisms.noisy_value import NoisyValue
from dpcore.privacy import Neighbours, Protection
from dpcore.universe import Integer, Number

EPSILON = 2
AMOUNT = EPSILON * UNIT
DRAWS = 20_000
MEAN_DRAWS = 12_000

_ROW = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
_REPLACED = replace(_ROW, neighbours=Neighbours.REPLACE_ONE)
_PERSON = Protection(unit="person", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
_BALANCE = Integer(minimum=-1, maximum=1)
_MARK = Integer(minimum=0, maximum=2)
_OTHERS = 50

PRICES = {
    Currency.PURE: "that of discrete Laplace noise",
    Currency.ZCDP: "that of discrete Gaussian noise",
    Currency.GDP: "that of rounded Gaussian noise",
}


def _told(one: Callable[[], float]) -> Draw:
    """Return draws of one number each. The table is read once, as reading it for every answer takes many times as long."""

    def draw(count: int) -> Outcomes:
        return np.rint(np.fromiter((one() for _ in range(count)), dtype=np.float64, count=count)).astype(np.int64)

    return draw


def _event(setting: str, *, here: Draw, there: Draw, draws: int = DRAWS) -> EventCheck:
    return EventCheck(setting=setting, currency=Currency.PURE, charged=AMOUNT, here=here, there=there, draws=draws)


def noisy_count() -> Case:
    """Return the audit of a count."""
    persons = NoisyCount.for_amount(AMOUNT, currency=Currency.PURE, protection=_PERSON)
    rows = NoisyCount.for_amount(AMOUNT, currency=Currency.PURE, protection=_ROW)

    def of_person(number: int) -> Draw:
        property_of_rows, units = np.ones(number, dtype=np.bool_), np.full(number, 7)
        exact = persons.read(property_of_rows, units=units)
        return _told(lambda: persons.answer(exact))

    def of_rows(number: int) -> Draw:
        property_of_rows = np.ones(number, dtype=np.bool_)
        exact = rows.read(property_of_rows)
        return _told(lambda: rows.answer(exact))

    return Case(
        name=NoisyCount.name,
        theorem="A count of rows moves by at most what one unit counts, so that noise for one whole number makes it private.",
        reference="Dwork, McSherry, Nissim and Smith 2006, Prop. 1",
        prices=PRICES,
        checks=(
            _event("a person with 5 rows, 1 kept, or nobody", here=of_person(5), there=of_person(0)),
            StreamCheck(setting="100 counts", draw=of_person(5)),
        ),
        bugs=(
            Bug(
                name="sensitivity halved",
                how="persons have two rows each, and the unit is declared to be one row",
                check=_event("two rows of a person, paid as one", here=of_rows(2), there=of_rows(0)),
            ),
        ),
    )


def _sum(attribute: Integer, protection: Protection) -> BoundedSum:
    return BoundedSum.for_amount(AMOUNT, currency=Currency.PURE, attribute=attribute, step=1, protection=protection)


def _sums(drawn: BoundedSum, values: Sequence[int]) -> Draw:
    column = np.array(values, dtype=np.int64)
    exact = drawn.read(column)
    return _told(lambda: drawn.answer(exact))


def bounded_sum() -> Case:
    """Return the audit of a sum."""
    added, replaced = _sum(_BALANCE, _ROW), _sum(_BALANCE, _REPLACED)
    unclipped = replace(added, grid=ValueGrid.of(Integer(minimum=-2, maximum=2), step=1))
    return Case(
        name=BoundedSum.name,
        theorem="A sum of values that are clipped to declared bounds and on a grid moves by at most the larger bound, or by their distance.",
        reference="Dwork, McSherry, Nissim and Smith 2006, Prop. 1; Mironov 2012",
        prices=PRICES,
        checks=(
            _event("a row of 100, clipped to 1, or none", here=_sums(added, [100]), there=_sums(added, [])),
            _event("a row of -100 replaced by 100", here=_sums(replaced, [-100]), there=_sums(replaced, [100])),
            StreamCheck(setting="100 sums", draw=_sums(added, [1])),
        ),
        bugs=(
            Bug(
                name="sensitivity halved",
                how="values are clipped to twice the bounds that the noise is for",
                check=_event(
                    "a row of 100, clipped to 2, paid as 1", here=_sums(unclipped, [100]), there=_sums(unclipped, [])
                ),
            ),
            Bug(
                name="neighbour flag ignored",
                how="rows are replaced, and the noise is that for adding or removing one",
                check=_event("-1 replaced by 1, paid as add-remove", here=_sums(added, [-1]), there=_sums(added, [1])),
            ),
        ),
    )


def noisy_value() -> Case:
    """Return the audit of a real-valued answer on a grid."""
    drawn = NoisyValue.for_amount(
        AMOUNT, currency=Currency.PURE, attribute=Number((0.0, 1.0)), step="0.5", moves_by="0.5"
    )

    def of(value: float) -> Draw:
        return _told(lambda: 2 * drawn.draw(value))

    return Case(
        name=NoisyValue.name,
        theorem="An answer that moves by at most d moves by at most d / step, rounded up, on its grid, and whole noise makes it private.",
        reference="Dwork, McSherry, Nissim and Smith 2006, Prop. 1; Mironov 2012",
        prices=PRICES,
        checks=(
            _event("an answer of 0 or 0.5, in steps of 0.5", here=of(0.0), there=of(0.5)),
            StreamCheck(setting="100 answers", draw=of(0.5)),
        ),
        bugs=(
            Bug(
                name="sensitivity halved",
                how="the answer moves by twice of what was declared",
                check=_event("an answer of 0 or 1, paid as 0.5", here=of(0.0), there=of(1.0)),
            ),
        ),
    )


def bounded_mean() -> Case:
    """Return the audit of a mean."""
    drawn = BoundedMean.for_amount(AMOUNT, currency=Currency.PURE, attribute=_MARK, step=1, protection=_ROW)

    def large(number: int, *, of: int) -> Draw:
        """Return whether sum and count are both as large as `of` rows of the upper bound, beside others in the middle, make them."""
        column = np.array([1] * _OTHERS + [2] * number, dtype=np.int64)
        exact = drawn.read(column)

        def one() -> bool:
            estimate = drawn.answer(exact)
            centred = (2 * estimate.mean - 2) * estimate.rows
            return bool(estimate.rows >= _OTHERS + of and round(centred) >= 2 * of)

        return _told(one)

    return Case(
        name=BoundedMean.name,
        theorem="A mean is made of a centred sum and a count with noise each; the dearest way of moving both at once is what they cost together.",
        reference="Li, Lyu, Su and Yang 2016",
        prices={currency: f"{formula}, of the sum and of the count" for currency, formula in PRICES.items()},
        checks=(
            _event("a row at the upper bound, or none", here=large(1, of=1), there=large(0, of=1), draws=MEAN_DRAWS),
            StreamCheck(setting="100 means", draw=large(1, of=1)),
        ),
        bugs=(
            Bug(
                name="sensitivity halved",
                how="persons have two rows each, and the unit is declared to be one row",
                check=_event(
                    "two rows of a person, paid as one", here=large(2, of=2), there=large(0, of=2), draws=MEAN_DRAWS
                ),
            ),
        ),
    )
