"""The private table of a session: read once by a process, when it first buys an answer, and only if it is the table of the first release."""

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from dpcore.curator.curator import Curator
from dpcore.errors import TableChanged, UsageError
from dpcore.ledger import Lease
from dpcore.marginals.workload import Axes
from dpcore.models.lifted import Grid
from dpcore.places import places_of_spec
from dpcore.spec import Declaration
from dpcore.tables.cluster import connected
from dpcore.tables.engines import Engine, engine_for
from dpcore.tables.histogram import Histogram
from dpcore.tables.ingest import Coding, Draws, Fingerprint, Source, fingerprint_key
from dpcore.tables.ingest.violations import Rules
from dpcore.tables.sources.source import check_columns, check_types
from dpcore.universe import Universe


class SessionTable:
    """Reads the table that a spec declares, for a session that began with a release of it.

    Args:
        declaration: The declaration, with the limit on rows per unit that the release has.
        table: A table to read instead of the spec's `source`.
    """

    def __init__(self, declaration: Declaration, *, table: Any = None) -> None:
        self._declaration = declaration
        self._table = table
        self._private = places_of_spec(declaration.path).private
        self._counted: Histogram | None = None
        self._changed = False
        self._axes: dict[tuple[int, bytes], int] = {}

    @cached_property
    def _source(self) -> Source:
        """The table, which is looked for when it is first needed: what is free needs none."""
        if self._table is not None:
            return Source.of(self._table)
        return Source.locate(self._declaration.spec.source, base=self._declaration.path.parent)

    @cached_property
    def _engine(self) -> Engine:
        return engine_for(self._declaration.spec.engine, source=self._source, connect=connected)

    def version(self, run_id: str) -> str:
        """Return the version of the data, as a run with this id would record it."""
        declaration = self._declaration
        self._engine.connect()
        coding = self._coding(declaration.universe)
        self._check(coding)
        undecided = declaration.descents()
        fingerprint = Fingerprint.of_run(run_id, key=fingerprint_key(self._private))
        if undecided:
            return self._engine.version(self._source, coding=coding, undecided=undecided, fingerprint=fingerprint)
        draws = Draws.fresh(unit_key=fingerprint.unit_key())
        records = self._engine.read(self._source, coding=coding, draws=draws, fingerprint=fingerprint)
        return str(records.version)

    def read(self, universe: Universe, *, run_id: str, version: str) -> None:
        """Read and count the table, unless that is done. Raise if it is not the version that the run with this id has read.

        Raises:
            SourceError: If the table cannot be read.
            TableChanged: If it has changed since.
        """
        if self._counted is not None:
            return
        if self._changed:
            raise _other_table()
        coding = self._coding(universe)
        self._engine.connect()
        self._check(replace(coding, universe=self._declaration.universe))
        fingerprint = Fingerprint.of_run(run_id, key=fingerprint_key(self._private))
        draws = Draws.fresh(unit_key=fingerprint.unit_key())
        records = self._engine.read(self._source, coding=coding, draws=draws, fingerprint=fingerprint)
        found = self.version(run_id) if self._declaration.descents() else records.version
        if found != version:
            self._changed = True
            raise _other_table()
        self._counted = self._engine.count(records, universe)
        self._universe = universe

    def hand_to(self, curator: Curator, grid: Grid, *, lease: Lease, analyst: str | None) -> Axes:
        """Hand the counts to a curator who charges an analyst, with axes for the classes of a grid. Return these axes."""
        if self._counted is None:
            raise UsageError("the table was not read yet; report this")
        curator.receive(self._counted, lease=lease, analyst=analyst)
        axes = []
        for column, groups in zip(grid.columns, grid.groups, strict=True):
            name = (column, groups.tobytes())
            if name not in self._axes:
                whole = np.array_equal(groups, np.arange(self._universe.shape[column]))
                if whole:
                    self._axes[name] = column
                else:
                    added = sum(axis >= len(self._universe.shape) for axis in self._axes.values())
                    curator.coarsen(column, groups)
                    self._axes[name] = len(self._universe.shape) + added  # only now: the curator may have failed
            axes.append(self._axes[name])
        return tuple(axes)

    def close(self) -> None:
        """Forget the table, and close its cluster if it has one."""
        self._counted = None
        if "_engine" in vars(self):
            self._engine.close()

    def _coding(self, universe: Universe) -> Coding:
        """Return how rows are read: as the run of the first release has read them."""
        declared = self._declaration
        return Coding(
            universe=universe,
            protection=declared.protection,
            window=None,
            constant=declared.constant,
            rules=Rules.of(declared.universe),
        )

    def _check(self, coding: Coding) -> None:
        """Check the names and types of the declared columns, which no row can change."""
        check_columns(self._source, columns=coding.columns)
        check_types(self._source, reads=coding.reads)


def _other_table() -> TableChanged:
    return TableChanged(
        "the table is not the one that this session began with, so nothing can be bought; close the session, and open a new one: "
        "dpflow session open SPEC"
    )
