"""The expected error of every count of columns, pairs and measured marginals: the table of `errors.parquet`.

Each row is a count of the release's model, with the keys by which it is joined with the released rows, and how far it may be from the truth.
The figures are those that `dpflow answer` gives for the same counts.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.answers.intervals import Interval, Intervals
from dpcore.answers.query import Cells, Count, Key, Output, Query, Term
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.models.model import Weights
from dpcore.release.keys import keyed_schema, keyed_table, keys_by_axis
from dpcore.universe import Universe

LEVEL = 0.95
MOST_CELLS_EACH, MOST_CELLS, MOST_MARGINALS = 1 << 16, 1 << 20, 1000
"""Larger marginals, and those beyond these numbers, are left out. Their counts can still be asked for one by one."""

EXPECTED_OF_HALF = math.sqrt(2 / math.pi) / NormalDist().inv_cdf((1 + LEVEL) / 2)
"""The expected error as a share of the half width, if errors are normal."""

_FIELDS = (
    pa.field("attributes", pa.list_(pa.string())),
    pa.field("count", pa.float32()),
    pa.field("low", pa.float32()),
    pa.field("high", pa.float32()),
    pa.field("half_width", pa.float32()),
    pa.field("expected_error", pa.float32()),
    pa.field("basis", pa.dictionary(pa.int8(), pa.string())),
)
_NAMES = tuple(field.name for field in _FIELDS)


@dataclass(frozen=True, eq=False)
class CountErrors:
    """The counts of a marginal by the values of its columns, and their errors.

    Attributes:
        axes: The columns.
        cells: For each column, the first cell of each of its values. All cells without a value are one.
        interval: The counts, flat, and their intervals.
    """

    axes: Axes
    cells: tuple[npt.NDArray[np.intp], ...]
    interval: Interval

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values of each column."""
        return tuple(map(len, self.cells))

    @property
    def counts(self) -> Weights:
        """The counts, flat."""
        return self.interval.value

    @property
    def half_widths(self) -> Weights:
        """Half the length of each interval, which ends at 0 where a count cannot be lower."""
        return np.asarray((self.interval.high - self.interval.low) / 2)

    @property
    def expected(self) -> Weights:
        """The expected absolute error of each count."""
        return self.half_widths * EXPECTED_OF_HALF

    @property
    def share(self) -> float:
        """All expected errors together, as a share of the rows: what `reporting.ratings.rate` rates."""
        return float(self.expected.sum() / max(self.counts.sum(), 1.0))


def errors_of(intervals: Intervals, universe: Universe, axes: Axes) -> CountErrors:
    """Return the errors of a marginal's counts."""
    attributes = list(universe.attributes.values())
    keys = [Key(str(axis), Term(axis, Cells() if attributes[axis].ordered else None)) for axis in axes]
    query = Query((Output("count", Count()),), keys=tuple(keys))
    prepared, answered = intervals.of(query, level=LEVEL)
    first = [np.unique(key.of_piece, return_index=True)[1] for key in prepared.keys]
    cells = tuple(prepared.column(axis).cell[pieces] for axis, pieces in zip(axes, first, strict=True))
    return CountErrors(axes, cells, answered[Count()])


def listed_marginals(universe: Universe, sets: Iterable[Axes]) -> tuple[tuple[Axes, ...], tuple[Axes, ...]]:
    """Return the marginals whose errors are listed, and those of `sets` that are left out.

    Every column is listed, and then the sets, those of few columns and cells first.

    >>> from dpcore.universe import Boolean, Integer
    >>> wide = Universe({"a": Boolean(), "b": Integer(minimum=0, maximum=299), "c": Integer(minimum=0, maximum=299)})
    >>> listed_marginals(wide, [(1, 2), (0, 2), (0,), (0, 1)])
    (((0,), (1,), (2,), (0, 1), (0, 2)), ((1, 2),))
    """
    shape = universe.shape
    columns: list[Axes] = [(axis,) for axis in range(len(shape))]
    sizes = {axes: math.prod(shape[axis] for axis in axes) for axes in (*columns, *sets)}
    listed: list[Axes] = []
    left_out: list[Axes] = []
    cells = 0
    for axes in sorted(sizes, key=lambda axes: (len(axes), sizes[axes] if len(axes) > 1 else 0, axes)):
        size = sizes[axes]
        if size <= MOST_CELLS_EACH and cells + size <= MOST_CELLS and len(listed) < MOST_MARGINALS:
            listed.append(axes)
            cells += size
        else:
            left_out.append(axes)
    return tuple(listed), tuple(left_out)


def errors_schema(universe: Universe) -> pa.Schema:
    """Return the schema: the attributes, the count, its errors and basis, and the keys of every column of the universe."""
    return keyed_schema(_FIELDS, universe)


def errors_table(universe: Universe, marginals: Iterable[CountErrors]) -> pa.Table:
    """Return the table of some marginals, one after the other."""
    schema = errors_schema(universe)
    keys = keys_by_axis(universe, Resolutions(universe.shape), taken=_NAMES)
    tables = [_table(errors, universe.names, keys, schema) for errors in marginals]
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks() if tables else schema.empty_table()


def _table(
    errors: CountErrors, names: Sequence[str], keys: Callable[[int], Mapping[str, pa.Array]], schema: pa.Schema
) -> pa.Table:
    count, interval = len(errors.counts), errors.interval
    codes = np.unravel_index(np.arange(count), errors.shape)
    own = [names[axis] for axis in errors.axes]
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * len(own))
    columns: dict[str, pa.Array] = {
        "attributes": pa.ListArray.from_arrays(offsets, pa.array(own * count, pa.string())),
        "count": _rounded(interval.value),
        "low": _rounded(interval.low),
        "high": _rounded(interval.high),
        "half_width": _rounded(errors.half_widths),
        "expected_error": _rounded(errors.expected),
        "basis": pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), pa.array([str(interval.basis)])),
    }
    for axis, cells, code in zip(errors.axes, errors.cells, codes, strict=True):
        columns |= {name: key.take(pa.array(cells[code])) for name, key in keys(axis).items()}
    return keyed_table(columns, schema, count=count)


def _rounded(counts: Weights) -> pa.Array:
    """Round to sixteenths of a row, which are far below any noise, so that the file is small."""
    return pa.array((np.rint(counts * 16) / 16).astype(np.float32))
