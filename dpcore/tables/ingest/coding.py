"""From a batch of the raw table to coded rows: the one place that sees values, ids and weights, each row by itself."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.privacy.protection import Protection
from dpcore.tables.ingest.coded import Coded, Weights
from dpcore.tables.ingest.draws import Draws
from dpcore.tables.ingest.stored_words import stored_words
from dpcore.tables.ingest.window import Window, has_days
from dpcore.tables.sources.ids import can_identify, hash_ids
from dpcore.tables.sources.layout import taken
from dpcore.universe import Integer, Outside, Universe, code_type

UNIT_IS_ROW = "row"


@dataclass(frozen=True)
class Coding:
    """Everything public that says how a batch becomes coded rows.

    Attributes:
        universe: What may be in a row, and what becomes of everything else.
        protection: Whom to protect, and so whether there are ids and weights to read.
        window: Which rows belong to the blocks that a run reads; None for all.
    """

    universe: Universe
    protection: Protection
    window: Window | None

    @property
    def by_unit(self) -> bool:
        """Whether rows are to be bounded by the person they belong to."""
        return self.protection.unit != UNIT_IS_ROW

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are to be read."""
        return tuple(self.reads)

    @property
    def reads(self) -> Mapping[str, Callable[[pa.DataType], bool]]:
        """For each column that is to be read, whether it can be read from a type."""
        reads: dict[str, Callable[[pa.DataType], bool]] = {}
        for name, attribute in self.universe.attributes.items():
            reads[name] = attribute.reads
        if self.by_unit:
            reads[self.protection.unit] = can_identify
        if self.protection.weight is not None:
            reads[self.protection.weight] = _weight(self.protection).reads
        for name in () if self.window is None else self.window.columns:
            reads.setdefault(name, has_days)  # a column that is also released, or the unit, is read as that
        return reads

    def code(self, batch: pa.RecordBatch, *, draws: Draws, piece: int, start: int) -> Coded:
        """Code the rows of a batch that count: in the window and the universe, with an id if there are units, with a weight above 0.

        Which rows these are, and what becomes of them, depends on each row alone. So the bound on a unit's rows holds although the
        others are left out before it; and a person's k rows are rows that count.

        Args:
            batch: The columns that are to be read, in any order.
            draws: The run's chance.
            piece: The number of the batch's piece in its source.
            start: The number of the batch's first row in its piece.
        """
        batch, places = self._windowed(batch)
        codes, keep = self.universe.encode_rows(batch)
        kept = np.flatnonzero(keep)
        rows = pa.array(kept)
        counts = np.ones(len(kept), dtype=np.bool_)
        weights = ids = words = None
        if self.protection.weight is not None:
            weights = read_weights(taken(batch.column(self.protection.weight), rows), protection=self.protection)
            counts &= weights > 0
        if self.by_unit:
            ids, known = hash_ids(taken(batch.column(self.protection.unit), rows), key=draws.unit_key())
            counts &= known
            words = draws.words(piece, start, int(places.max(initial=-1)) + 1)[places[kept]]
        coded = Coded(codes, weights=weights, ids=ids, draws=words)
        return coded if counts.all() else coded.take(counts)

    def words(
        self, batch: pa.RecordBatch, *, undecided: Collection[str], key: bytes
    ) -> list[npt.NDArray[np.integer[Any]]]:
        """Return the rows of the window as columns of whole numbers, for a version that is taken before the universe is complete.

        Attributes that are declared are as they are coded, with a number below 0 for what would leave a row out; those of `undecided` are
        as they are stored. Rows that could not count whatever is found, without an id or with a weight of 0, are left out.

        Args:
            batch: The columns that are to be read, in any order.
            undecided: Names of attributes whose cells are still to be found.
            key: For hashes of ids and texts.
        """
        batch, _ = self._windowed(batch)
        counts = np.ones(batch.num_rows, dtype=np.bool_)
        columns: list[npt.NDArray[np.integer[Any]]] = []
        for name, attribute in self.universe.attributes.items():
            column = batch.column(name)
            columns += (
                stored_words(column, key=key) if name in undecided else [attribute.encode(column).astype(np.int64)]
            )
        if self.protection.weight is not None:
            weights = read_weights(batch.column(self.protection.weight), protection=self.protection)
            columns.append(weights)
            counts &= weights > 0
        if self.by_unit:
            ids, known = hash_ids(batch.column(self.protection.unit), key=key)
            columns += [ids[:, 0], ids[:, 1]]
            counts &= known
        return [column[counts] for column in columns]

    def _windowed(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.intp]]:
        """Return the rows that are in the window, and their places in the batch."""
        if self.window is None:
            return batch, np.arange(batch.num_rows)
        places = np.flatnonzero(self.window.keeps(batch))
        columns = [taken(column, pa.array(places)) for column in batch.columns]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names), places


def read_weights(column: pa.Array, *, protection: Protection) -> Weights:
    """Read how often each row counts, from 0 to the declared maximum: fractions rounded down, and 0 for what is no number.

    >>> from dpcore.privacy.protection import Neighbours
    >>> twice = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE, weight="times", row_weight=2)
    >>> read_weights(pa.array(["1", "2.9", "3", "-1", "often", None]), protection=twice).tolist()
    [1, 2, 2, 0, 0, 0]
    """
    weight = _weight(protection)
    codes = weight.encode(column)
    return np.where(codes == weight.missing_cell, 0, codes).astype(code_type(protection.row_weight + 1))


def _weight(protection: Protection) -> Integer:
    return Integer(minimum=0, maximum=protection.row_weight, outside=Outside.CLIP, missing=True)
