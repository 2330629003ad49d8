"""The private table of a session: read once by a process, when it first buys an answer, and only if it is the table of the first release."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dpcore.curator.curator import Curator
from dpcore.errors import TableChanged, UsageError
from dpcore.ledger import Lease
from dpcore.marginals.resolutions import Groups
from dpcore.marginals.workload import Axes
from dpcore.runs.reading import Table, coding_of
from dpcore.session.purchase import Purchase
from dpcore.session.values import Values
from dpcore.spec import Declaration
from dpcore.tables.histogram import Histogram
from dpcore.tables.ingest import Coding, Versioned
from dpcore.universe import Universe


@dataclass(frozen=True, eq=False)
class _Counted:
    """The counts of a table, with the axes that were added for classes of cells."""

    histogram: Histogram
    shape: tuple[int, ...]
    added: dict[tuple[int, bytes], int] = field(default_factory=dict)

    def axis(self, curator: Curator, column: int, groups: Groups) -> int:
        """Return the axis for classes of a column. The curator adds it, unless it is there."""
        if np.array_equal(groups, np.arange(self.shape[column])):
            return column
        name = (column, groups.tobytes())
        if name not in self.added:
            curator.coarsen(column, groups)
            self.added[name] = len(self.shape) + len(self.added)  # only now: the curator may have failed
        return self.added[name]


class SessionTable:
    """Reads the table that a spec declares, for a session that began with a release of it.

    Args:
        declaration: The declaration, with the limit on rows per unit that the release has.
        table: A table to read instead of the spec's `source`.
    """

    def __init__(self, declaration: Declaration, *, table: Any = None) -> None:
        self._declaration = declaration
        self._given_table = table
        self._counted: dict[int | None, _Counted] = {}
        self._changed = False

    @cached_property
    def _table(self) -> Table:
        """The table, which is looked for when it is first needed: what is free needs none."""
        return Table.of(self._declaration, self._given_table)

    def version(self, run_id: str) -> str:
        """Return the version of the data, as a run with this id would record it."""
        declaration = self._declaration
        if not declaration.descents():
            return str(self._records(declaration.universe, run_id).version)
        coding = self._coding(declaration.universe)
        self._table.connect(coding)
        fingerprint = self._table.fingerprint(run_id)
        return self._table.version(coding, undecided=declaration.descents(), fingerprint=fingerprint)

    def read(self, universe: Universe, values: Values | None = None, *, run_id: str, version: str) -> None:
        """Read and count the table, unless that is done. Raise if it is not the version that the run with this id has read.

        Args:
            universe: The cells of the release.
            values: A column to read in finer cells. Of such columns, only the last one is kept.
            run_id: The run.
            version: The version that it has read.

        Raises:
            SourceError: If the table cannot be read.
            TableChanged: If it has changed since.
        """
        column = None if values is None else values.column
        if column in self._counted:
            return
        if not self._changed:
            if values is not None:
                universe = Universe({**universe.attributes, universe.names[values.column]: values.attribute})
            records = self._records(universe, run_id)
            as_declared = values is None and not self._declaration.descents()
            self._changed = version != (records.version if as_declared else self.version(run_id))
        if self._changed:
            raise TableChanged(
                "the table is not the one that this session began with, so nothing can be bought; close the session, and open a new one: "
                "dpflow session open SPEC"
            )
        self._counted = {place: counted for place, counted in self._counted.items() if place is None}
        self._counted[column] = _Counted(self._table.engine.count(records, universe), universe.shape)

    def hand_to(self, curator: Curator, purchase: Purchase, *, lease: Lease, analyst: str | None) -> Axes:
        """Hand the counts to a curator who charges an analyst, with axes for the classes of a purchase. Return these axes.

        The column whose sums are bought comes last, in its finer cells.
        """
        values, grid = purchase.values, purchase.grid
        counted = self._counted.get(None if values is None else values.column)
        if counted is None:
            raise UsageError("the table was not read yet; report this")
        curator.receive(counted.histogram, lease=lease, analyst=analyst)
        axes = [
            counted.axis(curator, column, groups)
            for column, groups in zip(grid.columns, grid.groups, strict=True)
            if values is None or column != values.column
        ]
        return tuple(axes) if values is None else (*axes, values.column)

    def close(self) -> None:
        """Forget the table, and close its cluster if it has one."""
        self._counted = {}
        if "_table" in vars(self):
            self._table.engine.close()

    def _records(self, universe: Universe, run_id: str) -> Versioned:
        """Read the rows as the run of the first release has read them, with the columns in the cells of a universe."""
        self._table.connect(self._coding(self._declaration.universe))
        return self._table.read(self._coding(universe), fingerprint=self._table.fingerprint(run_id))

    def _coding(self, universe: Universe) -> Coding:
        return coding_of(self._declaration, universe, window=None)
