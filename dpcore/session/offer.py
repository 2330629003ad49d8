"""What a question costs: nothing if its answer is accurate enough already, otherwise the least noise that makes it so.

Everything here is computed from the transcript and the question. No data is touched.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dpcore.answers.evaluate import Prepared
from dpcore.answers.intervals import Basis, Interval
from dpcore.answers.merging import Merging
from dpcore.answers.query import Count, Number, Output, Query, Sum
from dpcore.errors import UsageError
from dpcore.marginals.measurements import Counts
from dpcore.mechanisms.noise import Noise
from dpcore.models.lifted import Grid
from dpcore.models.model import Weights
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Protection
from dpcore.release.integrity import one_line
from dpcore.session.accuracy import Within, needed_noise
from dpcore.session.bought import Bought, digest_of
from dpcore.session.knowledge import Knowledge
from dpcore.session.purchase import Amounts, Part, Purchase, counting, parts_of, plan, summed_columns
from dpcore.session.values import Values
from dpcore.universe.leaves import Fine
from dpcore.universe.spreading import spread_of

MOST_CELLS = 1 << 20
"""The most classes of cells that are counted for one question."""
ROUNDED_UP = 1.001
"""A half width that people are told to ask for is so much larger, so that its four digits are not too few."""

Answered = Mapping[Number, Interval]


@dataclass(frozen=True, eq=False)
class Offer:
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
    numbers: Answered
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
        now = [half_widths(each) for each in self.numbers.values()]
        if self.noise is not None:
            now = [
                np.minimum(half, self.within.half_widths(each.value))
                for half, each in zip(now, self.numbers.values(), strict=True)
            ]
        return float(np.nanmax([np.nanmax(each, initial=0.0) for each in now], initial=0.0))

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
        other = replace(self.purchase, deviation=noise.standard_deviation)
        halves = [
            half_widths(_averaged(self.numbers[each], other, each, self.expected, self.within)) for each in self.bought
        ]
        return ROUNDED_UP * float(max(np.nanmax(each, initial=0.0) for each in halves))

    def answer(self, noisy: Counts) -> Answered:
        """Return the answer from what was bought: the average, by inverse variances, of what was known and what was bought."""
        if self.purchase is None:
            return self.numbers
        amounts = self.purchase.amounts(noisy, self.bought)
        return {
            number: _averaged(known, self.purchase, number, amounts, self.within) if number in self.bought else known
            for number, known in self.numbers.items()
        }


def half_widths(interval: Interval) -> Weights:
    """Return the half width of each interval. One that ends at zero is as wide as it would be without that end."""
    return np.asarray(np.maximum(interval.high - interval.value, interval.value - interval.low))


def offer(  # noqa: PLR0913  what is asked, what is known, and who pays
    query: Query,
    knowledge: Knowledge,
    *,
    within: Within,
    currency: Currency,
    protection: Protection,
    have_sums: Collection[int] = (),
    most_cells: int | None = None,
) -> Offer:
    """Return the answer to a question if it is accurate enough, or what it takes to make it so.

    Raises:
        UsageError: If the answer is not accurate enough, and no measurement can make it so. The message says what can be asked.
    """
    bought = _last_bought(query, knowledge)
    earlier = None if bought is None else _stored(bought, query, within)
    if earlier is not None:
        merging = knowledge.intervals.ensemble.merging(query)
        earlier = _shown(earlier, merging)
        if _is_within(earlier, within) or _was_for(bought, within):
            return Offer(query, merging, earlier, within, stored=True)
    prepared, every = knowledge.intervals.of(query, level=within.level, most_cells=most_cells)
    found = _shown(every, prepared)
    numbers = found if earlier is None else {each: _narrower(found[each], earlier[each]) for each in found}
    if not _is_within(numbers, within):
        numbers = {each: _centred(known) if isinstance(each, Count) else known for each, known in numbers.items()}
    if _is_within(numbers, within):
        return Offer(query, prepared, numbers, within)
    if not isinstance(prepared, Merging):
        raise UsageError("the question was not prepared for this release; report this")
    sold, column = _bought(prepared, numbers, within, have_sums=have_sums)
    rows = knowledge.intervals.ensemble.merging(counting(query, sold))
    values = None if column is None else Values.of(column, rows.column(column).attribute)
    known = {each: numbers[each] for each in sold}
    grid = _grid(rows, known, values, names=knowledge.first.universe.names)
    expected = _expected(query, sold, values, knowledge)

    def needed(purchase: Purchase) -> float:
        def errors(number: Number, purchase: Purchase) -> tuple[Weights, Weights]:
            # twice: rows that are divided by have their noise, and so has the interval around them
            return purchase.errors(number, expected, reach=2 * within.normal)

        noises = []
        for number, each in known.items():
            variance, rounding = errors(number, purchase)
            hopeless = ~np.isfinite(errors(number, replace(purchase, deviation=1.0))[0])  # a group without rows
            trusted = _trusted(each, purchase)
            noises.append(
                needed_noise(
                    np.where(hopeless, 0.0, trusted),
                    within.half_widths(each.value),
                    np.where(variance > 0, variance / purchase.deviation**2, 1.0),
                    normal=within.normal,
                    rounding=rounding / within.normal,
                )
            )
        return 0.0 if min(noises) == math.inf else min(noises)

    made = plan(rows, grid, values, needed=needed, currency=currency, protection=protection)
    if made is None:
        raise UsageError(
            f"no measurement is sold that is as accurate as {within.words}: its numbers would be almost exact, or hardly any row is in its "
            "groups; ask for a wider interval, or for groups with more rows"
        )
    return Offer(query, prepared, numbers, within, purchase=made[0], noise=made[1], bought=sold, expected=expected)


def _last_bought(query: Query, knowledge: Knowledge) -> Bought | None:
    """Return the last purchase for the same question."""
    digest = digest_of(query)
    return next((each for each in reversed(knowledge.bought) if each.digest == digest), None)


def _stored(bought: Bought, query: Query, within: Within) -> Answered:
    """Return a bought answer, with intervals of the wanted level."""
    return {number: _at_level(known, bought, within) for number, known in bought.answer(query).items()}


def _was_for(bought: Bought | None, within: Within) -> bool:
    """Return whether an answer was bought for the wanted accuracy, or a narrower one.

    Its noise follows from what was expected before. The answer may turn out less accurate, but asking for the same again must not cost again.
    """
    if bought is None or bought.wanted is None or bought.relative != within.relative:
        return False
    return bought.wanted <= within.size and bought.level >= within.level


def _at_level(interval: Interval, bought: Bought, within: Within) -> Interval:
    """Return an interval at another level. It is normal, so it is wider in proportion."""
    if bought.level == within.level:
        return interval
    scale = within.normal / Within(1.0, relative=False, level=bought.level).normal
    half = half_widths(interval) * scale
    low = np.where(interval.low >= 0, np.maximum(interval.value - half, 0.0), interval.value - half)
    return replace(interval, low=low, high=interval.value + half)


def _shown(numbers: Answered, prepared: Prepared) -> Answered:
    """Return the numbers, but with no interval for groups that `where` excludes: nobody sees them, so nothing is bought for them."""
    possible = prepared.possible
    if possible.all():
        return numbers
    return {
        number: replace(
            each, low=np.where(possible, each.low, each.value), high=np.where(possible, each.high, each.value)
        )
        for number, each in numbers.items()
    }


def _is_within(numbers: Answered, within: Within) -> bool:
    return all(within.satisfied(half_widths(each), each.value) for each in numbers.values())


def _narrower(found: Interval, earlier: Interval) -> Interval:
    """Return the narrower interval of each group: as the model knows it by now, or as it was bought."""
    better = half_widths(earlier) < half_widths(found)
    value, low, high = (
        np.where(better, getattr(earlier, each), getattr(found, each)) for each in ("value", "low", "high")
    )
    return replace(found, value=value, low=low, high=high)


def _centred(known: Interval) -> Interval:
    """Move each count to the middle of its interval, from which it is less far to either end.

    A release keeps the model's number, so that groups add up. An interval that ends at zero has no middle of its own.
    """
    value = np.where(known.low > 0, (known.low + known.high) / 2, known.value)
    return replace(known, value=value)


def _bought(
    merging: Merging, numbers: Answered, within: Within, *, have_sums: Collection[int]
) -> tuple[tuple[Number, ...], int | None]:
    """Return the numbers that a measurement makes more accurate, and the column whose sums it needs, if any.

    Raises:
        UsageError: If one that is not accurate enough is not computed from counts and sums, or they need sums of several columns.
    """
    columns: set[int] = set()
    for number, each in numbers.items():
        if not within.satisfied(half_widths(each), each.value):
            summed = summed_columns(number)
            if summed is None or not summed.issubset(have_sums):
                raise UsageError(
                    f"{_name(merging, number)} is known within {_widest(numbers, [number]):.4g}{_where(merging, each)} and cannot be bought more "
                    "accurately: only counts, and sums and means of columns of numbers can; ask within that, or for counts"
                )
            columns |= summed
    if len(columns) > 1:
        raise UsageError("the question needs sums of several columns; ask about one of them at a time")
    sold = [number for number in numbers if (summed := summed_columns(number)) is not None and summed <= columns]
    return tuple(sold), next(iter(columns), None)


def _expected(query: Query, bought: Sequence[Number], values: Values | None, knowledge: Knowledge) -> Amounts:
    """Return the linear parts of some numbers, by the model."""
    parts = dict.fromkeys(part for number in bought for part in parts_of(number))
    asked = {
        part: Count(part.where) if values is None or not part.valued else Sum(values.column, part.where)
        for part in parts
    }
    outputs = tuple(Output(str(place), each) for place, each in enumerate(dict.fromkeys(asked.values())))
    ensemble = knowledge.intervals.ensemble
    merging = ensemble.merging(Query(outputs, query.where, query.keys))
    found = {each: ensemble.parts(merging, each)[each] for each in asked.values()}
    expected: dict[Part, Weights] = {}
    for part, number in asked.items():
        amounts = found[number]
        if values is not None and part.valued:
            amounts = amounts - values.middle * found[Count(part.where)]
        expected[part] = np.full(amounts.shape, amounts.sum()) if part.overall else amounts
    return expected


def _grid(merging: Merging, numbers: Answered, values: Values | None, *, names: Sequence[str]) -> Grid:
    """Return the classes of cells that a question distinguishes.

    Raises:
        UsageError: If a measurement of them cannot answer the question.
    """
    counts = [number for number in merging.query.numbers() if isinstance(number, Count)]
    columns = tuple(sorted({axis for number in counts for axis in merging.form(number).axes}))
    if cut := [column for column in columns if merging.is_cut(column)]:
        raise UsageError(
            f"the question divides {_divided(merging, cut[0], one_line(names[cut[0]]))}, within which nothing can be measured: its numbers are "
            f"known within {_widest(numbers, list(numbers)):.4g}; ask within that, or use these ends"
        )
    grid = Grid(columns, tuple(merging.classes(column) for column in columns))
    cells = int(np.prod(grid.shape, dtype=np.float64)) * (1 if values is None else len(values.steps))
    if cells > MOST_CELLS:
        raise UsageError(
            f"the question distinguishes {cells:,} groups of rows, and at most {MOST_CELLS:,} can be counted; use fewer columns or wider bins"
        )
    return grid


def _divided(merging: Merging, column: int, name: str) -> str:
    """Name the first cell of a column that a question divides."""
    cell, attribute = int(merging.cut_cells(column)[0]), merging.column(column).attribute
    low, high = spread_of(attribute).edges[cell : cell + 2]
    kind = "an interval" if isinstance(attribute, Fine) else "a declared bin"
    return f"{kind} of {name}, from {low} to before {high}"


def _name(merging: Merging, number: Number) -> str:
    """Return what a number is called in the answer."""
    named = [each.name for each in merging.query.outputs if each.value == number]
    return one_line(named[0]) if named else "a number in having or order by"


def _where(merging: Merging, interval: Interval) -> str:
    """Name the group in which a number is least accurate; nothing if there is only one group."""
    if not merging.keys or np.isnan(half_widths(interval)).all():
        return ""
    places = np.unravel_index(int(np.nanargmax(half_widths(interval))), merging.shape)
    values = [known.values[at] for known, at in zip(merging.keys, places, strict=True)]
    told = ["is null" if value is None else f"= {one_line(str(value))}" for value in values]
    return " where " + " and ".join(
        f"{one_line(key.name)} {one}" for key, one in zip(merging.query.keys, told, strict=True)
    )


def _widest(numbers: Answered, some: Sequence[Number]) -> float:
    """Return the largest half width of some numbers, rounded up so that it can be asked for."""
    return ROUNDED_UP * max(float(np.nanmax(half_widths(numbers[each]))) for each in some)


def _averaged(known: Interval, purchase: Purchase, number: Number, amounts: Amounts, within: Within) -> Interval:
    """Average what was known with what was bought. A group that no row can belong to, and a number that is known exactly, stay as they are."""
    variances, rounding = purchase.errors(number, amounts, reach=within.normal)
    bought, half = (np.sqrt(variances) + rounding / within.normal) ** 2, half_widths(known)
    none = (variances <= 0) | ~np.isfinite(bought) | ~(half > 0)
    bought = np.where(none, 1.0, bought)
    before = np.maximum(
        (np.where(none, 1.0, _trusted(known, purchase)) / within.normal) ** 2, np.finfo(np.float64).tiny
    )
    weight = np.where(none, 0.0, 1 / (1 + bought / before))
    own = np.where(none, known.value, purchase.value(number, amounts))
    lowest, highest = purchase.ends(number)
    value = np.clip(weight * own + (1 - weight) * known.value, lowest, highest)
    half = np.where(none, half, within.normal * np.sqrt(bought * weight))
    low, high = np.maximum(value - half, lowest), np.minimum(value + half, highest)
    return Interval(value, low, high, Basis.MEASURED, inferred=none & (half_widths(known) > 0))


def _trusted(known: Interval, purchase: Purchase) -> Weights:
    """Return the half widths with which an answer is averaged: infinite ones, if what is known may be far off its intervals.

    That is what a model infers of sums and means: it knows counts, and not how values lie within cells.
    """
    half, doubted = half_widths(known), purchase.values is not None and known.basis is not Basis.MEASURED
    return np.where((half > 0) & doubted, math.inf, half)
