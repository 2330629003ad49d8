"""Read the table of a run: check its header, bind the run to the data's version, and refund the reservation if no row was read."""

import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpcore.errors import DpflowError, SourceBroken, SourceError, UsageError
from dpcore.ledger import Lease, Ledger
from dpcore.places import places_of_spec
from dpcore.private import Private
from dpcore.release.integrity import one_line
from dpcore.spec import Declaration
from dpcore.tables.cluster import Connect, connected
from dpcore.tables.engines import Engine, engine_for
from dpcore.tables.histogram import Histogram
from dpcore.tables.ingest import Coding, Draws, Fingerprint, Source, Versioned, fingerprint_key
from dpcore.tables.ingest.fates import Fates
from dpcore.tables.ingest.tally import EDGES, tally_universe
from dpcore.tables.ingest.violations import Rules
from dpcore.tables.ingest.window import Window
from dpcore.tables.sources.source import check_columns, check_types
from dpcore.universe import Universe
from dpcore.universe.temporal import CalendarColumn


@dataclass(frozen=True)
class Table:
    """A source of rows, the engine that reads and counts them, and the folder of the key of the data's version."""

    source: Source
    engine: Engine
    private: Path

    @classmethod
    def of(cls, declaration: Declaration, table: Any = None, *, connect: Connect = connected) -> "Table":
        """Return the table that a spec names, or one that is given instead. Read nothing."""
        spec, base = declaration.spec, declaration.path.parent
        source = Source.locate(spec.source, base=base) if table is None else Source.of(table)
        engine = engine_for(spec.engine, source=source, connect=connect)
        return cls(source, engine, private=places_of_spec(declaration.path).private)

    def connect(self, coding: Coding) -> None:
        """Connect to the machines that read the table, and check the names and types of columns, which no row can change."""
        self.engine.connect()
        check_headers(self.source, coding)

    def fingerprint(self, run_id: str) -> Fingerprint:
        """Return what a run recognises the version of the data by."""
        return Fingerprint.of_run(run_id, key=fingerprint_key(self.private))

    def read(self, coding: Coding, *, fingerprint: Fingerprint) -> Versioned:
        """Read and encode the rows, with the version of the data."""
        draws = Draws.fresh(unit_key=fingerprint.unit_key())
        return self.engine.read(self.source, coding=coding, draws=draws, fingerprint=fingerprint)

    def version(self, coding: Coding, *, undecided: Collection[str], fingerprint: Fingerprint) -> str:
        """Return the version of the data, if the values of some columns are still to be found."""
        return self.engine.version(self.source, coding=coding, undecided=undecided, fingerprint=fingerprint)


def check_source(declaration: Declaration, source: Source) -> None:
    """Check the names and types of the declared columns, as a run does before it reads a row. Read headers only.

    Raises:
        SourceError: If a run would be refused. It is a `SourceBroken` if values may be the cause.
    """
    calendar = declaration.calendar
    window = None if calendar is None else Window.of(calendar, ())
    check_headers(source, coding_of(declaration, declaration.universe, window=window))


def remarks(declaration: Declaration, source: Source) -> list[str]:
    """Return what the types of columns mean for a run that few people expect. Read headers only."""
    unit = declaration.protection.unit
    moments = [
        name for name, attribute in declaration.universe.attributes.items() if isinstance(attribute, CalendarColumn)
    ]
    columns = (*([] if unit == "row" else [unit]), *moments)
    notes: list[str] = []
    for part in source.parts if columns else ():
        for name, kind in zip(columns, part.column_types(columns), strict=True):
            if name == unit and (pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
                what = "decimal numbers" if pa.types.is_floating(kind) else "booleans"
                notes.append(
                    f"the ids in {one_line(name)} are {what}: rows whose id is not a whole number or a text are dropped; write ids as one of these"
                )
            elif name in moments and pa.types.is_timestamp(kind) and kind.tz not in {None, "UTC"}:
                notes.append(
                    f"{one_line(name)} has times of {one_line(kind.tz)}: they are read and released in UTC; convert them to local times without a time "
                    "zone if hours of the day matter"
                )
    return list(dict.fromkeys(notes))


def coding_of(declaration: Declaration, universe: Universe, *, window: Window | None) -> Coding:
    """Return how the rows of a declared table are read, with their columns in the cells of a universe."""
    return Coding(
        universe=universe,
        protection=declaration.protection,
        window=window,
        constant=declaration.constant,
        rules=Rules.of(declaration.universe),
    )


def check_headers(source: Source, coding: Coding) -> None:
    """Check the names and types of the columns that are read, which no row can change."""
    check_columns(source, columns=coding.columns)
    check_types(source, reads=coding.reads)


class Reading:
    """Reads and counts the table for one run. Each pass may code other columns; header checks and the version cover all of them.

    Args:
        declaration: The granted declaration, before discovery.
        table: The table to read.
        ledger: Records the data's version, and refunds the run.
        lease: The lease on the run.
        blocks: The names of the blocks whose rows count; None if the whole table is one block.
    """

    def __init__(
        self, declaration: Declaration, *, table: Table, ledger: Ledger, lease: Lease, blocks: Sequence[str] | None
    ) -> None:
        self.lease = lease
        self._declaration = declaration
        self._table = table
        self._ledger = ledger
        calendar = declaration.calendar
        self._window = None if calendar is None or blocks is None else Window.of(calendar, blocks)
        self._bound = False

    def limited(self, declaration: Declaration) -> "Reading":
        """Return a reader of the same rows, which keeps as many rows of a unit as this declaration says."""
        reading = copy.copy(self)
        reading._declaration = declaration  # noqa: SLF001  its own copy
        return reading

    def tally(self, universe: Universe, *, edges: tuple[int, ...] = EDGES) -> Histogram:
        """Count the units by their number of rows in a universe, between these edges. Each unit adds one to one count."""
        coding = replace(self._coding(universe), edges=edges)
        return self.count_records(self._read(coding), tally_universe(edges))

    def fates(self, universe: Universe, *, undecided: Collection[str]) -> Histogram:
        """Count what becomes of rows, one of each unit. Without columns to discover, a pass before it must have bound the run to the data's version."""
        coding = Fates.of(self._coding(universe), undecided=undecided)
        return self.count_records(self._read(coding), coding.universe)

    def count(self, universe: Universe) -> Histogram:
        """Read the columns of a universe and count them."""
        return self.count_records(self.records(universe), universe)

    def count_records(self, records: Private, universe: Universe) -> Histogram:
        """Count records that were read before."""
        return self._table.engine.count(records, universe)

    def renew(self) -> None:
        """Renew the lease, if a third of it is over."""
        self.lease = self._ledger.renew(self.lease)

    def records(self, universe: Universe) -> Private:
        """Read and encode the columns of a universe.

        A failure before the first row refunds the reservation; a later failure keeps it.

        Raises:
            SourceError: If the table cannot be read.
            LedgerError: If the key of the data's version cannot be used.
        """
        return self._read(self._coding(universe))

    def ranked_records(self, universe: Universe) -> Private:
        """Read and encode the columns of a universe for a release, likewise: with the class of each unit's size, if counts are corrected by it."""
        sizes = self._declaration.sizes
        coding = self._coding(universe)
        return self._read(coding if sizes is None else replace(coding, ends=sizes.ends))

    def _read(self, coding: Coding) -> Private:
        failure: DpflowError
        try:
            self._table.connect(self._coding(self._declaration.universe))
            fingerprint = self._table.fingerprint(self.lease.run)
        except DpflowError as error:
            if self._may_refund(error):
                self._ledger.refund(self.lease.run, lease=self.lease)
                raise
            failure = error
        else:
            try:
                return self._read_rows(coding, fingerprint)
            except SourceError as error:
                failure = error
        if not isinstance(failure, SourceError):
            raise type(failure)(f"{failure}; the reservation is kept: then use --resume {self.lease.run}")
        if self._ledger.run(self.lease.run).spent:
            raise failure
        raise SourceBroken(
            f"{failure}; the reservation is kept, since values may have caused this failure: keep the spec, repair the source or the disk "
            f"and use --resume {self.lease.run}, or let the steward refund it with `dpflow ledger refund {self.lease.run}`"
        )

    def _coding(self, universe: Universe) -> Coding:
        return coding_of(self._declaration, universe, window=self._window)

    def _may_refund(self, error: DpflowError) -> bool:
        """Tell whether no row can have caused the failure and nothing was spent. An earlier worker may have read rows, so its run stays."""
        no_rows = not isinstance(error, SourceBroken) and self.lease.fence == 1 and not self._bound
        return no_rows and not self._ledger.run(self.lease.run).spent

    def _read_rows(self, coding: Coding, fingerprint: Fingerprint) -> Versioned:
        """Read the rows, and bind the run to their version before anything is measured."""
        undecided = self._declaration.undecided()
        if undecided and not self._bound:
            # each pass of discovery codes other cells, so no single pass can give the version of all readable data
            whole = self._coding(self._declaration.readable)
            self._bind(self._table.version(whole, undecided=undecided, fingerprint=fingerprint))
        records = self._table.read(coding, fingerprint=fingerprint)
        if not undecided and not isinstance(coding, Fates):
            self._bind(records.version)
        return records

    def _bind(self, version: str | None) -> None:
        if version is None:
            raise UsageError("the table was read without a version; read it with a fingerprint")
        self._ledger.record_data_version(self.lease, version)
        self._bound = True
