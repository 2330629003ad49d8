"""The interface of every kind of source: rows of the raw table in batches."""

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import pyarrow as pa


class Part(Protocol):
    """Rows of the raw table: a file, a piece of one, the result of a query, or a table in memory.

    To add a new kind of source, implement this protocol and return the class from `Source.locate`. All parts but a table in memory can
    be pickled, and none holds a credential. Errors that a part raises are replaced by its `damaged` message, unless they are dpflow's own.
    """

    @property
    def name(self) -> str:
        """The name that messages use; public."""

    @property
    def damaged(self) -> str:
        """The message for a part that cannot be read to its end."""

    def column_names(self) -> list[str]:
        """Return the names of all columns, with repetitions."""

    def column_types(self, columns: Sequence[str]) -> list[pa.DataType]:
        """Return the types of the named columns."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the named columns, in that order, in batches of bounded size."""

    def split(self) -> Sequence["Part"]:
        """Split into parts that together hold the same rows in the same order, and can be read in parallel."""


@runtime_checkable
class Untyped(Protocol):
    """A part in which each value has its own type, which its text does not show: only the part can tell which values are no ids."""

    def with_ids(self, column: str) -> Part:
        """Return the part with a column read as ids, by `as_id`."""
