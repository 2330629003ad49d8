"""What a count or sum does not know if it is about only some days of a bin of the calendar.

A date in a bin is released as the first day of that bin, and a question compares it as such. Nothing was measured within the bin. So if a
question cuts it, any part of its rows may lie on either side.
"""

from dataclasses import replace

import numpy as np

from dpcore.answers.cut_leaves import ALL, Sides
from dpcore.answers.evaluate import Marginal
from dpcore.answers.merging import Merging
from dpcore.answers.query import Count, Sum
from dpcore.models.model import Weights
from dpcore.universe.leaves import Fine
from dpcore.universe.spread import Segments
from dpcore.universe.spreading import spread_of
from dpcore.universe.temporal import CalendarColumn


def cuts_bins(merging: Merging, axis: int) -> bool:
    """Return whether a query cuts a bin of a date or time, of which only the first day or moment is released."""
    attribute = merging.column(axis).attribute
    return isinstance(attribute, CalendarColumn) and not isinstance(attribute, Fine) and merging.is_cut(axis)


def sides_of_bins(merging: Merging, axis: int, number: Count | Sum, marginal: Marginal) -> Sides:
    """Return how far a count or sum may be off, because all rows of a bin that the query cuts may lie on one side.

    Args:
        merging: The query.
        axis: A column of which it cuts bins.
        number: One of its counts or sums.
        marginal: The marginals of the released model.
    """
    spread = spread_of(merging.column(axis).attribute)
    bounds, cells = spread.bounds, np.arange(spread.cells)
    evenly = replace(spread, segments=Segments(bounds[:-1], bounds[1:], cells, np.ones(len(cells))))
    even = merging.varied({axis: [evenly]})  # so that every piece of a bin has rows
    group, piece, amounts = even.form(number).entries(lambda axes: marginal(axes)[:1], along=axis)
    column = even.on_models(axis, models=1)[0]
    part, bins = column.share[piece], int(column.cell.max()) + 1
    keys, at = np.unique(group * bins + column.cell[piece], return_inverse=True)
    parts = np.bincount(at, weights=part, minlength=len(keys))
    amount = np.bincount(at, weights=amounts, minlength=len(keys)) / np.maximum(parts, 1e-300)  # of all rows of the bin
    whole, of = parts >= ALL, keys // bins

    def total(amounts: Weights) -> Weights:
        return np.bincount(of, weights=amounts, minlength=merging.groups).astype(np.float64)

    certain = total(np.where(whole, amount, 0.0))
    least, most = (certain + total(np.where(whole, 0.0, end(amount, 0.0))) for end in (np.minimum, np.maximum))
    value = merging.form(number).totals(marginal)[0]
    return Sides(np.maximum(value - least, 0.0) ** 2, np.maximum(most - value, 0.0) ** 2)
