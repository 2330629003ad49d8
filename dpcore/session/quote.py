"""The price of a question: nothing if its answer is accurate enough already, otherwise that of the least noise that makes it so.

Everything here is computed from the transcript and the question. No data is touched.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dpcore.answers.evaluate import Prepared
from dpcore.answers.intervals import Basis, Interval
from dpcore.answers.query import Count, Number, Output, Query, Sum
from dpcore.errors import UsageError
from dpcore.marginals.measurements import Counts
from dpcore.mechanisms.noise import Noise
from dpcore.models.lifted import Grid
from dpcore.models.model import Weights
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Protection
from dpcore.release.integrity import one_line
from dpcore.session.bought import Bought, digest_of
from dpcore.session.knowledge import Knowledge
from dpcore.session.purchase import Amounts, Purchase, counting, needed_noise, parts_of, plan, summed_columns
from dpcore.session.questions import Within
from dpcore.session.values import Values
from dpcore.universe.leaves import Fine
from dpcore.universe.spreading import spread_of

MOST_CELLS = 1 << 20
"""The most classes of cells that are counted for one question."""
ROUNDED_UP = 1.001
"""A half width that people are told to ask for is so much larger, so that its four digits are not too few."""

Intervals = Mapping[Number, Interval]


@dataclass(frozen=True, eq=False)
class Quote:
    """An answer, or what it takes to give one.

    Attributes:
        query: The question.
        prepared: The question made ready for its universe.
        numbers: All numbers as they are known now.
        within: The wanted accuracy.
        stored: Whether this question was answered before, as accurately.
        purchase: What would be measured; None if the answer is free.
        noise: The noise that would be added; None if the answer is free.
        bought: The numbers that the measurement makes more accurate.
        expected: Their linear parts, as the model expects them.
    """

    query: Query
    prepared: Prepared
    numbers: Intervals
    within: Within
    stored: bool = False
    purchase: Purchase | None = None
    noise: Noise | None = None
    bought: tuple[Number, ...] = ()
    expected: Amounts = field(default_factory=dict)

    def amount(self, currency: Currency) -> int:
        """Return the price, as an amount of the currency; 0 if the answer is free."""
        return 0 if self.noise is None else self.noise.price(currency)

    @property
    def half_width(self) -> float:
        """The largest half width of the answer: as it is if it is free, or as it will be."""
        largest = 0.0
        for interval in self.numbers.values():
            half = half_widths(interval)
            if self.noise is not None:
                half = np.minimum(half, self.within.half_widths(interval.value))
            largest = max(largest, _largest(half))
        return largest

    def is_within(self, within: Within) -> bool:
        """Return whether all numbers, as they are known now, are as accurate as wanted."""
        return _is_within(self.numbers, within)

    def reachable(self, amount: int, currency: Currency) -> float:
        """Return the largest half width that the numbers would have for another price, rounded up so that it can be asked for.

        Raises:
            UsageError: If the amount is too little for any noise.
        """
        if self.purchase is None or self.noise is None:
            return self.half_width
        noise = type(self.noise).for_amount(amount, currency=currency, sensitivity=self.noise.sensitivity)
        purchase = replace(self.purchase, deviation=noise.standard_deviation)
        averaged = (_averaged(self.numbers[sold], purchase, sold, self.expected, self.within) for sold in self.bought)
        return _widest(averaged)

    def answer(self, noisy: Counts) -> Intervals:
        """Return the answer from what was bought: the average, by inverse variances, of what was known and what was bought."""
        if self.purchase is None:
            return self.numbers
        amounts = self.purchase.amounts(noisy, self.bought)
        return {
            number: _averaged(interval, self.purchase, number, amounts, self.within)
            if number in self.bought
            else interval
            for number, interval in self.numbers.items()
        }


def half_widths(interval: Interval) -> Weights:
    """Return the half width of each interval. One that ends at zero is as wide as it would be without that end."""
    return np.asarray(np.maximum(interval.high - interval.value, interval.value - interval.low))


def _largest(half_widths: Weights) -> float:
    """Return the largest of some half widths; that of a number that does not exist is none."""
    return float(np.nanmax(half_widths, initial=0.0))


def quote(  # noqa: PLR0913  what is asked, what is known, and who pays
    query: Query,
    knowledge: Knowledge,
    *,
    within: Within,
    currency: Currency,
    protection: Protection,
    have_sums: Collection[int] = (),
    most_cells: int | None = None,
) -> Quote:
    """Return the answer to a question if it is accurate enough, or what it takes to make it so.

    Raises:
        UsageError: If the answer is not accurate enough, and no measurement can make it so. The message says what can be asked.
    """
    ensemble, digest = knowledge.intervals.ensemble, digest_of(query)
    bought = next((earlier for earlier in reversed(knowledge.bought) if earlier.digest == digest), None)
    stored: Intervals | None = None
    if bought is not None:
        merging = ensemble.prepared(query)
        stored = _hidden(
            {number: _at_level(interval, bought, within) for number, interval in bought.answer(query).items()}, merging
        )
        # Noise follows from what was expected before. An answer may be less accurate, but asking for the same again must not cost again.
        if _is_within(stored, within) or bought.within.covers(within):
            return Quote(query, merging, stored, within, stored=True)
    prepared, inferred = knowledge.intervals.of(query, level=within.level, most_cells=most_cells)
    numbers = _hidden(inferred, prepared)
    if stored is not None:
        numbers = {number: _narrower(interval, stored[number]) for number, interval in numbers.items()}
    if not _is_within(numbers, within):
        numbers = {
            number: _centred(interval) if isinstance(number, Count) else interval
            for number, interval in numbers.items()
        }
    if _is_within(numbers, within):
        return Quote(query, prepared, numbers, within)
    sold, column = _sold(query, prepared, numbers, within, have_sums=have_sums)
    merging = ensemble.prepared(counting(query, sold))
    values = None if column is None else Values.of(column, merging.column(column).attribute)
    for_sale = {number: numbers[number] for number in sold}
    grid = _grid(merging, for_sale, values, names=knowledge.first.universe.names)
    expected = _expected(query, sold, values, knowledge)

    def needed(purchase: Purchase) -> float:
        noises, reach = (
            [],
            2 * within.normal,
        )  # twice: rows that are divided by have their noise, and so has the interval around them
        for number, interval in for_sale.items():
            variance, rounding = purchase.errors(number, expected, reach=reach)
            almost_exact, _ = replace(purchase, deviation=1.0).errors(number, expected, reach=reach)
            noises.append(
                needed_noise(
                    np.where(
                        np.isfinite(almost_exact), _trusted(interval, purchase), 0.0
                    ),  # not of groups without rows
                    within.half_widths(interval.value),
                    np.where(variance > 0, variance / purchase.deviation**2, 1.0),
                    normal=within.normal,
                    rounding=rounding / within.normal,
                )
            )
        return 0.0 if min(noises) == math.inf else min(noises)

    cheapest = plan(merging, grid, values, needed=needed, currency=currency, protection=protection)
    if cheapest is None:
        raise UsageError(
            f"no measurement is sold that is as accurate as {within.words}: its numbers would be almost exact, or hardly any row is in its "
            "groups; ask for a wider interval, or for groups with more rows"
        )
    purchase, noise = cheapest
    return Quote(query, prepared, numbers, within, purchase=purchase, noise=noise, bought=sold, expected=expected)


def _at_level(interval: Interval, bought: Bought, within: Within) -> Interval:
    """Return a bought interval at another level. It is normal, so it is wider in proportion."""
    if bought.within.level == within.level:
        return interval
    half = half_widths(interval) * (within.normal / bought.within.normal)
    low = np.where(interval.low >= 0, np.maximum(interval.value - half, 0.0), interval.value - half)
    return replace(interval, low=low, high=interval.value + half)


def _hidden(numbers: Intervals, prepared: Prepared) -> Intervals:
    """Return the numbers, but with no interval for groups that `where` excludes: nobody sees them, so nothing is bought for them."""
    possible = prepared.possible
    if possible.all():
        return numbers
    return {
        number: replace(
            interval,
            low=np.where(possible, interval.low, interval.value),
            high=np.where(possible, interval.high, interval.value),
        )
        for number, interval in numbers.items()
    }


def _is_within(numbers: Intervals, within: Within) -> bool:
    return all(within.satisfied(half_widths(interval), interval.value) for interval in numbers.values())


def _narrower(inferred: Interval, earlier: Interval) -> Interval:
    """Return the narrower interval of each group: as the model knows it by now, or as it was bought."""
    better = half_widths(earlier) < half_widths(inferred)
    ends = {end: np.where(better, getattr(earlier, end), getattr(inferred, end)) for end in ("value", "low", "high")}
    return replace(inferred, **ends)


def _centred(interval: Interval) -> Interval:
    """Move each count to the middle of its interval, from which it is less far to either end.

    A release keeps the model's number, so that groups add up. An interval that ends at zero has no middle of its own.
    """
    value = np.where(interval.low > 0, (interval.low + interval.high) / 2, interval.value)
    return replace(interval, value=value)


def _sold(
    query: Query, prepared: Prepared, numbers: Intervals, within: Within, *, have_sums: Collection[int]
) -> tuple[tuple[Number, ...], int | None]:
    """Return the numbers that a measurement makes more accurate, and the column whose sums it needs, if any.

    Raises:
        UsageError: If one that is not accurate enough is not computed from counts and sums, or they need sums of several columns.
    """
    columns: set[int] = set()
    for number, interval in numbers.items():
        if not within.satisfied(half_widths(interval), interval.value):
            summed = summed_columns(number)
            if summed is None or not summed.issubset(have_sums):
                names = [one_line(output.name) for output in query.outputs if output.value == number]
                name = names[0] if names else "a number in having or order by"
                raise UsageError(
                    f"{name} is known within {_widest([interval]):.4g}{_where(prepared, interval)} and cannot be bought more "
                    "accurately: only counts, and sums and means of columns of numbers can; ask within that, or for counts"
                )
            columns |= summed
    if len(columns) > 1:
        raise UsageError("the question needs sums of several columns; ask about one of them at a time")
    sold = [number for number in numbers if (summed := summed_columns(number)) is not None and summed <= columns]
    return tuple(sold), next(iter(columns), None)


def _expected(query: Query, sold: Sequence[Number], values: Values | None, knowledge: Knowledge) -> Amounts:
    """Return the linear parts of some numbers, by the model."""
    parts = dict.fromkeys(part for number in sold for part in parts_of(number))
    aggregates = {
        part: Count(part.where) if values is None or not part.valued else Sum(values.column, part.where)
        for part in parts
    }
    outputs = tuple(Output(str(place), aggregate) for place, aggregate in enumerate(dict.fromkeys(aggregates.values())))
    ensemble = knowledge.intervals.ensemble
    merging = ensemble.prepared(Query(outputs, query.where, query.keys))
    by_model = {number: ensemble.parts(merging, number)[number] for number in aggregates.values()}
    expected = {}
    for part, aggregate in aggregates.items():
        amounts = by_model[aggregate]
        if values is not None and part.valued:
            amounts = amounts - values.middle * by_model[Count(part.where)]
        expected[part] = np.full(amounts.shape, amounts.sum()) if part.overall else amounts
    return expected


def _grid(merging: Prepared, numbers: Intervals, values: Values | None, *, names: Sequence[str]) -> Grid:
    """Return the classes of cells that a question distinguishes.

    Raises:
        UsageError: If a measurement of them cannot answer the question.
    """
    counts = [number for number in merging.query.numbers() if isinstance(number, Count)]
    columns = tuple(sorted({axis for number in counts for axis in merging.form(number).axes}))
    for column in columns:
        if merging.is_cut(column):
            attribute = merging.column(column).attribute
            cell = int(merging.cut_cells(column)[0])
            low, high = spread_of(attribute).edges[cell : cell + 2]
            kind = "an interval" if isinstance(attribute, Fine) else "a declared bin"
            raise UsageError(
                f"the question divides {kind} of {one_line(names[column])}, from {low} to before {high}, within which nothing can be measured: "
                f"its numbers are known within {_widest(numbers.values()):.4g}; ask within that, or use these ends"
            )
    grid = Grid(columns, tuple(merging.classes(column) for column in columns))
    cells = int(np.prod(grid.shape, dtype=np.float64)) * (1 if values is None else len(values.steps))
    if cells > MOST_CELLS:
        raise UsageError(
            f"the question distinguishes {cells:,} groups of rows, and at most {MOST_CELLS:,} can be counted; use fewer columns or wider bins"
        )
    return grid


def _where(prepared: Prepared, interval: Interval) -> str:
    """Name the group in which a number is least accurate; nothing if there is only one group."""
    half = half_widths(interval)
    if not prepared.keys or np.isnan(half).all():
        return ""
    places = np.unravel_index(int(np.nanargmax(half)), prepared.shape)
    conditions = []
    for key, column, place in zip(prepared.query.keys, prepared.keys, places, strict=True):
        value = column.values[place]
        conditions.append(f"{one_line(key.name)} {'is null' if value is None else f'= {one_line(str(value))}'}")
    return f" where {' and '.join(conditions)}"


def _widest(intervals: Iterable[Interval]) -> float:
    """Return the largest half width of some numbers, rounded up so that it can be asked for."""
    return ROUNDED_UP * max(_largest(half_widths(interval)) for interval in intervals)


def _averaged(interval: Interval, purchase: Purchase, number: Number, amounts: Amounts, within: Within) -> Interval:
    """Average what was known with what was bought. A group that no row can belong to, and a number that is known exactly, stay as they are."""
    variances, rounding = purchase.errors(number, amounts, reach=within.normal)
    bought, half = (np.sqrt(variances) + rounding / within.normal) ** 2, half_widths(interval)
    unsold = (variances <= 0) | ~np.isfinite(bought) | ~(half > 0)
    bought = np.where(unsold, 1.0, bought)
    before = np.maximum(
        (np.where(unsold, 1.0, _trusted(interval, purchase)) / within.normal) ** 2, np.finfo(np.float64).tiny
    )
    weight = np.where(unsold, 0.0, 1 / (1 + bought / before))
    own = np.where(unsold, interval.value, purchase.value(number, amounts))
    lowest, highest = purchase.ends(number)
    value = np.clip(weight * own + (1 - weight) * interval.value, lowest, highest)
    error = np.where(unsold, half, within.normal * np.sqrt(bought * weight))
    low, high = np.maximum(value - error, lowest), np.minimum(value + error, highest)
    return Interval(value, low, high, Basis.MEASURED, inferred=unsold & (half > 0))


def _trusted(interval: Interval, purchase: Purchase) -> Weights:
    """Return the half widths with which an answer is averaged: infinite ones, if what is known may be far off its intervals.

    That is what a model infers of sums and means: it knows counts, and not how values lie within cells.
    """
    half, doubted = half_widths(interval), purchase.values is not None and interval.basis is not Basis.MEASURED
    return np.where((half > 0) & doubted, math.inf, half)
