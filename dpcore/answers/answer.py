"""Answer a question about a release as a table."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpcore.answers.evaluate import Prepared
from dpcore.answers.intervals import Interval, Intervals, checked_level
from dpcore.answers.query import All, Always, AnyOf, KeyOf, Not, Number, Order, Output, Quantile, Query
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


def frame_of(prepared: Prepared, found: Mapping[Number, Interval]) -> pd.DataFrame:
    """Return the numbers of a query as a table: its columns, filtered, sorted and limited."""
    return framed(prepared, found, keys=key_columns(prepared), highs=high_columns(prepared))


class Asked(Protocol):
    """A query with its number of groups, and how the days and moments of its columns are shown."""

    @property
    def query(self) -> Query: ...  # noqa: D102

    @property
    def groups(self) -> int: ...  # noqa: D102

    @property
    def possible(self) -> npt.NDArray[np.bool_]: ...  # noqa: D102

    def is_moment(self, column: int) -> bool: ...  # noqa: D102

    def moments(self, column: int, places: Weights) -> npt.NDArray[np.datetime64]: ...  # noqa: D102


def framed(
    prepared: Asked, found: Mapping[Number, Interval], *, keys: Sequence[list[Any]], highs: Sequence[list[Any]]
) -> pd.DataFrame:
    """Return the numbers of a query as a table, given the value of each key in every group, and the end of its interval."""
    query = prepared.query
    numbers = {number: each.value for number, each in found.items()}
    rows = shown_groups(prepared, numbers, keys)
    columns: dict[str, Any] = {}
    for output in query.outputs:
        if isinstance(output.value, KeyOf):
            key = query.keys[output.value.position]
            columns[output.name] = _series([keys[output.value.position][row] for row in rows])
            if key.high is not None:
                columns[key.high] = _series([highs[output.value.position][row] for row in rows])
        else:
            columns |= _with_ends(prepared, output, found[output.value], rows, taken=columns)
    return pd.DataFrame(columns, index=pd.RangeIndex(len(rows)))


def _with_ends(
    prepared: Asked, output: Output, found: Interval, rows: list[int], *, taken: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the columns of a number: the number itself, the ends of its interval, and its basis."""
    named = dict(zip(("", _LOW, _HIGH), (found.value, found.low, found.high), strict=True))
    columns = {output.name + ending: _shown(prepared, output.value, values[rows]) for ending, values in named.items()}
    bases = found.bases
    columns[output.name + _BASIS] = pd.Series([str(bases[row]) for row in rows], dtype=object)
    if twice := [name for name in columns if name in taken]:
        raise UsageError(
            f"two columns of the answer would be called {one_line(twice[0])}; rename one, such as with `as n`"
        )
    return columns


def key_columns(prepared: Prepared) -> list[list[Any]]:
    """Return the value of each key in every group."""
    return [_spread_out(prepared, at, keys.values) for at, keys in enumerate(prepared.keys)]


def high_columns(prepared: Prepared) -> list[list[Any]]:
    """Return the end of the interval of each key in every group."""
    return [_spread_out(prepared, at, keys.highs) for at, keys in enumerate(prepared.keys)]


def _spread_out(prepared: Prepared, key: int, values: Sequence[Any]) -> list[Any]:
    codes = np.unravel_index(np.arange(prepared.groups), prepared.shape)[key]
    return [values[code] for code in codes.tolist()]


def _series(values: list[Any]) -> pd.Series:
    """Return a column of keys in the type of its values: whole numbers stay whole, with or without nulls, and if they have many digits."""
    present = [value for value in values if value is not None]
    if present and all(type(value) is int and abs(value) < 1 << 63 for value in present):
        return pd.Series(values, dtype="int64" if len(present) == len(values) else "Int64")
    return pd.Series(values, dtype=None if present and isinstance(present[0], float) else object)


def _shown(prepared: Asked, number: Number | KeyOf, values: Weights) -> Any:
    """Return numbers as they are shown: quantiles of dates as dates."""
    if isinstance(number, Quantile) and prepared.is_moment(number.column):
        return prepared.moments(number.column, values)
    return values


def shown_groups(prepared: Asked, numbers: Numbers, keys: Sequence[Sequence[Any]]) -> list[int]:
    """Return the groups that a query shows, in their order."""
    query = prepared.query
    truth = _filtered(query.having, numbers, keys, prepared.groups)
    rows = [int(row) for row in np.flatnonzero((truth == 2) & prepared.possible)]
    for order in reversed(query.order):
        values = _side(order.by, numbers, keys)
        rows = _sorted(rows, values, order)
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
            every = [_filtered(part, numbers, keys, groups) for part in parts]
            return np.asarray((np.minimum if isinstance(having, All) else np.maximum).reduce(every))
    left = _side(having.left, numbers, keys)
    if having.operator == "is null":
        return np.array([2 * _is_null(value) for value in left], dtype=np.int8)
    right = _side(having.right, numbers, keys) if isinstance(having.right, Number) else [having.right] * groups
    return np.array(
        [_compared(one, having.operator, other) for one, other in zip(left, right, strict=True)], dtype=np.int8
    )


def _compared(left: Any, operator: str, right: Any) -> int:
    if _is_null(left) or _is_null(right):
        return 1
    checks = {
        "=": lambda: left == right,
        "<>": lambda: left != right,
        "<": lambda: left < right,
        "<=": lambda: left <= right,
        ">": lambda: left > right,
        ">=": lambda: left >= right,
    }
    return 2 * bool(checks[operator]())
