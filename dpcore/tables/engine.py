"""The interface of an engine, which reads and counts a table. Every engine gives the same counts."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

from dpcore.tables.histogram import Histogram
from dpcore.tables.ingest import Coding, Draws, Fingerprint, Source, Versioned
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
