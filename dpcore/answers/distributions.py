"""The distribution of one column with intervals: a few bars, each a count of some of the column's cells."""

import math
import re
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from dpcore.answers.bars import MOST_BARS, Bar, equal_bars, span, width_words, with_commas
from dpcore.answers.errors import LEVEL, CountErrors
from dpcore.answers.intervals import Intervals
from dpcore.answers.query import Among, Cells, Condition, IsNull, Output, Query, Term
from dpcore.answers.query import Count as Counted
from dpcore.reporting.count import Count
from dpcore.universe import Attribute, Date, Datetime, Integer, Universe
from dpcore.universe.leaves import Fine
from dpcore.universe.spread import category_values, null_codes
from dpcore.universe.spreading import spread_of

MOST_CATEGORIES = 10


def column_counts(intervals: Intervals, universe: Universe, errors: CountErrors) -> tuple[Count, ...]:
    """Return the bars of a column: intervals of an ordered one, the largest categories and all others of another.

    Args:
        intervals: Those of the release.
        universe: Its columns.
        errors: The counts of the column.
    """
    (axis,), (cells,) = errors.axes, errors.cells
    attribute = universe.attributes[universe.names[axis]]
    rows = {int(cell): float(count) for cell, count in zip(cells, errors.counts, strict=True)}
    if is_evened(attribute):
        bars = equal_bars(axis, attribute, np.array([rows[cell] for cell in range(attribute.cells)]))
    else:
        bars = _ordered_bars(axis, attribute) if attribute.ordered else _category_bars(axis, attribute, rows)
    nulls = null_codes(attribute)
    if nulls:
        bars.append(_single(", ".join(attribute.labels[code] for code in nulls), IsNull(Term(axis))))
    query = Query(tuple(Output(bar.label, Counted(bar.condition)) for bar in bars))
    _, answered = intervals.of(query, level=LEVEL)
    counts = []
    for place, bar in enumerate(bars):
        interval = answered[Counted(bar.condition)]
        value, low, high = (float(end[0]) for end in (interval.value, interval.low, interval.high))
        apart = bool(nulls) and place == len(bars) - 1
        counts.append(Count(bar.label, value, low, high, apart=apart, first=bar.first, last=bar.last))
    return tuple(counts)


def is_evened(attribute: Attribute) -> TypeGuard[Fine]:
    """Return whether the bars of a column are intervals of equal width, which may cut its cells: a tree has measured what lies within."""
    return isinstance(attribute, Fine) and is_unequal(attribute)


def has_axis(attribute: Attribute) -> bool:
    """Return whether the bars of a column stand on an axis. Declared intervals of unequal width are a list: an axis would distort them."""
    return attribute.ordered and (is_evened(attribute) or not is_unequal(attribute))


def picture_note(attribute: Attribute, counts: Sequence[Count]) -> str:
    """Return a few words about the widths of a column's bars; nothing if each is a cell, or as many cells as another."""
    return width_words(counts) if is_evened(attribute) else ""


def is_unequal(attribute: Attribute) -> bool:
    """Return whether some cells, in groups for bars, cover much wider intervals than others: they cannot stand on an axis side by side.

    The last one may be narrower.
    """
    if not attribute.ordered:
        return False
    edges = spread_of(attribute).edges
    widths = [(edges[last + 1] - edges[first]) / (edges[1] - edges[0]) for first, last in _grouped_cells(attribute)]
    return len(widths) > 1 and bool(max(widths) > 1.5 * min(widths[:-1]))


def cells_words(attribute: Attribute) -> str:
    """Return what the cells of a column are: values, intervals of numbers, or periods.

    >>> cells_words(Integer(minimum=0, maximum=9)), cells_words(Integer(minimum=0, maximum=9, width=5))
    ('10 values', '2 intervals')
    """
    labels = attribute.labels
    several = attribute.ordered and any(label.startswith("[") or " to " in label for label in labels)
    what = "interval" if several else "period" if isinstance(attribute, Date | Datetime) else "value"
    return f"{len(labels):,} {what}{'' if len(labels) == 1 else 's'}"


def _grouped_cells(attribute: Attribute) -> list[tuple[int, int]]:
    """Return the first and the last cell of each bar of an ordered column."""
    cells = attribute.cells
    step = math.ceil(cells / MOST_BARS)
    return [(first, min(first + step, cells) - 1) for first in range(0, cells, step)]


def _ordered_bars(axis: int, attribute: Attribute) -> list[Bar]:
    edges, labels, term = spread_of(attribute).edges, attribute.labels, Term(axis, Cells())
    bars: list[Bar] = []
    for first, last in _grouped_cells(attribute):
        ends = _ends(attribute, labels[first], labels[last])
        bars.append(Bar(span(*ends), Among(term, edges[first : last + 1]), *ends))
    return bars


def _single(label: str, condition: Condition) -> Bar:
    return Bar(label, condition, label, label)


def _category_bars(axis: int, attribute: Attribute, rows: dict[int, float]) -> list[Bar]:
    values = category_values(attribute) or ()
    codes = [code for code, value in enumerate(values) if value is not None]
    most = MOST_CATEGORIES - 1 if len(codes) > MOST_CATEGORIES else MOST_CATEGORIES
    largest = sorted(codes, key=lambda code: -rows[code])[:most]
    rest = [code for code in codes if code not in largest]
    bars = [_single(attribute.labels[code], Among(Term(axis), (values[code],))) for code in codes if code in largest]
    if rest:
        bars.append(_single(f"{len(rest):,} others", Among(Term(axis), tuple(values[code] for code in rest))))
    return bars


def range_label(attribute: Attribute, first: str, last: str) -> str:
    """Return the label of neighbouring cells, by the labels of the first and the last of them. Whole numbers include both ends.

    >>> ages = Integer(minimum=0, maximum=99, width=20)
    >>> range_label(ages, "[0, 20)", "[40, 60)")
    '0 to 59'
    """
    return span(*_ends(attribute, first, last))


def _ends(attribute: Attribute, first: str, last: str) -> tuple[str, str]:
    """Return the first and the last value of neighbouring cells, by their labels."""
    low, high = (re.split(", | to ", label.strip("[)]")) for label in (first, last))
    end = high[-1]
    if isinstance(attribute, Integer) and last.endswith(")"):
        end = str(int(end) - 1)
    return with_commas(low[0]), with_commas(end)


def cell_label(universe: Universe, errors: CountErrors, at: int) -> str:
    """Return the values of one count, such as `sex F, age 20 to 39`."""
    parts = []
    for axis, cells, place in zip(errors.axes, errors.cells, np.unravel_index(at, errors.shape), strict=True):
        name = universe.names[axis]
        attribute = universe.attributes[name]
        label = attribute.labels[int(cells[place])]
        parts.append(f"{name} {range_label(attribute, label, label) if attribute.ordered else label}")
    return ", ".join(parts)
