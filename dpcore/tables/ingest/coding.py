"""Code a batch of the raw table, row by row. No other module sees values, ids and weights."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.privacy.protection import Protection
from dpcore.tables.ingest.coded import Coded, Weights
from dpcore.tables.ingest.draws import Draws
from dpcore.tables.ingest.stored_words import stored_words
from dpcore.tables.ingest.violations import Rules
from dpcore.tables.ingest.window import Window, has_days
from dpcore.tables.reading.encoding import encode, encode_rows, reads
from dpcore.tables.reading.finest import Finest
from dpcore.tables.sources.ids import can_identify, hash_ids
from dpcore.tables.sources.layout import taken
from dpcore.universe import Integer, Outside, Universe, code_type
from dpcore.universe.leaves import Fine

UNIT_IS_ROW = "row"


@dataclass(frozen=True)
class Coding:
    """The public rules by which a batch becomes coded rows.

    Attributes:
        universe: The declared values of each column, and how all other values are handled.
        protection: The protected unit, which determines whether ids and weights are read.
        window: Selects the rows of the blocks that the run reads; None for all rows.
        rules: What happens to rows that violate constraints; None without constraints.
        edges: If the records are units with their number of rows (`dpcore.tables.ingest.tally`), the edges of the buckets of those numbers;
            None for bounded rows.
        constant: The columns of the universe in which the kept rows of a unit are made to agree (`dpcore.tables.ingest.agreement`).
        ends: If the records say which class of sizes their unit is in, the most rows of a unit in each class but the last one; else None.
    """

    universe: Universe
    protection: Protection
    window: Window | None
    rules: Rules | None = None
    edges: tuple[int, ...] | None = None
    constant: tuple[str, ...] = ()
    ends: tuple[int, ...] | None = None

    @property
    def reach(self) -> int:
        """The most rows of a unit that are read. Where classes count, a measurement may count up to the square of the limit: see `contributions`."""
        limit = self.protection.rows_per_unit
        return limit if self.ends is None else limit**2

    @property
    def classes(self) -> int | None:
        """The number of classes of sizes; None if the records do not say them."""
        return None if self.ends is None else len(self.ends) + 1

    @property
    def agreeing(self) -> tuple[int, ...]:
        """The positions of the constant columns. A pass that discovers values may read only some of them."""
        return tuple(place for place, name in enumerate(self.universe.names) if name in self.constant)

    @property
    def by_unit(self) -> bool:
        """Whether rows are bounded by the unit they belong to."""
        return self.protection.unit != UNIT_IS_ROW

    @property
    def counted(self) -> Protection:
        """The protection under which the records are counted. Records that are units add one each, whatever the limit on their rows."""
        return self.protection if self.edges is None else self.protection.of_one_answer

    @property
    def ids(self) -> str | None:
        """The column of the ids; None if the unit is a row."""
        return self.protection.unit if self.by_unit else None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read."""
        return tuple(self.reads)

    @property
    def reads(self) -> Mapping[str, Callable[[pa.DataType], bool]]:
        """For each column to read, a function that tells whether it can be read from a type."""
        columns: dict[str, Callable[[pa.DataType], bool]] = {}
        for name, attribute in self.universe.attributes.items():
            columns[name] = partial(reads, attribute)
        for name, attribute in () if self.rules is None else self.rules.attributes.items():
            columns.setdefault(name, partial(reads, attribute))
        if self.by_unit:
            columns[self.protection.unit] = can_identify
        if self.protection.weight is not None:
            columns[self.protection.weight] = partial(reads, _weight(self.protection))
        for name in () if self.window is None else self.window.columns:
            columns.setdefault(name, has_days)  # an attribute or the unit keeps its own rule
        return columns

    def code(self, batch: pa.RecordBatch, *, draws: Draws, piece: int, start: int) -> Coded:
        """Code the rows of a batch that count: in the window and the universe, with an id if units are declared, with a weight above 0.

        Whether a row counts, and its codes, depend on that row alone. Rows can therefore be dropped before bounding: the bound on a
        unit's rows still holds, and the k rows kept for a person are rows that count.

        Args:
            batch: The columns to read, in any order.
            draws: The run's random draws.
            piece: The number of the batch's piece in its source.
            start: The number of the batch's first row in its piece.
        """
        batch, places = self.windowed(batch)
        codes, keep = encode_rows(
            self.universe, batch, read={} if self.rules is None else self.rules.read(batch, self.universe)
        )
        counting = np.flatnonzero(keep)
        rows = pa.array(counting)
        counts = np.ones(len(counting), dtype=np.bool_)
        weights = ids = words = None
        if self.protection.weight is not None:
            weights = read_weights(taken(batch.column(self.protection.weight), rows), protection=self.protection)
            counts &= weights > 0
        if self.by_unit:
            ids, has_id = hash_ids(taken(batch.column(self.protection.unit), rows), key=draws.unit_key())
            counts &= has_id
            words = draws.words(piece, start, int(places.max(initial=-1)) + 1)[places[counting]]
        seen = None if self.ends is None else np.ones(len(counting), dtype=np.uint64)
        coded = Coded(codes, weights=weights, ids=ids, draws=words, seen=seen)
        return coded if counts.all() else coded.take(counts)

    def words(
        self, batch: pa.RecordBatch, *, undecided: Collection[str], key: bytes
    ) -> list[npt.NDArray[np.integer[Any]]]:
        """Return the rows of the window as columns of integers, for a version that is computed before the universe is complete.

        Declared attributes are coded. Of attributes in `undecided`, those at full resolution are given by their finest public places, and
        the others, whose texts or edges are still to be found, by their stored values. Rows without an id or with a weight of 0 are left
        out, since they cannot count in any universe.

        With a column at full resolution, rows that a declared column drops are left out too: no pass counts them. Otherwise a pass that
        finds values reads one column alone, so such rows count there, and a negative code marks them.

        Args:
            batch: The columns to read, in any order.
            undecided: Names of attributes whose cells are not yet known.
            key: For hashes of ids and texts.
        """
        batch, _ = self.windowed(batch)
        counts = np.ones(batch.num_rows, dtype=np.bool_)
        drops = any(isinstance(attribute, Fine) for attribute in self.universe.attributes.values())
        columns: list[npt.NDArray[np.integer[Any]]] = []
        for name, attribute in self.universe.attributes.items():
            column = batch.column(name)
            if name in undecided and not isinstance(attribute, Fine):
                columns += stored_words(column, key=key)
                continue
            codes = encode(Finest.of(attribute) if isinstance(attribute, Fine) else attribute, column)
            columns.append(codes.astype(np.int64))
            if drops:
                counts &= codes >= 0
        if self.protection.weight is not None:
            weights = read_weights(batch.column(self.protection.weight), protection=self.protection)
            columns.append(weights)
            counts &= weights > 0
        if self.by_unit:
            ids, has_id = hash_ids(batch.column(self.protection.unit), key=key)
            columns += [ids[:, 0], ids[:, 1]]
            counts &= has_id
        return [column[counts] for column in columns]

    def windowed(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.intp]]:
        """Return the rows in the window, and their positions in the batch."""
        if self.window is None:
            return batch, np.arange(batch.num_rows)
        places = np.flatnonzero(self.window.keeps(batch))
        columns = [taken(column, pa.array(places)) for column in batch.columns]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names), places


def read_weights(column: pa.Array, *, protection: Protection) -> Weights:
    """Read how often each row counts, clipped to 0 and the declared maximum. Fractions are rounded down; a value that is no number gives 0.

    >>> from dpcore.privacy.protection import Neighbours
    >>> twice = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE, weight="times", row_weight=2)
    >>> read_weights(pa.array(["1", "2.9", "3", "-1", "often", None]), protection=twice).tolist()
    [1, 2, 2, 0, 0, 0]
    """
    weight = _weight(protection)
    codes = encode(weight, column)
    return np.where(codes == weight.missing_cell, 0, codes).astype(code_type(protection.row_weight + 1))


def _weight(protection: Protection) -> Integer:
    return Integer(minimum=0, maximum=protection.row_weight, outside=Outside.CLIP, missing=True)
