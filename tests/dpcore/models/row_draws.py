"""Tables in pieces and batches of any size, with draws that belong to their rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.tables.histogram import LocalHistogram
from dpcore.tables.ingest import Coding, Source, ingest, records
from dpcore.tables.ingest.draws import Draws
from dpcore.tables.sources.part import Part


class RowDraws(Draws):
    """Draws that a test chose: one array for each piece."""

    __slots__ = ("_words",)

    def __init__(self, words: Sequence[npt.NDArray[np.uint64]], *, key: bytes = b"k" * 32) -> None:
        super().__init__(key)
        self._words = tuple(words)

    def words(self, piece: int, start: int, count: int) -> npt.NDArray[np.uint64]:
        return self._words[piece][start : start + count]


@dataclass(frozen=True)
class Piece(Part):
    """A table in memory that is read in batches of a given size."""

    table: pa.Table
    batch_rows: int
    name: str = "piece"
    damaged: str = "piece is damaged"

    def column_names(self) -> list[str]:
        return list(self.table.column_names)

    def column_types(self, columns: Sequence[str]) -> list[pa.DataType]:
        return [self.table.schema.field(column).type for column in columns]

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from self.table.select(list(columns)).to_batches(max_chunksize=self.batch_rows)


@dataclass(frozen=True)
class Layout:
    """How a table is cut up on its way: none of it may matter."""

    pieces: int = 1
    batch_rows: int = 1 << 16
    buckets: int = 3
    bucketed_rows: int = 1 << 19


WHOLE = Layout()


def counted(
    table: pa.Table, words: npt.NDArray[np.uint64], *, coding: Coding, layout: Layout = WHOLE
) -> LocalHistogram:
    """Ingest and count a table with a draw for each row, cut up by a layout."""
    edges = np.linspace(0, table.num_rows, layout.pieces + 1).astype(int)
    spans = list(pairwise(edges.tolist()))
    source = Source(tuple(Piece(table.slice(begin, end - begin), layout.batch_rows) for begin, end in spans))
    sizes = records.BUCKETS, records.BUCKETED_ROWS
    records.BUCKETS, records.BUCKETED_ROWS = layout.buckets, layout.bucketed_rows
    try:
        kept = ingest(source, coding=coding, draws=RowDraws([words[begin:end] for begin, end in spans]))
        return LocalHistogram.count(kept, coding.universe)
    finally:
        records.BUCKETS, records.BUCKETED_ROWS = sizes
