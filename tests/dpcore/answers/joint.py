"""An oracle: a query evaluated on the joint table of all pieces of all its columns, one combination after the other."""

import numpy as np
import numpy.typing as npt

from dpcore.answers.cells import Column
from dpcore.answers.evaluate import Prepared, combined, mean_of, quantiles
from dpcore.answers.query import (
    Aggregate,
    All,
    Always,
    AnyOf,
    Condition,
    Count,
    IsTrue,
    Mean,
    Not,
    Number,
    Quantile,
    Sum,
    terms,
)
from dpcore.models import Model
from dpcore.models.model import Weights


def truth(condition: Condition, columns: dict[int, Column]) -> npt.NDArray[np.int8]:
    """Return the truth of a condition on every combination of pieces: 0 for false, 1 for unknown, 2 for true."""
    match condition:
        case Always(value):
            return np.full([1] * len(columns), 2 * value, dtype=np.int8)
        case Not(part):
            return np.int8(2) - truth(part, columns)
        case IsTrue(part):
            return np.where(truth(part, columns) == 2, np.int8(2), np.int8(0))
        case All(parts) | AnyOf(parts):
            combine = np.minimum if isinstance(condition, All) else np.maximum
            every = [truth(part, columns) for part in parts]
            truths = np.full([1] * len(columns), 2 if isinstance(condition, All) else 0, dtype=np.int8)
            for part in every:
                truths = combine(truths, part)
            return truths
    return along(columns[condition.term.column].truths(condition), columns, condition.term.column)


def along(values: npt.NDArray[np.generic], columns: dict[int, Column], axis: int) -> npt.NDArray[np.generic]:
    """Shape values of pieces so that they broadcast over all columns."""
    return values.reshape([-1 if place == axis else 1 for place in columns])


def numbers(prepared: Prepared, model: Model, columns: dict[int, Column]) -> dict[Number, Weights]:
    """Return all numbers of a query, given its columns as the model distributes their values."""
    return {
        number: combined(number, lambda part: _aggregate(prepared, model, columns, part), groups=prepared.groups)
        for number in prepared.query.numbers()
    }


def _aggregate(prepared: Prepared, model: Model, columns: dict[int, Column], number: Aggregate) -> Weights:
    conditions = [prepared.query.where, number.where]
    own = {term.column for condition in conditions for term in terms(condition)}
    own |= {key.term.column for key in prepared.query.keys}
    own |= set() if isinstance(number, Count) else {number.column}
    used = {axis: columns[axis] for axis in sorted(own)}
    rows = model.marginal(tuple(used))
    group = np.zeros([1] * len(used), dtype=np.int64)
    for place, (axis, column) in enumerate(used.items()):
        rows = np.take(rows, column.cell, axis=place) * along(column.share, used, axis)
    for key, keys in zip(prepared.query.keys, prepared.keys, strict=True):
        group = group * len(keys.values) + along(keys.of_piece, used, key.term.column)
    rows = np.where(truth(All(tuple(conditions)), used) == 2, rows, 0.0)
    if not isinstance(number, Count):
        rows = np.where(along(columns[number.column].null, used, number.column), 0.0, rows)
    flat = np.broadcast_to(group, rows.shape).ravel()

    def total(array: Weights) -> Weights:
        return np.bincount(flat, weights=array.ravel(), minlength=prepared.groups)

    if isinstance(number, Count):
        return total(rows)
    column = columns[number.column]
    if isinstance(number, Quantile):
        pieces = [
            np.where(along(np.arange(column.pieces) == at, used, number.column), rows, 0.0) for at in column.ascending
        ]
        masses = np.stack([total(array) for array in pieces], axis=1)
        return quantiles(column, masses, np.full(prepared.groups, number.share))
    sums = total(rows * along(column.means, used, number.column))
    assert isinstance(number, Sum | Mean)
    return sums if isinstance(number, Sum) else mean_of(sums, total(rows))
