"""Where a table is read and counted: on this machine, or on a cluster. A run asks either the same way, and gets the same counts."""

from collections.abc import Collection

from dpcore.errors import UsageError
from dpcore.spec.engine import EngineSpec
from dpcore.tables.cluster import Connect, check_installed
from dpcore.tables.engine import Engine
from dpcore.tables.histogram import Histogram, LocalHistogram
from dpcore.tables.ingest import Coding, Draws, Fingerprint, Records, Source, ingest, readable_version
from dpcore.tables.sources.memory_table import MemoryTable
from dpcore.universe import Universe


class LocalEngine(Engine):
    """This process, in bounded memory."""

    def version(self, source: Source, *, coding: Coding, undecided: Collection[str], fingerprint: Fingerprint) -> str:
        """Read the table here."""
        return readable_version(source, coding=coding, undecided=undecided, fingerprint=fingerprint)

    def read(self, source: Source, *, coding: Coding, draws: Draws, fingerprint: Fingerprint) -> Records:
        """Read the table here."""
        return ingest(source, coding=coding, draws=draws, fingerprint=fingerprint)

    def count(self, records: Records, universe: Universe) -> Histogram:
        """Count what is here."""
        return LocalHistogram.count(records, universe)

    def close(self) -> None:
        """Do nothing: records go with the last who refers to them."""


def engine_for(spec: EngineSpec | None, *, source: Source, connect: Connect) -> Engine:
    """Return the engine that a spec declares; nothing is started by that.

    Args:
        spec: As declared; None for this machine.
        source: The table that it is to read.
        connect: How to get a cluster if one is declared.

    Raises:
        UsageError: If Dask is not installed, or the source is a table in the memory of this process.
    """
    if spec is None:
        return LocalEngine()
    check_installed()
    if any(isinstance(part, MemoryTable) for part in source.parts):
        raise UsageError(
            "a table from Python is counted where it is; remove `engine` from the spec, or name a `source`"
        )
    from dpcore.tables.cluster.engine import DaskEngine  # noqa: PLC0415  needs what is an extra

    return DaskEngine(spec, connect=connect)
