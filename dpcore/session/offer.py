"""What a question costs: nothing if its answer is accurate enough already, otherwise the least noise that makes it so.

Everything here is computed from the transcript and the question. No data is touched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpcore.answers.evaluate import Prepared
from dpcore.answers.intervals import Basis, Interval
from dpcore.answers.merging import Merging
from dpcore.answers.query import Count, Number, Query
from dpcore.errors import UsageError
from dpcore.marginals.measurements import Counts
from dpcore.mechanisms.currency_noise import Noise
from dpcore.models.lifted import Grid
from dpcore.models.model import Weights
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Protection
from dpcore.release.integrity import one_line
from dpcore.session.accuracy import Within, cheapest, needed_noise
from dpcore.session.bought import Bought, digest_of
from dpcore.session.knowledge import Knowledge
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
        grid: What would be counted; None if the answer is free.
        noise: The noise that would be added; None if the answer is free.
    """

    query: Query
    prepared: Prepared
    numbers: Answered
    within: Within
    stored: bool = False
    grid: Grid | None = None
    noise: Noise | None = None

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

    def reachable(self, noise: Noise) -> float:
        """Return the largest half width that the counts would have with other noise, rounded up so that it can be asked for."""
        if self.grid is None:
            return self.half_width
        halves = []
        for number, known in self.numbers.items():
            if isinstance(number, Count):
                empty = np.zeros(self.grid.shape, dtype=np.int64)
                own, variances = _sums(self.prepared, number, self.grid, empty, noise.standard_deviation)
                halves.append(half_widths(_averaged(known, own, variances, normal=self.within.normal)).max())
        return ROUNDED_UP * float(max(halves))

    def answer(self, counts: Counts) -> Answered:
        """Return the answer from bought counts: the average, by inverse variances, of what was known and what was bought."""
        if self.grid is None or self.noise is None:
            return self.numbers
        found: dict[Number, Interval] = {}
        for number, known in self.numbers.items():
            if isinstance(number, Count):
                own, variances = _sums(self.prepared, number, self.grid, counts, self.noise.standard_deviation)
                found[number] = _averaged(known, own, variances, normal=self.within.normal)
            else:
                found[number] = known
        return found


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
    grid = _grid(prepared, numbers, within, names=knowledge.first.universe.names)
    noise = min(
        needed_noise(
            half_widths(each),
            within.half_widths(each.value),
            _cells(prepared, number, grid),
            normal=within.normal,
        )
        for number, each in numbers.items()
        if isinstance(number, Count)
    )
    made = cheapest(noise, currency=currency, protection=protection)
    if made is None:
        raise UsageError(
            f"no measurement is sold that is as accurate as {within.words}: its counts would be almost exact; ask for a wider interval"
        )
    return Offer(query, prepared, numbers, within, grid=grid, noise=made)


def _last_bought(query: Query, knowledge: Knowledge) -> Bought | None:
    """Return the last purchase for the same question."""
    digest = digest_of(query)
    return next((each for each in reversed(knowledge.bought) if each.digest == digest), None)


def _stored(bought: Bought, query: Query, within: Within) -> Answered:
    """Return a bought answer, with intervals of the wanted level."""
    return {number: _at_level(known, bought, within) for number, known in bought.answer(query).items()}


def _was_for(bought: Bought | None, within: Within) -> bool:
    """Return whether an answer was bought for the wanted share of each number, or a smaller one.

    A share is of what was expected before. The answer may turn out smaller, but asking for the same again must not cost again.
    """
    if bought is None or bought.share is None or not within.relative:
        return False
    return bought.share <= within.size and bought.level >= within.level


def _at_level(interval: Interval, bought: Bought, within: Within) -> Interval:
    """Return an interval at another level. It is normal, so it is wider in proportion."""
    if bought.level == within.level:
        return interval
    scale = within.normal / Within(1.0, relative=False, level=bought.level).normal
    half = half_widths(interval) * scale
    low = np.maximum(interval.value - half, 0.0)
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


def _grid(merging: Merging, numbers: Answered, within: Within, *, names: Sequence[str]) -> Grid:
    """Return the classes of cells that a question distinguishes.

    Raises:
        UsageError: If a count of them cannot answer the question.
    """
    for number, each in numbers.items():
        if not isinstance(number, Count) and not within.satisfied(half_widths(each), each.value):
            raise UsageError(
                f"{_name(merging, number)} is known within {_widest(numbers, [number]):.4g}{_where(merging, each)} and cannot be bought more "
                "accurately, since it is not a count; ask within that, or for counts, from which it can be computed"
            )
    counts = [number for number in numbers if isinstance(number, Count)]
    columns = tuple(sorted({axis for number in counts for axis in merging.form(number).axes}))
    if cut := [column for column in columns if merging.is_cut(column)]:
        raise UsageError(
            f"the question divides {_divided(merging, cut[0], one_line(names[cut[0]]))}, within which nothing can be measured: its counts are "
            f"known within {_widest(numbers, counts):.4g}; ask within that, or use these ends"
        )
    grid = Grid(columns, tuple(merging.classes(column) for column in columns))
    cells = int(np.prod(grid.shape, dtype=np.float64))
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


def _cells(prepared: Prepared, number: Count, grid: Grid) -> Weights:
    """Return how many classes of the grid each group of a count is summed from; at least one."""
    _, variances = _sums(prepared, number, grid, np.zeros(grid.shape, dtype=np.int64), 1.0)
    return np.maximum(np.where(np.isfinite(variances), variances, 1.0), 1.0)


def _sums(prepared: Prepared, number: Count, grid: Grid, counts: Counts, noise: float) -> tuple[Weights, Weights]:
    """Return a count of each group, summed from counts of the grid, and its variance."""
    form = prepared.form(number)
    others = tuple(place for place, column in enumerate(grid.columns) if column not in form.axes)
    summed = counts.sum(axis=others).astype(np.float64)
    merged = np.full(summed.shape, counts.size / max(summed.size, 1))
    return form.totals(lambda _: summed), form.totals(lambda _: merged) * noise**2


def _averaged(known: Interval, own: Weights, variances: Weights, *, normal: float) -> Interval:
    """Average what was known with bought sums. A group that no row can belong to, and a number that is known exactly, stay as they are."""
    before = np.maximum((half_widths(known) / normal) ** 2, np.finfo(np.float64).tiny)
    none = (variances <= 0) | (half_widths(known) == 0)
    bought = np.where(none, 1.0, variances)
    weight = np.where(none, 0.0, before / (before + bought))
    value = np.maximum(weight * own + (1 - weight) * known.value, 0.0)
    half = np.where(none, half_widths(known), normal * np.sqrt(before * bought / (before + bought)))
    return Interval(value, np.maximum(value - half, 0.0), value + half, Basis.MEASURED)
