"""What every kind of source offers: rows of the raw table in batches."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa


class Part(Protocol):
    """Rows of the raw table: a file, a piece of one, a query's result, a table in memory.

    To read from somewhere new, write one of these and let `Source.locate` make it. All but a table in memory can be pickled, and none
    holds a credential. What it raises is not shown to anybody, unless it is one of our own errors.
    """

    @property
    def name(self) -> str:
        """What messages call it; public."""

    @property
    def damaged(self) -> str:
        """The one sentence for a part that cannot be read to its end."""

    def column_names(self) -> list[str]:
        """Return the names of all columns, as often as they occur."""

    def column_types(self, columns: Sequence[str]) -> list[pa.DataType]:
        """Return the types of the named columns."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the named columns, in that order, in batches of bounded size."""

    def split(self) -> Sequence["Part"]:
        """Return parts that together hold the same rows in the same order, and may be read beside each other."""
