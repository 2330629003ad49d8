"""Answer a question about a release as a table."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpcore.answers.cells import Column
from dpcore.answers.evaluate import Prepared
from dpcore.answers.intervals import Interval, Intervals, checked_level
from dpcore.answers.query import COMPARISONS, All, Always, AnyOf, KeyOf, Not, Number, Order, Quantile, Query
from dpcore.answers.release import Release, open_release
from dpcore.errors import UsageError
from dpcore.models.model import Weights
from dpcore.release.integrity import one_line

if TYPE_CHECKING:
    from dpcore.answers.series import Series

Numbers = Mapping[Number, Weights]


_LOW, _HIGH, _BASIS = "_low", "_high", "_basis"
_opened: WeakKeyDictionary[Release, Intervals] = WeakKeyDictionary()


def answer(release: "str | Path | Release | Series", query: str, *, level: float = 0.95) -> pd.DataFrame:
    """Answer a question about a release, from its folder alone. Nothing is charged, and no raw data is read.

    The numbers are expectations of the model that was fitted to the release's measurements. They are what the query would give on the
    released rows, without the sampling error of the rows.

    Args:
        release: The folder of a release, the folder of its dataset for the newest one, or a release that `open_release` has read. Keep
            that for several questions, since reading takes longer than answering. If the releases of the dataset cover blocks, its folder
            stands for all of them together: a series, which `open_series` reads.
        query: One SQL statement, such as `select department, avg(cost) from release where age >= 65 group by department`.
        level: The probability that an interval contains the number that the private table would give.

    Returns:
        A row for each group that `where` allows, including those in which no rows are expected. Beside each number `x` there are the ends of its interval,
        `x_low` and `x_high`, and `x_basis`: `measured`, `model`, or `guess` if two of its columns were never measured together. Of a series,
        `attrs["releases"]` names the releases that were read, and `attrs["missing_blocks"]` the blocks that none of them covers. If only some
        rows of each unit count, `attrs["limit"]` says so.

    Raises:
        DpflowError: If the folder holds no release, or the question cannot be answered. The message says what to do.
    """
    from dpcore.answers.series import Series, open_series  # noqa: PLC0415  it shows answers as this module does
    from dpcore.answers.sql import parse  # noqa: PLC0415  the parser takes longer to import than an answer

    opened = release if isinstance(release, Release | Series) else open_series(release) or open_release(release)
    if isinstance(opened, Series):
        return opened.answer(query, level=level)
    parsed = parse(query, opened.universe, tables=("release", opened.name))
    checked_level(level)
    if opened not in _opened:
        _opened[opened] = Intervals(opened)
    frame = frame_of(*_opened[opened].of(parsed, level=level))
    frame.attrs |= {"limit": opened.limit} if opened.limit else {}
    return frame


def frame_of(prepared: Prepared, intervals: Mapping[Number, Interval]) -> pd.DataFrame:
    """Return the numbers of a query as a table: its columns, filtered, sorted and limited."""
    return framed(prepared.query, intervals, groups_of(prepared), prepared.column)


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of a query.

    Attributes:
        keys: The value of each key in every group.
        highs: The end of its interval.
        possible: Which groups can have rows.
    """

    keys: list[list[Any]]
    highs: list[list[Any]]
    possible: npt.NDArray[np.bool_]


def groups_of(prepared: Prepared) -> Groups:
    """Return the groups of a query that was made ready."""
    codes = np.unravel_index(np.arange(prepared.groups), prepared.shape) if prepared.keys else ()
    pairs = [(keys, at.tolist()) for keys, at in zip(prepared.keys, codes, strict=True)]
    return Groups(
        [[keys.values[code] for code in at] for keys, at in pairs],
        [[keys.highs[code] for code in at] for keys, at in pairs],
        prepared.possible,
    )


def framed(
    query: Query, intervals: Mapping[Number, Interval], groups: Groups, column: Callable[[int], Column]
) -> pd.DataFrame:
    """Return the numbers of a query as a table.

    Args:
        query: The query.
        intervals: Its numbers.
        groups: Its groups.
        column: Returns a column by its position.
    """
    rows = _shown_groups(query, {number: interval.value for number, interval in intervals.items()}, groups)
    columns: dict[str, Any] = {}
    for output in query.outputs:
        if isinstance(output.value, KeyOf):
            key, at = query.keys[output.value.position], output.value.position
            columns[output.name] = _series([groups.keys[at][row] for row in rows])
            if key.high is not None:
                columns[key.high] = _series([groups.highs[at][row] for row in rows])
        else:
            with_ends = _with_ends(output.name, output.value, intervals[output.value], rows, column)
            if twice := [name for name in with_ends if name in columns]:
                raise UsageError(
                    f"two columns of the answer would be called {one_line(twice[0])}; rename one, such as with `as n`"
                )
            columns |= with_ends
    return pd.DataFrame(columns, index=pd.RangeIndex(len(rows)))


def _with_ends(
    name: str, number: Number, interval: Interval, rows: list[int], column: Callable[[int], Column]
) -> dict[str, Any]:
    """Return the columns of a number: the number itself, the ends of its interval, and its basis. Quantiles of dates are dates."""
    columns: dict[str, Any] = {
        name: interval.value[rows],
        name + _LOW: interval.low[rows],
        name + _HIGH: interval.high[rows],
    }
    if isinstance(number, Quantile) and (own := column(number.column)).is_moment:
        columns = {end: own.moments(places) for end, places in columns.items()}
    bases = interval.bases
    return columns | {name + _BASIS: pd.Series([str(bases[row]) for row in rows], dtype=object)}


def _series(values: list[Any]) -> pd.Series:
    """Return a column of keys in the type of its values: whole numbers stay whole, with or without nulls, and if they have many digits."""
    present = [value for value in values if value is not None]
    if present and all(type(value) is int and abs(value) < 1 << 63 for value in present):
        return pd.Series(values, dtype="int64" if len(present) == len(values) else "Int64")
    return pd.Series(values, dtype=None if present and isinstance(present[0], float) else object)


def _shown_groups(query: Query, numbers: Numbers, groups: Groups) -> list[int]:
    """Return the groups that a query shows, in their order."""
    truth = _filtered(query.having, numbers, groups.keys, len(groups.possible))
    rows = [int(row) for row in np.flatnonzero((truth == 2) & groups.possible)]
    for order in reversed(query.order):
        rows = _sorted(rows, _side(order.by, numbers, groups.keys), order)
    end = None if query.limit is None else query.offset + query.limit
    return rows[query.offset : end]


def _sorted(rows: list[int], values: Sequence[Any], order: Order) -> list[int]:
    nulls = [row for row in rows if _is_null(values[row])]
    present = [row for row in rows if not _is_null(values[row])]
    present.sort(key=lambda row: values[row], reverse=order.descending)
    return nulls + present if order.nulls_first else present + nulls


def _is_null(value: Any) -> bool:
    return value is None or value != value  # noqa: PLR0124  not a number


def _side(side: Any, numbers: Numbers, keys: Sequence[Sequence[Any]]) -> Sequence[Any]:
    return keys[side.position] if isinstance(side, KeyOf) else numbers[side].tolist()


def _filtered(having: Any, numbers: Numbers, keys: Sequence[Sequence[Any]], groups: int) -> npt.NDArray[np.int8]:
    """Return whether each group satisfies a filter: 0 for no, 1 for unknown, 2 for yes."""
    match having:
        case Always(truth):
            return np.full(groups, 2 if truth else 0, dtype=np.int8)
        case Not(part):
            return np.int8(2) - _filtered(part, numbers, keys, groups)
        case All(parts) | AnyOf(parts):
            truths = [_filtered(part, numbers, keys, groups) for part in parts]
            return np.asarray((np.minimum if isinstance(having, All) else np.maximum).reduce(truths))
    left = _side(having.left, numbers, keys)
    if having.operator == "is null":
        return np.array([2 * _is_null(value) for value in left], dtype=np.int8)
    right = _side(having.right, numbers, keys) if isinstance(having.right, Number) else [having.right] * groups
    compare = COMPARISONS[having.operator]
    return np.array(
        [
            1 if _is_null(value) or _is_null(limit) else 2 * compare(value, limit)
            for value, limit in zip(left, right, strict=True)
        ],
        dtype=np.int8,
    )


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as plain JSON values: dates as text, and null for what is missing or not finite.

    >>> plain_rows(pd.DataFrame({"day": [pd.Timestamp("2026-03-01")], "n": [float("inf")]}))
    [{'day': '2026-03-01', 'n': None}]
    """
    return [{str(name): _plain(value) for name, value in row.items()} for row in frame.to_dict("records")]


def _plain(value: Any) -> Any:
    if pd.isna(value) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, pd.Timestamp) and value == value.normalize():
        return value.date().isoformat()
    return value.isoformat() if hasattr(value, "isoformat") else value
