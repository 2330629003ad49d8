"""Put the answers of several parts of a series below each other: each part has its own values of some keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpcore.answers.answer import frame_of, framed, high_columns, key_columns
from dpcore.answers.evaluate import Prepared
from dpcore.answers.intervals import Basis, Interval, worst_of
from dpcore.answers.query import Arithmetic, Number, Overall, Query
from dpcore.errors import UsageError
from dpcore.models.model import Weights


@dataclass(frozen=True, eq=False)
class Part:
    """The numbers of a part of a series.

    Attributes:
        prepared: The question about this part, without the keys whose value is the same in all of it.
        found: Its numbers.
        removed: The value of each of those keys, and the end of its interval.
    """

    prepared: Prepared
    found: dict[Number, Interval]
    removed: tuple[tuple[Any, Any], ...]


@dataclass(frozen=True, eq=False)
class _Stack:
    """A question about several parts, whose groups lie below each other. Days and moments are shown as in the first part."""

    query: Query
    groups: int
    possible: npt.NDArray[np.bool_]
    first: Prepared

    def is_moment(self, column: int) -> bool:
        return self.first.is_moment(column)

    def moments(self, column: int, places: Weights) -> npt.NDArray[np.datetime64]:
        return self.first.moments(column, places)


def stacked_frame(query: Query, parts: Sequence[Part], *, position: int) -> pd.DataFrame:
    """Return the answer to a question as a table, given the answers of its parts.

    Args:
        query: The question.
        parts: The parts, in the order of their blocks.
        position: The column whose keys the parts lack.

    Raises:
        UsageError: If the question compares groups of different parts with each other.
    """
    if len(parts) == 1 and not parts[0].removed:
        return frame_of(parts[0].prepared, parts[0].found)
    if len(parts) > 1 and any(_has_overall(number) for number in query.numbers()):
        raise UsageError(
            "a share of all groups, with over (), cannot be divided into periods here; ask for the counts of the periods, and for their total"
        )
    keys = _columns(query, parts, position, end=0)
    order = _order(keys)
    numbers = [_own_numbers(query, part) for part in parts]
    found = {number: _joined([own[number] for own in numbers], order) for number in query.numbers()}
    highs = _columns(query, parts, position, end=1)
    possible = np.concatenate([part.prepared.possible for part in parts])[order]
    stack = _Stack(query, len(order), possible, parts[0].prepared)
    return framed(
        stack,
        found,
        keys=[[column[at] for at in order] for column in keys],
        highs=[[column[at] for at in order] for column in highs],
    )


def _own_numbers(query: Query, part: Part) -> dict[Number, Interval]:
    """Return what a part gives for each number of the whole question. Different numbers may be the same in a part."""
    own = part.prepared.query.places()
    return {number: part.found[asked] for number, asked in zip(query.places(), own, strict=True)}


def _has_overall(number: Number) -> bool:
    if isinstance(number, Arithmetic):
        return _has_overall(number.left) or _has_overall(number.right)
    return isinstance(number, Overall)


def _columns(query: Query, parts: Sequence[Part], position: int, *, end: int) -> list[list[Any]]:
    """Return the value of each key in all groups of all parts, or the end of its interval."""
    columns: list[list[Any]] = [[] for _ in query.keys]
    for part in parts:
        own = iter((key_columns if end == 0 else high_columns)(part.prepared))
        removed = iter(part.removed)
        for column, key in zip(columns, query.keys, strict=True):
            shared = key.term.column == position
            column.extend([next(removed)[end]] * part.prepared.groups if shared else next(own))
    return columns


def _order(keys: Sequence[list[Any]]) -> list[int]:
    """Return the groups sorted by their keys: categories in their declared order, all else ascending, and null last."""
    ranks = []
    for column in keys:
        distinct = list(dict.fromkeys(value for value in column if value is not None))
        if not all(isinstance(value, str | bool) for value in distinct):
            distinct.sort()
        rank = {value: at for at, value in enumerate([*distinct, None])}
        ranks.append([rank[value] for value in column])
    return sorted(range(len(keys[0])), key=lambda at: [rank[at] for rank in ranks])


def _joined(intervals: Sequence[Interval], order: Sequence[int]) -> Interval:
    worst = worst_of(each.basis for each in intervals)
    inferred = [basis is not Basis.MEASURED for each in intervals for basis in each.bases]
    value, low, high = (
        np.concatenate([getattr(each, name) for each in intervals])[list(order)] for name in ("value", "low", "high")
    )
    return Interval(value, low, high, worst, np.array(inferred)[list(order)])
