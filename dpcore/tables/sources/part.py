"""The base of every kind of source: rows of the raw table in batches."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from dpcore.tables.sources.stored_file import StoredFile

BATCH_ROWS = 1 << 17  # of a batch of a file or a table in memory


class Part(ABC):
    """Rows of the raw table: a file, a piece of one, the result of a query, or a table in memory.

    To add a new kind of source, derive a class and return it from `Source.locate`. All parts but a table in memory can be pickled, and
    none holds a credential. Errors that a part raises are replaced by its `damaged` message, unless they are dpflow's own.

    Attributes:
        name: The name that messages use; public.
        damaged: The message for a part that cannot be read to its end.
    """

    __slots__ = ()
    name: str
    damaged: str

    @abstractmethod
    def column_names(self) -> list[str]:
        """Return the names of all columns, with repetitions. Read no row."""

    @abstractmethod
    def column_types(self, columns: Sequence[str]) -> list[pa.DataType]:
        """Return the types of the named columns. Read no row."""

    @abstractmethod
    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the named columns, in that order, in batches of bounded size."""

    def split(self) -> "Sequence[Part]":
        """Split into parts that together hold the same rows in the same order, and can be read in parallel."""
        return (self,)

    def with_ids(self, column: str) -> "Part":  # noqa: ARG002  by default, the text of a value shows its type
        """Return the part with a column read as ids. If each value has its own type, only the part can tell which values are no ids."""
        return self


@dataclass(frozen=True)
class FilePart(Part):
    """One file, or a piece of it."""

    file: StoredFile
    KIND: ClassVar[str]
    DAMAGE: ClassVar[str] = "is damaged, truncated, or in another format"

    @property
    def name(self) -> str:  # type: ignore[override]
        """The file's name alone, since folders may be named after people."""
        return repr(self.file.file_name)

    @property
    def damaged(self) -> str:  # type: ignore[override]
        """The message for a file that cannot be read to its end."""
        return f"{self.name} is not a complete {self.KIND} file: it {self.DAMAGE}; write it again"
