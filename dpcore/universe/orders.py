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

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SpecError
from dpcore.universe.attribute import Attribute, Floats
from dpcore.universe.constraints import Attributes, Columns, Comparison, Possible, Values, Violations
from dpcore.universe.drawing import TRIES, Draws, Places, Rows, numbers_in, with_values
from dpcore.universe.extremes import fine_places_from, first_where, numbers
from dpcore.universe.fine_days import FineDays
from dpcore.universe.fine_numbers import FineNumber
from dpcore.universe.leaves import Fine
from dpcore.universe.numeric import Integer, Number
from dpcore.universe.spread import Spread
from dpcore.universe.spreading import is_first_day, spread_of
from dpcore.universe.temporal import Date, Datetime

Numbers = Mapping[str, Floats]

MOST_CHAIN = 1 << 21
"""The most combinations of cells that columns may have which are ordered among each other."""


@dataclass(frozen=True, kw_only=True)
class Order(Comparison):
    """The value of one column is at most that of another. A null satisfies every order."""

    low: str
    high: str

    @property
    def columns(self) -> Columns:
        """The lower column, then the higher one."""
        return self.low, self.high

    def tables(self, attributes: Attributes) -> Iterator[tuple[Columns, Possible]]:
        """Yield one table, if the columns have a common order."""
        _refuse_incomparable(self, attributes[self.low], attributes[self.high])
        return super().tables(attributes)

    def measured(self, attribute: Attribute, places: Values) -> Values:
        """Return the numbers at these places."""
        return numbers(spread_of(attribute).value(places))

    def code_from(self, column: Fine, measured: Values) -> Values:
        """Return the code of the first number that is high enough."""
        return fine_places_from(column, measured)

    def range(self, low: Sequence[Values], high: Sequence[Values], attributes: Attributes) -> tuple[Values, Values]:
        """Return what the higher column may be: at least the lower one."""
        del high, attributes
        return low[0], np.asarray(np.inf)


def _refuse_incomparable(order: Order, low: Attribute, high: Attribute) -> None:
    kinds: tuple[type[Attribute] | tuple[type[Attribute], ...], ...] = ((Integer, Number), Date, Datetime)
    if not any(isinstance(low, kind) and isinstance(high, kind) for kind in kinds):
        raise SpecError(
            f"`{order.low}` and `{order.high}` have no common order; name two numbers, two dates or two datetimes"
        )
    binned = [is_first_day(column) for column in (low, high)]
    same = isinstance(low, Date | Datetime) and isinstance(high, Date | Datetime) and low.every == high.every
    if any(binned) and not (all(binned) and same and low.minimum == high.minimum):  # type: ignore[attr-defined]
        raise SpecError(
            f"only the first moment of a bin is released, so `{order.low}` and `{order.high}` need the same bins; give both the same "
            "`every` and `min`, or neither an `every`"
        )


def refuse_mixed_chains(orders: Sequence[Order], attributes: Attributes) -> None:
    """Raise if a column between two others has another step: it might have no value between theirs, although each pair of cells does."""
    between = {order.low for order in orders} & {order.high for order in orders}
    for order in orders:
        if between.intersection(order.columns) and _step(attributes[order.low]) != _step(attributes[order.high]):
            raise SpecError(
                f"`{order.low}` and `{order.high}` are in an order of three columns or more, which need the same type and step; give them the "
                "same, or order two columns only"
            )


def refuse_large_chains(orders: Sequence[Order], attributes: Attributes) -> None:
    """Raise if columns that are ordered among each other have too many combinations of cells. A model keeps them all in one table."""
    left = [set(order.columns) for order in orders]
    while left:
        chain = left.pop()
        while more := [columns for columns in left if columns & chain]:
            chain = chain.union(*more)
            left = [columns for columns in left if not columns & chain]
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

    >>> orders = [Order(low=a, high=b, violations=Violations.DROP) for a, b in ("ab", "bc")]
    >>> [(order.low, order.high) for order in implied(orders)]
    [('a', 'c')]
    """
    declared = {(order.low, order.high): order.violations for order in orders}
    policies = dict(declared)
    while more := {
        (low, high): max(first, second, key=lambda policy: policy is Violations.DROP)
        for (low, middle), first in policies.items()
        for (start, high), second in declared.items()
        if start == middle and (low, high) not in policies
    }:
        policies |= more
    for low, high in policies:
        if low == high:
            raise SpecError(f"the orders of `{low}` form a circle; remove one of them")
    return [
        Order(low=low, high=high, violations=policy)
        for (low, high), policy in policies.items()
        if (low, high) not in declared
    ]


def in_order(table: pa.Table, draws: Draws, orders: Sequence[Order]) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """Exchange values between rows, and draw values again where rows are still not in order.

    Args:
        table: Drawn rows.
        draws: Where the values of each column in an order come from.
        orders: The orders, with those that they imply.

    Returns:
        The rows, and for each row whether its intervals allow an order at all. That is so if they are whole cells.
    """
    values = {name: numbers_in(table.column(name)) for name in draws.intervals}
    low, high = _ends(draws, slice(None), values)
    feasible = ~_wrong(orders, low, high)
    for name in _lowest_first(draws.intervals, orders):
        below = [values[order.low] for order in orders if order.high == name]
        if below and isinstance(draws.attributes[name], Fine):
            least = np.fmax.reduce([np.full(len(feasible), -np.inf), *below])
            start, stop = (np.unique(ends, return_inverse=True)[1] for ends in draws.intervals[name])
            taken = _exchanged(values[name], least, start * len(stop) + stop, draws.rng)
            values[name] = values[name][taken]
            place = table.schema.get_field_index(name)
            table = table.set_column(place, table.schema.field(place), table.column(place).take(taken))
    rows = np.flatnonzero(_wrong(orders, values, values) & feasible)
    if not len(rows):
        return table, feasible
    for name, places in _again(draws, orders, rows, values).items():
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
        takers, offering = rows[start:stop], givers[start:stop]
        limits, offered, chance = least[takers].tolist(), values[offering].tolist(), chances[start:stop].tolist()
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
        taken[takers] = offering[chosen]
    return taken


def _wrong(orders: Sequence[Order], low: Numbers, high: Numbers) -> npt.NDArray[np.bool_]:
    """Tell which rows are not in order, whatever lies between these bounds. Nulls are not numbers, and are in every order."""
    return np.asarray(np.logical_or.reduce([low[order.low] > high[order.high] for order in orders]))


def _ends(draws: Draws, rows: Rows, values: Numbers) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return the lowest and the highest number of each interval; not a number for nulls."""
    low, high = {}, {}
    for name in draws.spreads:
        low[name], high[name] = (_numbers(draws, name, places, values[name][rows]) for places in draws.ends(name, rows))
    return low, high


def _numbers(draws: Draws, name: str, places: Places, values: Floats) -> Floats:
    """Return the numbers at places of a column; not a number where its value is none."""
    return np.where(np.isnan(values), np.nan, numbers(draws.spreads[name].value(places)))


def _again(draws: Draws, orders: Sequence[Order], rows: npt.NDArray[np.intp], values: Numbers) -> dict[str, Places]:
    """Return places in order for these rows, by column."""
    chosen = {name: draws.drawn(name, rows) for name in draws.intervals}
    waiting = np.arange(len(rows))
    for attempt in range(TRIES):
        if attempt:
            for name, places in chosen.items():
                places[waiting] = draws.drawn(name, rows[waiting])
        drawn = {
            name: _numbers(draws, name, places[waiting], values[name][rows[waiting]]) for name, places in chosen.items()
        }
        waiting = waiting[_wrong(orders, drawn, drawn)]
        if not len(waiting):
            return chosen
    for name, places in _one_by_one(draws, orders, rows[waiting], values).items():
        chosen[name][waiting] = places
    return chosen


def _one_by_one(
    draws: Draws, orders: Sequence[Order], rows: npt.NDArray[np.intp], values: Numbers
) -> dict[str, Places]:
    """Draw the lower columns first, each evenly from what leaves room for the higher ones."""
    low, high = _ends(draws, rows, values)
    chosen: dict[str, Places] = {}
    for name in _lowest_first(draws.intervals, orders):
        spread = draws.spreads[name]
        least = np.fmax.reduce([low[name], *(low[order.low] for order in orders if order.high == name)])
        most = np.fmin.reduce([high[name], *(high[order.high] for order in orders if order.low == name)])
        first, last = _places_between(spread, *draws.ends(name, rows), np.nan_to_num(least), np.nan_to_num(most))
        if spread.whole:
            chosen[name] = draws.rng.integers(first, np.maximum(last, first) + 1)
        else:
            chosen[name] = first + draws.rng.random(len(rows)) * np.maximum(last - first, 0)
        # what is drawn is the least that the columns above it may be
        low[name] = _numbers(draws, name, chosen[name], low[name])
    return chosen


def _lowest_first(columns: Iterable[str], orders: Sequence[Order]) -> list[str]:
    """Return columns so that each comes after those below it: implied orders are known, so their number decides."""
    return sorted(columns, key=lambda column: sum(order.high == column for order in orders))


def _places_between(spread: Spread, start: Places, end: Places, least: Floats, most: Floats) -> tuple[Places, Places]:
    """Return the first and the last place of each interval whose numbers are between two others."""
    if not spread.whole:
        return np.maximum(start, least), np.minimum(end, most)
    first = first_where(lambda places: numbers(spread.value(places)) >= least, start, end)
    return first, np.maximum(
        first_where(lambda places: numbers(spread.value(places)) > most, start, end + 1) - 1, start
    )
