"""Read the table of a run: check its header, bind the run to the version of its rows, and give the reservation back if no row was read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpcore.errors import SourceBroken, SourceError, UsageError
from dpcore.ledger import Lease, Ledger
from dpcore.private import Private
from dpcore.spec import Declaration
from dpcore.tables.engine import Engine
from dpcore.tables.histogram import Histogram
from dpcore.tables.ingest import Coding, Draws, Fingerprint, Source, Versioned, fingerprint_key
from dpcore.tables.ingest.window import Window
from dpcore.tables.sources.source import check_columns, check_types
from dpcore.universe import Universe


@dataclass(frozen=True)
class Table:
    """Where the rows of a run come from, and what reads and counts them."""

    source: Source
    engine: Engine
    private: Path


class Reading:
    """Reads and counts the table for one run. Each reading may code other columns; the header and the version are those of all of them.

    Args:
        declaration: What the run was granted, before anything was found in the data.
        table: What is read.
        ledger: Where the run is bound to the version of the rows, and refunded.
        lease: The right to work on the run.
        blocks: The names of the blocks whose rows count; None: the whole table is one.
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

    def count(self, universe: Universe) -> Histogram:
        """Read some columns and count them over a universe of their own."""
        return self.count_records(self.records(universe), universe)

    def count_records(self, records: Private, universe: Universe) -> Histogram:
        """Count records that were read before."""
        return self._table.engine.count(records, universe)

    def records(self, universe: Universe) -> Private:
        """Read and encode the columns of a universe.

        If the header is refused, the reservation is given back; from the first row on, a failure keeps it.

        Raises:
            SourceError: The table can't be read.
        """
        coding = Coding(universe=universe, protection=self._declaration.protection, window=self._window)
        try:
            self._table.engine.connect()
            self._check_headers(coding)
        except SourceError as error:
            if self._may_refund(error):
                self._ledger.refund(self.lease.run, lease=self.lease)
                raise
            failure = error
        else:
            try:
                return self._read_rows(coding)
            except SourceError as error:
                failure = error
        if self._ledger.run(self.lease.run).spent:
            raise failure
        raise SourceBroken(
            f"{failure}; the reservation is kept, since values may have decided this: with the spec as it is, mend the source or the disk and "
            f"use --resume {self.lease.run}, or let the steward give it back with `dpflow ledger refund {self.lease.run}`"
        )

    def _check_headers(self, coding: Coding) -> None:
        """Refuse, before a row is read or anything is bought, what no row can decide: names and types of the declared columns."""
        whole = replace(coding, universe=self._declaration.universe)
        check_columns(self._table.source, columns=whole.columns)
        check_types(self._table.source, reads=whole.reads)

    def _may_refund(self, error: SourceError) -> bool:
        """Tell whether no row can have decided a failure, and nothing was spent; what an earlier worker on the run has met, nobody knows."""
        no_rows = not isinstance(error, SourceBroken) and self.lease.fence == 1 and not self._bound
        return no_rows and not self._ledger.run(self.lease.run).spent

    def _read_rows(self, coding: Coding) -> Versioned:
        """Read the rows, and bind the run to their version before anything is measured of them."""
        source, engine = self._table.source, self._table.engine
        fingerprint = Fingerprint.of_run(self.lease.run, key=fingerprint_key(self._table.private))
        draws = Draws.fresh(unit_key=fingerprint.unit_key())
        undecided = self._declaration.descents()
        if undecided and not self._bound:
            # each reading codes other cells, so that none of them has the version of what all of them may read
            whole = replace(coding, universe=self._declaration.universe)
            self._bind(engine.version(source, coding=whole, undecided=undecided, fingerprint=fingerprint))
        records = engine.read(source, coding=coding, draws=draws, fingerprint=fingerprint)
        if not undecided:
            self._bind(records.version)
        return records

    def _bind(self, version: str | None) -> None:
        if version is None:
            raise UsageError("the table was read without a version; read it with a fingerprint")
        self._ledger.record_data_version(self.lease, version)
        self._bound = True
