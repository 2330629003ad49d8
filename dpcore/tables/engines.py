"""The engines that read and count a table: this process or a Dask cluster. Both give the same counts."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

from dpcore.errors import UsageError
from dpcore.spec.engine import EngineSpec
from dpcore.tables.cluster import Connect, check_installed
from dpcore.tables.histogram import Histogram, LocalHistogram
from dpcore.tables.ingest import Coding, Draws, Fingerprint, Records, Source, Versioned, ingest, readable_version
from dpcore.tables.sources.memory_table import MemoryTable
from dpcore.universe import Universe


class Engine(ABC):
    """Reads a source into opaque records and builds a histogram of them for the curator."""

    @abstractmethod
    def version(self, source: Source, *, coding: Coding, undecided: Collection[str], fingerprint: Fingerprint) -> str:
        """Return the data's version before the cells of the `undecided` attributes are known: the same text on every engine."""

    def connect(self) -> None:
        """Connect to the machines that read the table, if they are remote. Read nothing.

        Raises:
            SourceError: If a machine cannot be reached.
        """
        return

    @abstractmethod
    def read(self, source: Source, *, coding: Coding, draws: Draws, fingerprint: Fingerprint) -> Versioned:
        """Read the table, code its values and bound the rows of each unit. The version is the same text on every engine."""

    @abstractmethod
    def count(self, records: Any, universe: Universe) -> Histogram:
        """Build the histogram of records that this engine has read."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources. Histograms of this engine can no longer be used."""


class LocalEngine(Engine):
    """Reads and counts in this process, in bounded memory."""

    def version(self, source: Source, *, coding: Coding, undecided: Collection[str], fingerprint: Fingerprint) -> str:
        """Read the table in this process and return its version."""
        return readable_version(source, coding=coding, undecided=undecided, fingerprint=fingerprint)

    def read(self, source: Source, *, coding: Coding, draws: Draws, fingerprint: Fingerprint) -> Records:
        """Read the table in this process."""
        return ingest(source, coding=coding, draws=draws, fingerprint=fingerprint)

    def count(self, records: Records, universe: Universe) -> Histogram:
        """Count the records in this process."""
        return LocalHistogram.count(records, universe)

    def close(self) -> None:
        """Do nothing: records are freed with the last reference to them."""


def engine_for(spec: EngineSpec | None, *, source: Source, connect: Connect) -> Engine:
    """Return the engine that a spec declares. Start nothing.

    Args:
        spec: As declared; None for this machine.
        source: The table that the engine will read.
        connect: Connects to the cluster, if one is declared.

    Raises:
        UsageError: If Dask is not installed, or the source is a table in the memory of this process.
    """
    if spec is None:
        return LocalEngine()
    check_installed()
    if any(isinstance(part, MemoryTable) for part in source.parts):
        raise UsageError(
            "a table handed over from Python can only be counted in this process; remove `engine` from the spec, or name a `source`"
        )
    from dpcore.tables.cluster.engine import DaskEngine  # noqa: PLC0415  Dask is an extra

    return DaskEngine(spec, connect=connect)
