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

from dpcore.universe import Attribute, Universe
from dpcore.universe.attribute import DROPPED
from dpcore.universe.constraints import Columns, Possible, Violations
from dpcore.universe.places import SignedCodes

Rows = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _Table:
    """One table of a constraint, and what happens to rows that it excludes. The last column is the one that is repaired."""

    columns: Columns
    possible: Possible
    violations: Violations
    missing: int | None

    @cached_property
    def repaired(self) -> npt.NDArray[np.int64]:
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
        return known & ~allowed


@dataclass(frozen=True, eq=False)
class Rules:
    """The constraints of a universe, as rules for private rows.

    Attributes:
        attributes: The columns that constraints name, as they are read.
        tables: What is possible, in the order of the spec.
    """

    attributes: Mapping[str, Attribute]
    tables: tuple[_Table, ...]

    @classmethod
    def of(cls, universe: Universe) -> "Rules | None":
        """Return the rules of a universe; None if it has no constraints."""
        tables = [
            _Table(columns, possible, constraint.violations, universe.attributes[columns[-1]].missing_cell)
            for constraint in universe.constraints
            for columns, possible in constraint.tables(universe.attributes)
        ]
        named = {column: universe.attributes[column] for table in tables for column in table.columns}
        return cls(named, tuple(tables)) if tables else None

    def read(self, batch: pa.RecordBatch) -> dict[str, SignedCodes]:
        """Encode the columns that constraints name. Rows to drop get -1. Row-wise and total: never raises or logs."""
        codes = {name: attribute.encode(batch.column(name)) for name, attribute in self.attributes.items()}
        for table in self.tables:
            rows = np.flatnonzero(table.violated(codes))
            if len(rows):
                last = table.columns[-1]
                codes[last] = codes[last].copy()
                codes[last][rows] = self._repaired(table, codes, rows) if table.violations is Violations.REPAIR else DROPPED
        # A repair may violate another constraint.
        for table in self.tables:
            left = table.violated(codes)
            if left.any():
                last = table.columns[-1]
                codes[last] = np.where(left, DROPPED, codes[last]).astype(codes[last].dtype)
        return codes

    @staticmethod
    def _repaired(table: _Table, codes: Mapping[str, SignedCodes], rows: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        return table.repaired[tuple(codes[column][rows] for column in table.columns)]
