"""What reads and counts a table: a run asks every engine the same way, and gets the same counts."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

from dpcore.tables.histogram import Histogram
from dpcore.tables.ingest import Coding, Draws, Fingerprint, Source, Versioned
from dpcore.universe import Universe


class Engine(ABC):
    """Reads a source into records, which nobody looks at, and makes a histogram of them, which the curator asks."""

    @abstractmethod
    def version(self, source: Source, *, coding: Coding, undecided: Collection[str], fingerprint: Fingerprint) -> str:
        """Return the data's version where the cells of some attributes are still to be found: the same text on every engine."""

    def connect(self) -> None:
        """Connect to the machines that read the table, if there are others; nothing is read.

        Raises:
            SourceError: If they can't be reached.
        """
        return

    @abstractmethod
    def read(self, source: Source, *, coding: Coding, draws: Draws, fingerprint: Fingerprint) -> Versioned:
        """Read, code and bound the table; its version is the same text on every engine."""

    @abstractmethod
    def count(self, records: Any, universe: Universe) -> Histogram:
        """Make the histogram of what this engine has read."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything: no histogram of this engine is asked any more."""
