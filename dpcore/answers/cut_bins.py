"""What a count or sum does not know if it is about only some days of a bin of the calendar.

A date in a bin is released as the first day of that bin, and a question compares it as such. Nothing was measured within the bin. So if a
question cuts it, any part of its rows may lie on either side.
"""

import numpy as np

from dpcore.answers.cut_leaves import ALL, Sides
from dpcore.answers.evaluate import Marginal
from dpcore.answers.merging import Merging
from dpcore.answers.query import Count, Sum
from dpcore.universe.spreading import evened, is_first_day, spread_of


def cuts_bins(merging: Merging, axis: int) -> bool:
    """Return whether a query cuts a bin of a date or time, of which only the first day or moment is released."""
    return is_first_day(merging.column(axis).attribute) and merging.is_cut(axis)


def sides_of_bins(merging: Merging, axis: int, number: Count | Sum, marginal: Marginal) -> Sides:
    """Return how far a count or sum may be off, because all rows of a bin that the query cuts may lie on one side.

    Args:
        merging: The query.
        axis: A column of which it cuts bins.
        number: One of its counts or sums.
        marginal: The marginals of the released model.
    """
    even = merging.varied({axis: [evened(spread_of(merging.column(axis).attribute))]})  # every piece of a bin has rows
    group, piece, amounts = even.form(number).entries(lambda axes: marginal(axes)[:1], along=axis)
    column = even.on_models(axis, models=1)[0]
    part, bins = column.share[piece], int(column.cell.max()) + 1
    keys, at = np.unique(group * bins + column.cell[piece], return_inverse=True)
    # If all rows of a bin lay in one piece, the group would have so much of them. A piece that does not count has nothing.
    amounts = amounts / part
    is_whole = np.bincount(at, weights=part, minlength=len(keys)) >= ALL
    least, most = np.where(is_whole, np.inf, 0.0), np.where(is_whole, -np.inf, 0.0)
    np.minimum.at(least, at, amounts)
    np.maximum.at(most, at, amounts)
    low, high = (np.bincount(keys // bins, weights=each, minlength=merging.groups) for each in (least, most))
    value = merging.form(number).totals(marginal)[0]
    return Sides(np.maximum(value - low, 0.0) ** 2, np.maximum(high - value, 0.0) ** 2)
