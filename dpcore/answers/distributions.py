"""The distribution of one column with intervals: a few bars, each a count of some of the column's cells."""

import math

import numpy as np

from dpcore.answers.errors import LEVEL, CountErrors
from dpcore.answers.intervals import Intervals
from dpcore.answers.query import Among, Cells, Condition, IsNull, Output, Query, Term
from dpcore.answers.query import Count as Counted
from dpcore.reporting.count import Count
from dpcore.universe import Attribute, Universe
from dpcore.universe.spread import category_values, null_codes
from dpcore.universe.spreading import spread_of

MOST_BARS, MOST_CATEGORIES = 20, 10

Bar = tuple[str, Condition]


def column_counts(intervals: Intervals, universe: Universe, found: CountErrors) -> tuple[Count, ...]:
    """Return the bars of a column: neighbouring cells of an ordered one, the largest categories and all others of another.

    Args:
        intervals: Those of the release.
        universe: Its columns.
        found: The counts of the column.
    """
    (axis,), (cells,) = found.axes, found.cells
    attribute = universe.attributes[universe.names[axis]]
    rows = {int(cell): float(count) for cell, count in zip(cells, found.counts, strict=True)}
    bars = _ordered_bars(axis, attribute) if attribute.ordered else _category_bars(axis, attribute, rows)
    nulls = null_codes(attribute)
    if nulls:
        bars.append((", ".join(attribute.labels[code] for code in nulls), IsNull(Term(axis))))
    query = Query(tuple(Output(label, Counted(condition)) for label, condition in bars))
    _, answered = intervals.of(query, level=LEVEL)
    counts = []
    for at, (label, condition) in enumerate(bars):
        each = answered[Counted(condition)]
        value, low, high = (float(end[0]) for end in (each.value, each.low, each.high))
        counts.append(Count(label, value, low, high, apart=bool(nulls) and at == len(bars) - 1))
    return tuple(counts)


def _ordered_bars(axis: int, attribute: Attribute) -> list[Bar]:
    edges, cells = spread_of(attribute).edges, attribute.cells
    each = math.ceil(cells / MOST_BARS)
    bars: list[Bar] = []
    for first in range(0, cells, each):
        last = min(first + each, cells) - 1
        term = Term(axis, Cells())
        bars.append(
            (range_label(attribute.labels[first], attribute.labels[last]), Among(term, edges[first : last + 1]))
        )
    return bars


def _category_bars(axis: int, attribute: Attribute, rows: dict[int, float]) -> list[Bar]:
    values = category_values(attribute) or ()
    codes = [code for code, value in enumerate(values) if value is not None]
    if len(codes) > MOST_CATEGORIES:
        largest = set(sorted(codes, key=lambda code: -rows[code])[: MOST_CATEGORIES - 1])
        shown, rest = [code for code in codes if code in largest], [code for code in codes if code not in largest]
    else:
        shown, rest = codes, []
    bars: list[Bar] = [(attribute.labels[code], Among(Term(axis), (values[code],))) for code in shown]
    if rest:
        bars.append((f"{len(rest):,} others", Among(Term(axis), tuple(values[code] for code in rest))))
    return bars


def range_label(first: str, last: str) -> str:
    """Return the label of neighbouring cells, by the labels of the first and the last of them.

    >>> range_label("17", "20"), range_label("[0, 20)", "[40, 60)"), range_label("2025-Q1", "2025-Q1")
    ('17 to 20', '0 to 60', '2025-Q1')
    """
    low, high = first.strip("[)]").split(", ")[0], last.strip("[)]").split(", ")[-1]
    return low if low == high else f"{low} to {high}"


def cell_label(universe: Universe, found: CountErrors, at: int) -> str:
    """Return the values of one count, such as `sex F, age 20 to 40`."""
    places = np.unravel_index(at, [len(each) for each in found.cells])
    parts = []
    for axis, cells, place in zip(found.axes, found.cells, places, strict=True):
        name = universe.names[axis]
        label = universe.attributes[name].labels[int(cells[place])]
        parts.append(f"{name} {range_label(label, label) if universe.attributes[name].ordered else label}")
    return ", ".join(parts)
