"""The constraint that one column is never above another, such as `admitted <= discharged`.

Models know which cells can occur together. Where two cells overlap, the values drawn from them decide. At full resolution, a tree has
measured how values lie within a cell. So the values of the higher column are exchanged between rows of the same cell, which keeps their
distribution. All others, and the few rows for which no value is left, are drawn again together until they are in order. That is exactly the
distribution of both given their order, if nothing is known of the values within cells.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SpecError
from dpcore.universe.attribute import Attribute
from dpcore.universe.constraints import Columns, Constraint, Possible, Violations, checked_shape
from dpcore.universe.drawing import TRIES, Intervals, Places, draw_within, numbers_in, with_values
from dpcore.universe.extremes import Floats, drawn_extremes, numbers
from dpcore.universe.fine_days import FineDays
from dpcore.universe.fine_numbers import FineNumber
from dpcore.universe.leaves import Fine
from dpcore.universe.numeric import Integer, Number
from dpcore.universe.spread import Spread
from dpcore.universe.spreading import spread_of
from dpcore.universe.temporal import CalendarColumn, Date, Datetime

MOST_CHAIN = 1 << 21
"""The most combinations of cells that columns may have which are ordered among each other."""


@dataclass(frozen=True, kw_only=True)
class Order(Constraint):
    """The value of one column is at most that of another. A null satisfies every order."""

    low: str
    high: str

    @property
    def columns(self) -> Columns:
        """The lower column, then the higher one."""
        return self.low, self.high

    def tables(self, attributes: Mapping[str, Attribute]) -> Iterator[tuple[Columns, Possible]]:
        """Yield one table: a pair of cells is possible if the lowest value of the one is at most the highest of the other."""
        low, high = attributes[self.low], attributes[self.high]
        _refuse_incomparable(self, low, high)
        possible = np.ones(checked_shape(self.columns, attributes), dtype=np.bool_)
        possible[: low.cells, : high.cells] = drawn_extremes(low)[0][:, None] <= drawn_extremes(high)[1][None, :]
        yield self.columns, possible


def _refuse_incomparable(order: Order, low: Attribute, high: Attribute) -> None:
    kinds: tuple[type[Attribute] | tuple[type[Attribute], ...], ...] = ((Integer, Number), Date, Datetime)
    if not any(isinstance(low, kind) and isinstance(high, kind) for kind in kinds):
        raise SpecError(
            f"`{order.low}` and `{order.high}` have no common order; name two numbers, two dates or two datetimes"
        )
    binned = [isinstance(each, CalendarColumn) and not isinstance(each, Fine) for each in (low, high)]
    same = isinstance(low, Date | Datetime) and isinstance(high, Date | Datetime) and low.every == high.every
    if any(binned) and not (all(binned) and same and low.minimum == high.minimum):  # type: ignore[attr-defined]
        raise SpecError(
            f"only the first moment of a bin is released, so `{order.low}` and `{order.high}` need the same bins; give both the same "
            "`every` and `min`, or neither an `every`"
        )


def refuse_mixed_chains(orders: Sequence[Order], attributes: Mapping[str, Attribute]) -> None:
    """Raise if a column between two others has another step: it might have no value between theirs, although each pair of cells does."""
    between = {each.low for each in orders} & {each.high for each in orders}
    for each in orders:
        if between.intersection(each.columns) and _step(attributes[each.low]) != _step(attributes[each.high]):
            raise SpecError(
                f"`{each.low}` and `{each.high}` are in an order of three columns or more, which need the same type and step; give them the "
                "same, or order two columns only"
            )


def refuse_large_chains(orders: Sequence[Order], attributes: Mapping[str, Attribute]) -> None:
    """Raise if columns that are ordered among each other have too many combinations of cells. A model keeps them all in one table."""
    left = [set(each.columns) for each in orders]
    while left:
        chain = left.pop()
        while more := [each for each in left if each & chain]:
            chain = chain.union(*more)
            left = [each for each in left if not each & chain]
        cells = math.prod(attributes[column].size for column in chain)
        if cells > MOST_CHAIN:
            named = ", ".join(f"`{column}`" for column in attributes if column in chain)
            raise SpecError(
                f"the ordered columns {named} have {cells:,} combinations of cells, and at most {MOST_CHAIN:,} are possible; declare coarser "
                "columns, or order fewer of them"
            )


def _step(attribute: Attribute) -> object:
    """Return what the values of a column are multiples of."""
    if isinstance(attribute, FineNumber):
        return attribute.scale.step, attribute.scale.per, attribute.scale.low % attribute.scale.step
    if isinstance(attribute, Integer | Number):
        return isinstance(attribute, Integer)
    return attribute.step if isinstance(attribute, FineDays) else "bins"


def implied(orders: Sequence[Order]) -> list[Order]:
    """Return the orders that follow from others through columns in between.

    Raises:
        SpecError: If orders form a circle.

    >>> given = [Order(low=a, high=b, violations=Violations.DROP) for a, b in ("ab", "bc")]
    >>> [(each.low, each.high) for each in implied(given)]
    [('a', 'c')]
    """
    known = {(each.low, each.high): each.violations for each in orders}
    found = dict(known)
    while more := {
        (low, high): max(first, second, key=lambda policy: policy is Violations.DROP)
        for (low, middle), first in found.items()
        for (start, high), second in known.items()
        if start == middle and (low, high) not in found
    }:
        found |= more
    for low, high in found:
        if low == high:
            raise SpecError(f"the orders of `{low}` form a circle; remove one of them")
    return [
        Order(low=low, high=high, violations=policy)
        for (low, high), policy in found.items()
        if (low, high) not in known
    ]


def in_order(
    table: pa.Table,
    orders: Sequence[Order],
    intervals: Intervals,
    *,
    attributes: Mapping[str, Attribute],
    rng: np.random.Generator,
) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """Exchange values between rows, and draw values again where rows are still not in order.

    Args:
        table: Drawn rows.
        orders: The orders, with those that they imply.
        intervals: Where the values of each column in an order come from.
        attributes: The columns.
        rng: Draws.

    Returns:
        The rows, and for each row whether its intervals allow an order at all. That is so if they are whole cells.
    """
    draws = _Draws(orders, intervals, {name: spread_of(attributes[name]) for name in intervals})
    values = {name: numbers_in(table.column(name)) for name in intervals}
    feasible = draws.feasible(values)
    for name in _lowest_first(intervals, orders):
        below = [values[each.low] for each in orders if each.high == name]
        if below and isinstance(attributes[name], Fine):
            least = np.fmax.reduce([np.full(len(feasible), -np.inf), *below])
            start, stop = (np.unique(each, return_inverse=True)[1] for each in intervals[name])
            taken = _exchanged(values[name], least, start * len(stop) + stop, rng)
            values[name] = values[name][taken]
            table = table.set_column(
                table.schema.get_field_index(name), table.schema.field(name), table.column(name).take(taken)
            )
    rows = np.flatnonzero(draws.wrong(values) & feasible)
    if not len(rows):
        return table, feasible
    for name, places in draws.again(rows, values, rng).items():
        table = with_values(table, name, rows, draws.spreads[name].value(places))
    return table, feasible


def _exchanged(values: Floats, least: Floats, cells: Places, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Exchange the values of a column between rows of the same cell, so that few are below the least that a row allows.

    In each cell the row with the highest limit comes first, and takes one of the values that it allows at random.

    Args:
        values: The values; not a number for nulls, which stay.
        least: The least value that each row allows.
        cells: A number for the cell of each row.
        rng: Chooses values.

    Returns:
        For each row, the row whose value it takes.
    """
    taken = np.arange(len(values))
    rows = np.flatnonzero(np.isin(cells, cells[values < least]) & ~np.isnan(values))
    rows = rows[np.lexsort((-least[rows], cells[rows]))]
    givers = rows[np.lexsort((-values[rows], cells[rows]))]
    starts = np.flatnonzero(np.append(True, np.diff(cells[rows]) != 0)) if len(rows) else np.empty(0, dtype=np.intp)
    chances = rng.random(len(rows))
    for start, stop in pairwise([*starts.tolist(), len(rows)]):
        takers, given = rows[start:stop], givers[start:stop]
        limits, offered, chance = least[takers].tolist(), values[given].tolist(), chances[start:stop].tolist()
        pool: list[int] = []
        without: list[int] = []
        chosen = [-1] * len(limits)
        at = 0
        for place, limit in enumerate(limits):
            while at < len(offered) and offered[at] >= limit:
                pool.append(at)
                at += 1
            if not pool:
                without.append(place)
                continue
            pick = int(chance[place] * len(pool))
            pool[pick], pool[-1] = pool[-1], pool[pick]
            chosen[place] = pool.pop()
        for place, left in zip(without, [*pool, *range(at, len(offered))], strict=True):
            chosen[place] = left
        taken[takers] = given[chosen]
    return taken


@dataclass(frozen=True, eq=False)
class _Draws:
    """Draws from the intervals of rows, given the orders of columns."""

    orders: Sequence[Order]
    intervals: Intervals
    spreads: Mapping[str, Spread]

    def wrong(self, values: Mapping[str, Floats]) -> npt.NDArray[np.bool_]:
        """Tell which rows are not in order. Nulls are not numbers, and are in every order."""
        return np.asarray(np.logical_or.reduce([values[each.low] > values[each.high] for each in self.orders]))

    def feasible(self, values: Mapping[str, Floats]) -> npt.NDArray[np.bool_]:
        """Tell which rows have values in order in their intervals."""
        low, high = self._ends(slice(None), values)
        return ~np.asarray(np.logical_or.reduce([low[each.low] > high[each.high] for each in self.orders]))

    def _ends(self, rows: Any, values: Mapping[str, Floats]) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Return the lowest and the highest number of each interval; not a number for nulls."""
        low, high = {}, {}
        for name, (start, stop) in self.intervals.items():
            spread, null = self.spreads[name], np.isnan(values[name][rows])
            last = stop[rows] - 1 if spread.whole else np.nextafter(stop[rows], -np.inf)
            low[name] = np.where(null, np.nan, numbers(spread.value(start[rows])))
            high[name] = np.where(null, np.nan, numbers(spread.value(last)))
        return low, high

    def again(
        self, rows: npt.NDArray[np.intp], values: Mapping[str, Floats], rng: np.random.Generator
    ) -> dict[str, Places]:
        """Return places in order for these rows, by column."""
        found = {name: self._drawn(name, rows, rng) for name in self.intervals}
        waiting = np.arange(len(rows))
        for attempt in range(TRIES):
            if attempt:
                for name, places in found.items():
                    places[waiting] = self._drawn(name, rows[waiting], rng)
            drawn = {
                name: np.where(
                    np.isnan(values[name][rows[waiting]]), np.nan, numbers(self.spreads[name].value(each[waiting]))
                )
                for name, each in found.items()
            }
            waiting = waiting[self.wrong(drawn)]
            if not len(waiting):
                return found
        for name, places in self._one_by_one(rows[waiting], values, rng).items():
            found[name][waiting] = places
        return found

    def _drawn(self, name: str, rows: npt.NDArray[np.intp], rng: np.random.Generator) -> Places:
        """Draw a place from each row's interval, by the distribution within its cell."""
        start, stop = (each[rows] for each in self.intervals[name])
        return draw_within(self.spreads[name], start, stop, rng)

    def _one_by_one(
        self, rows: npt.NDArray[np.intp], values: Mapping[str, Floats], rng: np.random.Generator
    ) -> dict[str, Places]:
        """Draw the lower columns first, each evenly from what leaves room for the higher ones."""
        low, high = self._ends(rows, values)
        chosen: dict[str, Places] = {}
        for name in _lowest_first(self.intervals, self.orders):
            spread, (start, stop) = self.spreads[name], (each[rows] for each in self.intervals[name])
            least = np.fmax.reduce([low[name], *(low[each.low] for each in self.orders if each.high == name)])
            most = np.fmin.reduce([high[name], *(high[each.high] for each in self.orders if each.low == name)])
            first, last = _places_between(spread, start, stop, np.nan_to_num(least), np.nan_to_num(most))
            if spread.whole:
                chosen[name] = rng.integers(first, np.maximum(last, first) + 1)
            else:
                chosen[name] = first + rng.random(len(rows)) * np.maximum(last - first, 0)
            # what is drawn is the least that the columns above it may be
            low[name] = np.where(np.isnan(low[name]), np.nan, numbers(spread.value(chosen[name])))
        return chosen


def _lowest_first(columns: Iterable[str], orders: Sequence[Order]) -> list[str]:
    """Return columns so that each comes after those below it: implied orders are known, so their number decides."""
    return sorted(columns, key=lambda column: sum(each.high == column for each in orders))


def _places_between(spread: Spread, start: Places, stop: Places, least: Floats, most: Floats) -> tuple[Places, Places]:
    """Return the first and the last place of each interval whose numbers are between two others. Numbers are linear in places."""
    origin = spread.bounds[:1]
    zero, one = numbers(spread.value(np.concatenate([origin, origin + 1]))).tolist()
    if not spread.whole:
        return np.maximum(start, least), np.minimum(np.nextafter(stop, -np.inf), most)
    first = np.clip(np.ceil((least - zero) / (one - zero)).astype(np.int64) + origin, start, stop - 1)
    last = np.clip(np.floor((most - zero) / (one - zero)).astype(np.int64) + origin, start, stop - 1)
    for _ in range(2):  # quotients of doubles may be off by a place
        first += (numbers(spread.value(first)) < least) & (first < stop - 1)
        first -= (numbers(spread.value(first - 1)) >= least) & (first > start)
        last -= (numbers(spread.value(last)) > most) & (last > start)
        last += (numbers(spread.value(last + 1)) <= most) & (last < stop - 1)
    return first, last
