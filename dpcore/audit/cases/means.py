"""Audit of the mean of a column, where one row changes the sum and the count together, or the sum alone."""

from collections.abc import Callable, Sequence

from dpcore.audit.case import Bug, Case
from dpcore.audit.cases.values import AMOUNT, PRICES, REPLACED, bought_event, of_column, price_halved
from dpcore.audit.checks import Draw, EventCheck, StreamCheck
from dpcore.audit.made_up import ROW
from dpcore.mechanisms.bounded_mean import BoundedMean, MeanEstimate
from dpcore.mechanisms.grid import ValueGrid
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.privacy.accounting import Currency
from dpcore.universe import Integer

_MARK = Integer(minimum=0, maximum=2)
_OTHERS = 50


def _means(drawn: BoundedMean, says: Callable[[MeanEstimate], bool]) -> Callable[[Sequence[int | None]], Draw]:
    """Return the draws of a predicate of the mean, on a table with some values and others in the middle of the range."""
    return lambda values: of_column(drawn, says)([1] * _OTHERS + list(values))


def _centred(estimate: MeanEstimate) -> int:
    """Return the noisy sum of the distances from the middle, in half steps."""
    return round((2 * estimate.mean - 2) * estimate.rows)


def _large(number: int) -> Callable[[MeanEstimate], bool]:
    """Return the predicate that sum and count are both at least as large as `number` rows at the upper bound make them."""
    return lambda estimate: estimate.rows >= _OTHERS + number and _centred(estimate) >= 2 * number


def _event(
    setting: str,
    drawn: BoundedMean,
    *,
    tables: tuple[Sequence[int | None], Sequence[int | None]],
    says: Callable[[MeanEstimate], bool],
) -> EventCheck:
    return bought_event(setting, drawn, _means(drawn, says), tables=tables, draws=8_000)


def bounded_mean() -> Case:
    """Return the audit of a mean."""
    drawn = BoundedMean.for_amount(AMOUNT, currency=Currency.PURE, attribute=_MARK, step=1, protection=ROW)
    grid = ValueGrid.of(_MARK, step=1)

    def replaced(*, sum_scale: float, count_scale: float) -> BoundedMean:
        """Return a mean with chosen scales, so that one kind of change determines its price and the other is cheaper."""
        return BoundedMean(
            grid=grid, protection=REPLACED, noise=Shape.LAPLACE, sum_scale=sum_scale, count_scale=count_scale
        )

    sound = _event("a row at the upper bound, or none", drawn, tables=([2], []), says=_large(1))
    return Case(
        name=BoundedMean.name,
        theorem="A mean is the quotient of a noisy centred sum and a noisy count; their joint price is that of the costliest simultaneous change of both.",
        reference="Li, Lyu, Su and Yang 2016",
        prices={currency: f"{formula}, of the sum and of the count" for currency, formula in PRICES.items()},
        checks=(
            sound,
            _event(
                "the upper bound replaced by a null",
                replaced(sum_scale=4.0, count_scale=2 / 3),
                tables=([2], [None]),
                says=_large(1),
            ),
            _event(
                "one bound replaced by the other",
                replaced(sum_scale=2.0, count_scale=4.0),
                tables=([2], [0]),
                says=lambda estimate: _centred(estimate) >= 2,
            ),
            StreamCheck(setting="100 means", draw=_means(drawn, _large(1))([2])),
        ),
        bugs=(
            Bug(
                name="sensitivity halved",
                how="persons have two rows each, but the unit is declared to be one row",
                check=_event("two rows of a person, paid as one", drawn, tables=([2, 2], []), says=_large(2)),
            ),
            price_halved(sound),
        ),
    )
