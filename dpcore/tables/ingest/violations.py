"""Apply the constraints of a universe to private rows: drop or repair each row that violates one, by that row alone.

Each row becomes at most one row, whatever the others hold. So the sensitivity of every count stays the same. How many rows violate a
constraint is as private as the rows, and is neither counted nor told.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpcore.tables.reading.encoding import encode
from dpcore.tables.reading.finest import Finest
from dpcore.tables.reading.places import SignedCodes
from dpcore.universe import Attribute, Universe
from dpcore.universe.attribute import DROPPED
from dpcore.universe.constraints import Columns, Comparison, Possible, Values, Violations
from dpcore.universe.dependencies import Depends
from dpcore.universe.extremes import fine_values
from dpcore.universe.leaves import Fine

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
        repairs = np.where(self.possible.any(axis=-1, keepdims=True), nearest, DROPPED)
        if self.missing is not None:
            repairs = np.where(self.possible[..., self.missing, None], self.missing, repairs)
        return repairs

    def violated(self, codes: Mapping[str, SignedCodes]) -> Rows:
        """Tell which rows the table excludes. A row that is dropped already is not among them."""
        columns = [codes[column] for column in self.columns]
        inside = np.logical_and.reduce([column >= 0 for column in columns])
        allowed: Rows = self.possible[tuple(np.where(inside, column, 0) for column in columns)]
        return np.asarray(inside & ~allowed)


@dataclass(frozen=True, eq=False)
class _Compared:
    """A constraint of values, which are compared as finely as they are read, and in bins by the lowest and the highest drawn value."""

    constraint: Comparison
    attributes: Mapping[str, Attribute]

    @property
    def columns(self) -> Columns:
        return self.constraint.columns

    @property
    def violations(self) -> Violations:
        return self.constraint.violations

    def violated(self, codes: Mapping[str, SignedCodes]) -> Rows:
        """Tell which rows violate the constraint. A row with a null does not."""
        inside = [
            (codes[column] >= 0) & (codes[column] < _reader(self.attributes[column]).cells) for column in self.columns
        ]
        low, high = self._ends(codes, slice(None))
        return np.asarray(np.logical_and.reduce(inside)) & ~self.constraint.allows(low, high, self.attributes)

    def repaired(self, codes: Mapping[str, SignedCodes], rows: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        """Return the code of a null, if the last column has nulls; otherwise of the nearest value that is allowed, -1 if there is none."""
        last = self.attributes[self.columns[-1]]
        reader = _reader(last)
        if reader.missing_cell is not None:
            return np.full(len(rows), reader.missing_cell, dtype=np.int64)
        low, high = self._ends(codes, rows)
        nearest = np.clip(low[-1], *self.constraint.range(low[:-1], high[:-1], self.attributes))
        if isinstance(last, Fine):
            found = self.constraint.code_from(last, nearest)
            return np.where((found >= 0) & (found < reader.cells), found, DROPPED)
        starts, ends = self.constraint.cell_ends(last)
        found = np.searchsorted(ends, nearest)
        return np.where((found < reader.cells) & (nearest >= starts[0]), found, DROPPED)

    def _ends(
        self, codes: Mapping[str, SignedCodes], rows: npt.NDArray[np.intp] | slice
    ) -> tuple[list[Values], list[Values]]:
        """Return what the lowest and the highest value that each code stands for are compared by. Where there is none, nobody reads it."""
        low, high = [], []
        for column in self.columns:
            attribute, own = self.attributes[column], codes[column][rows].astype(np.int64)
            cells = np.where((own >= 0) & (own < _reader(attribute).cells), own, 0)
            if isinstance(attribute, Fine):
                exact = self.constraint.measured(attribute, cells + attribute.first_place)
                least, most = exact, exact
            else:
                least, most = (ends[cells] for ends in self.constraint.cell_ends(attribute))
            low.append(least)
            high.append(most)
        return low, high


_Rule = _Table | _Compared


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
            if isinstance(constraint, Comparison):
                rules.append(_Compared(constraint, universe.attributes))
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
        codes = {name: encode(_reader(attribute), batch.column(name)) for name, attribute in self.attributes.items()}
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
            name: self._in_cells(name, column, np.flatnonzero(column != before[name]), batch, universe)
            for name, column in codes.items()
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
        cells = encode(target, batch.column(name))
        dropped, repaired = changed[codes[changed] < 0], changed[codes[changed] >= 0]
        inside = codes[repaired] < _reader(own).cells
        values = fine_values(own, np.where(inside, codes[repaired], 0))
        cells[repaired] = encode(target, pc.if_else(pa.array(inside), values, pa.scalar(None, type=values.type)))
        cells[dropped] = DROPPED
        return cells


def _reader(attribute: Attribute) -> Attribute:
    """Return a column with the finest cells that its values are read into."""
    return Finest.of(attribute) if isinstance(attribute, Fine) else attribute
