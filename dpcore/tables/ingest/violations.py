"""Apply the constraints of a universe to private rows: drop or repair each row that violates one, by that row alone.

Each row becomes at most one row, whatever the others hold. So the sensitivity of every count stays the same. How many rows violate a
constraint is as private as the rows, and is neither counted nor told.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpcore.universe import Attribute, Universe
from dpcore.universe.attribute import DROPPED
from dpcore.universe.constraints import Columns, Possible, Violations
from dpcore.universe.dependencies import Depends
from dpcore.universe.extremes import cell_intervals, drawn_extremes, fine_numbers, fine_places_from, fine_values
from dpcore.universe.fine_numbers import FineInteger
from dpcore.universe.finest import Finest
from dpcore.universe.leaves import Fine
from dpcore.universe.orders import Order
from dpcore.universe.places import SignedCodes
from dpcore.universe.sums import Sum

Rows = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _Table:
    """One table of a constraint, and what happens to rows that it excludes. The last column is the one that is repaired."""

    columns: Columns
    possible: Possible
    violations: Violations
    missing: int | None

    def repaired(self, codes: Mapping[str, SignedCodes], rows: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        """Return a possible code of the last column for each of these rows; -1 if there is none."""
        return self._repairs[tuple(codes[column][rows] for column in self.columns)]

    @cached_property
    def _repairs(self) -> npt.NDArray[np.int64]:
        """For every combination of codes, a possible code of the last column, given the others; -1 if there is none.

        It is the null, if the column has nulls and a null is possible; otherwise the nearest possible cell, of two equally near ones the
        lower.
        """
        size = self.possible.shape[-1]
        codes, far = np.arange(size), 3 * size
        below = np.maximum.accumulate(np.where(self.possible, codes, -far), axis=-1)
        above = np.minimum.accumulate(np.where(self.possible, codes, far)[..., ::-1], axis=-1)[..., ::-1]
        nearest = np.where(codes - below <= above - codes, below, above)
        found = np.where(self.possible.any(axis=-1, keepdims=True), nearest, DROPPED)
        if self.missing is not None:
            found = np.where(self.possible[..., self.missing, None], self.missing, found)
        return found

    def violated(self, codes: Mapping[str, SignedCodes]) -> Rows:
        """Tell which rows the table excludes. A row that is dropped already is not among them."""
        columns = [codes[column] for column in self.columns]
        known = np.logical_and.reduce([each >= 0 for each in columns])
        allowed: Rows = self.possible[tuple(np.where(known, each, 0) for each in columns)]
        return np.asarray(known & ~allowed)


@dataclass(frozen=True, eq=False)
class _OrderRule:
    """One column is at most another. Values are compared as finely as they are read, and cells by their extremes."""

    columns: Columns
    readers: tuple[Attribute, Attribute]
    violations: Violations

    def violated(self, codes: Mapping[str, SignedCodes]) -> Rows:
        """Tell which rows are not in order. A null is in every order."""
        low, high = (codes[column] for column in self.columns)
        return np.asarray(_read_numbers(self.readers[0], low)[0] > _read_numbers(self.readers[1], high)[1])

    def repaired(self, codes: Mapping[str, SignedCodes], rows: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        """Return the code of a null, if the higher column has nulls; otherwise of the lowest value in order, -1 if there is none."""
        reader = self.readers[1]
        if reader.missing_cell is not None:
            return np.full(len(rows), reader.missing_cell, dtype=np.int64)
        least = _read_numbers(self.readers[0], codes[self.columns[0]][rows])[0]
        if isinstance(reader, Finest):
            found = fine_places_from(reader.column, least, size=reader.cells)
        else:
            found = np.searchsorted(drawn_extremes(reader)[1], least).astype(np.int64)
        return np.where(found < reader.cells, found, DROPPED)


def _read_numbers(reader: Attribute, codes: SignedCodes) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the least and the greatest number that a code stands for; not a number without a declared cell."""
    inside = (codes >= 0) & (codes < reader.cells)
    known = np.where(inside, codes, 0).astype(np.int64)
    if isinstance(reader, Finest):
        exact = np.where(inside, fine_numbers(reader.column, known), np.nan)
        return exact, exact
    low, high = drawn_extremes(reader)
    return np.where(inside, low[known], np.nan), np.where(inside, high[known], np.nan)


@dataclass(frozen=True, eq=False)
class _SumRule:
    """One column, the last one, is the sum of the others. Values are added up as finely as they are read, and cells by their extremes."""

    columns: Columns
    readers: tuple[Attribute, ...]
    shift: int
    violations: Violations

    def violated(self, codes: Mapping[str, SignedCodes]) -> Rows:
        """Tell which rows do not add up. A row with a null adds up."""
        columns = [codes[column] for column in self.columns]
        known = np.logical_and.reduce(
            [(each >= 0) & (each < reader.cells) for reader, each in zip(self.readers, columns, strict=True)]
        )
        least, most = self._sums(columns[:-1])
        low, high = _read_places(self.readers[-1], columns[-1])
        return np.asarray(known & ((least > high) | (most < low)))

    def repaired(self, codes: Mapping[str, SignedCodes], rows: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        """Return the code of a null, if the total has nulls; otherwise of the nearest value that adds up, -1 if there is none."""
        reader = self.readers[-1]
        if reader.missing_cell is not None:
            return np.full(len(rows), reader.missing_cell, dtype=np.int64)
        *terms, total = (codes[column][rows] for column in self.columns)
        wanted = np.clip(_read_places(reader, total)[0], *self._sums(terms))
        if isinstance(reader, Finest):
            found = wanted - _first_place(reader)
            return np.where((found >= 0) & (found < reader.cells), found, DROPPED)
        start, stop = cell_intervals(reader)
        found = np.searchsorted(start, wanted, side="right") - 1
        return np.where((found >= 0) & (wanted < stop[-1]), found, DROPPED)

    def _sums(self, terms: Sequence[SignedCodes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the least and the greatest sum of the terms, as places of the total."""
        ends = [_read_places(reader, each) for reader, each in zip(self.readers[:-1], terms, strict=True)]
        least, most = (np.add.reduce(list(each)) + self.shift for each in zip(*ends, strict=True))
        return least, most


def _read_places(reader: Attribute, codes: SignedCodes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the first and the last place that a code stands for. Without a declared cell, that of the first one, which nobody reads."""
    known = np.where((codes >= 0) & (codes < reader.cells), codes, 0).astype(np.int64)
    if isinstance(reader, Finest):
        places = known + _first_place(reader)
        return places, places
    start, stop = cell_intervals(reader)
    return start[known], stop[known] - 1


def _first_place(reader: Finest) -> int:
    """Return the place of the lowest value, counted as `spread_of` counts: integers are their own places."""
    return reader.column.minimum if isinstance(reader.column, FineInteger) else 0


_Rule = _Table | _OrderRule | _SumRule


@dataclass(frozen=True, eq=False)
class Rules:
    """The constraints of a universe, as rules for private rows.

    Attributes:
        attributes: The columns that constraints name.
        rules: What is possible, in the order of the spec.
    """

    attributes: Mapping[str, Attribute]
    rules: tuple[_Rule, ...]

    @classmethod
    def of(cls, universe: Universe) -> "Rules | None":
        """Return the rules of a universe; None if it has no constraints."""
        rules: list[_Rule] = []
        for constraint in universe.constraints:
            if isinstance(constraint, Depends):
                continue  # how rows are read must not depend on what a run has learned
            if isinstance(constraint, Order):
                low, high = (_reader(universe.attributes[column]) for column in constraint.columns)
                rules.append(_OrderRule(constraint.columns, (low, high), constraint.violations))
                continue
            if isinstance(constraint, Sum):
                readers = tuple(_reader(universe.attributes[column]) for column in constraint.columns)
                shift = constraint.shift(universe.attributes)
                rules.append(_SumRule(constraint.columns, readers, shift, constraint.violations))
                continue
            for columns, possible in constraint.tables(universe.attributes):
                missing = universe.attributes[columns[-1]].missing_cell
                rules.append(_Table(columns, possible, constraint.violations, missing))
        named = {column: universe.attributes[column] for rule in rules for column in rule.columns}
        return cls(named, tuple(rules)) if rules else None

    def read(self, batch: pa.RecordBatch, universe: Universe) -> dict[str, SignedCodes]:
        """Encode the columns that constraints name, by the cells of a universe. Rows to drop get -1.

        Row-wise and total: never raises or logs.
        """
        codes = {name: _reader(attribute).encode(batch.column(name)) for name, attribute in self.attributes.items()}
        before = dict(codes)
        for rule in self.rules:
            rows = np.flatnonzero(rule.violated(codes))
            if len(rows):
                last = rule.columns[-1]
                changed = rule.repaired(codes, rows) if rule.violations is Violations.REPAIR else DROPPED
                codes[last] = codes[last].copy()
                codes[last][rows] = changed
        for rule in self.rules:  # a repair may violate another constraint
            left = rule.violated(codes)
            if left.any():
                last = rule.columns[-1]
                codes[last] = np.where(left, DROPPED, codes[last]).astype(codes[last].dtype)
        return {
            name: self._in_cells(name, each, np.flatnonzero(each != before[name]), batch, universe)
            for name, each in codes.items()
        }

    def _in_cells(
        self,
        name: str,
        codes: SignedCodes,
        changed: npt.NDArray[np.intp],
        batch: pa.RecordBatch,
        universe: Universe,
    ) -> SignedCodes:
        """Return a column's codes in the cells of a universe, which at full resolution differ from pass to pass."""
        own, target = self.attributes[name], universe.attributes.get(name)
        if not isinstance(own, Fine) or target is None:
            return codes
        cells = target.encode(batch.column(name))
        dropped, repaired = changed[codes[changed] < 0], changed[codes[changed] >= 0]
        inside = codes[repaired] < _reader(own).cells
        values = fine_values(own, np.where(inside, codes[repaired], 0))
        cells[repaired] = target.encode(pc.if_else(pa.array(inside), values, pa.scalar(None, type=values.type)))
        cells[dropped] = DROPPED
        return cells


def _reader(attribute: Attribute) -> Attribute:
    """Return a column with the finest cells that its values are read into."""
    return Finest.of(attribute) if isinstance(attribute, Fine) else attribute
