"""The expected error of every count of a workload: the table of `errors.parquet`.

Each row is a count of the release's model, with the keys by which it is joined with the released rows, and how far it may be from the truth.
The figures are those that `dpflow answer` gives for the same counts.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.answers.intervals import Basis, Intervals
from dpcore.answers.query import Cells, Count, Key, Output, Query, Term
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes, Workload
from dpcore.models.model import Weights
from dpcore.release.keys import Keys, key_fields
from dpcore.universe import Universe

LEVEL = 0.95
MOST_CELLS_EACH, MOST_CELLS, MOST_MARGINALS = 1 << 16, 1 << 20, 1000
"""Larger marginals, and those beyond these numbers, are left out. Their counts can still be asked for one by one."""

EXPECTED_OF_HALF = math.sqrt(2 / math.pi) / NormalDist().inv_cdf((1 + LEVEL) / 2)
"""The expected error as a share of the half width, if errors are normal."""

PARTS_OF_A_ROW = 16
_FIELDS = (
    pa.field("attributes", pa.list_(pa.string())),
    pa.field("count", pa.float32()),
    pa.field("low", pa.float32()),
    pa.field("high", pa.float32()),
    pa.field("half_width", pa.float32()),
    pa.field("expected_error", pa.float32()),
    pa.field("basis", pa.dictionary(pa.int8(), pa.string())),
)
_NAMES = tuple(each.name for each in _FIELDS)


@dataclass(frozen=True, eq=False)
class CountErrors:
    """The counts of a marginal by the values of its columns, and their errors.

    Attributes:
        axes: The columns.
        cells: For each column, the first cell of each of its values. All cells without a value are one.
        counts: The counts, flat.
        low: The lower end of each count's interval.
        high: The upper end.
        basis: What the counts are based on.
    """

    axes: Axes
    cells: tuple[npt.NDArray[np.intp], ...]
    counts: Weights
    low: Weights
    high: Weights
    basis: Basis

    @property
    def half_widths(self) -> Weights:
        """Half the length of each interval, which ends at 0 where a count cannot be lower."""
        found: Weights = (self.high - self.low) / 2
        return found

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
    prepared, found = intervals.of(query, level=LEVEL)
    (interval,) = found.values()
    cells = []
    for axis, key in zip(axes, prepared.keys, strict=True):
        _, first = np.unique(key.of_piece, return_index=True)
        cells.append(prepared.column(axis).cell[first])
    return CountErrors(axes, tuple(cells), interval.value, interval.low, interval.high, interval.basis)


def listed_marginals(universe: Universe, workload: Workload) -> tuple[tuple[Axes, ...], tuple[Axes, ...]]:
    """Return the marginals whose errors are listed, and those of the workload that are left out.

    Every column is listed, and then the workload's marginals, those of few columns and cells first.

    >>> from dpcore.universe import Boolean, Integer
    >>> wide = Universe({"a": Boolean(), "b": Integer(minimum=0, maximum=299), "c": Integer(minimum=0, maximum=299)})
    >>> listed_marginals(wide, Workload.all_of(attributes=3, order=2))
    (((0,), (1,), (2,), (0, 1), (0, 2)), ((1, 2),))
    """
    shape = universe.shape
    sizes = {axes: math.prod(shape[axis] for axis in axes) for axes in workload.marginals}
    wanted: list[Axes] = [(axis,) for axis in range(len(shape))]
    wanted += sorted((axes for axes in sizes if len(axes) > 1), key=lambda axes: (len(axes), sizes[axes]))
    kept: list[Axes] = []
    left_out: list[Axes] = []
    cells = 0
    for axes in wanted:
        size = math.prod(shape[axis] for axis in axes)
        if size <= MOST_CELLS_EACH and cells + size <= MOST_CELLS and len(kept) < MOST_MARGINALS:
            kept.append(axes)
            cells += size
        else:
            left_out.append(axes)
    return tuple(kept), tuple(left_out)


def errors_schema(universe: Universe) -> pa.Schema:
    """Return the schema: the attributes, the count, its errors and basis, and the keys of every column of the universe."""
    return pa.schema([*_FIELDS, *key_fields(universe, taken=_NAMES)])


def errors_table(universe: Universe, found: Iterable[CountErrors]) -> pa.Table:
    """Return the table of some marginals, one after the other."""
    keys, schema = Keys(universe, Resolutions(universe.shape), taken=_NAMES), errors_schema(universe)
    tables = [_table(each, universe.names, keys, schema) for each in found]
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks() if tables else schema.empty_table()


def _table(found: CountErrors, names: Sequence[str], keys: Keys, schema: pa.Schema) -> pa.Table:
    count = len(found.counts)
    codes = np.unravel_index(np.arange(count), [len(each) for each in found.cells])
    named = [names[axis] for axis in found.axes]
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * len(named))
    columns: dict[str, pa.Array] = {
        "attributes": pa.ListArray.from_arrays(offsets, pa.array(named * count, pa.string())),
        "count": _rounded(found.counts),
        "low": _rounded(found.low),
        "high": _rounded(found.high),
        "half_width": _rounded(found.half_widths),
        "expected_error": _rounded(found.expected),
        "basis": pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), pa.array([str(found.basis)])),
    }
    for axis, cells, code in zip(found.axes, found.cells, codes, strict=True):
        columns |= {name: each.take(pa.array(cells[code])) for name, each in keys.of_axis(axis).items()}
    arrays = [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in schema]
    return pa.table(arrays, schema=schema)


def _rounded(counts: Weights) -> pa.Array:
    """Round to parts of a row, which are far below any noise, so that the file is small."""
    return pa.array((np.rint(counts * PARTS_OF_A_ROW) / PARTS_OF_A_ROW).astype(np.float32))
