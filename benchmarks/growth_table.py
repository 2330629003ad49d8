"""Generate tables of any size to measure growth: the columns form a tree, and each depends partly on its parent."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

VALUES = 10
CHUNK_ROWS = 1 << 18
FOLLOWS = 0.7
"""The share of rows in which a column is a function of its parent. In the others it is drawn independently."""


class GrowthTable:
    """A tree of columns with ten values each. The same seed gives the same columns, whatever the number of rows.

    The parent of a column is a random column before it. A column is a fixed function of its parent in most rows, and drawn from its own
    skewed distribution in the others.
    """

    def __init__(self, *, columns: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._seed = seed
        self._parents = [int(rng.integers(column)) if column else None for column in range(columns)]
        self._functions = rng.integers(VALUES, size=(columns, VALUES))
        self._chances = rng.dirichlet(np.full(VALUES, 2.0), size=columns)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [f"c{number:02}" for number in range(len(self._parents))]

    def chunk(self, number: int, rows: int) -> pa.Table:
        """Return the rows of one chunk, which depend only on its number."""
        rng = np.random.default_rng((self._seed, number))
        drawn: list[np.ndarray] = []
        for parent, function, chances in zip(self._parents, self._functions, self._chances, strict=True):
            own = rng.choice(VALUES, size=rows, p=chances)
            drawn.append(own if parent is None else np.where(rng.random(rows) < FOLLOWS, function[drawn[parent]], own))
        return pa.table(dict(zip(self.names, drawn, strict=True)))

    def write(self, path: Path, *, rows: int) -> None:
        """Write the table as Parquet, chunk by chunk."""
        starts = range(0, rows, CHUNK_ROWS)
        with parquet.ParquetWriter(path, self.chunk(0, 0).schema) as writer:
            for number, start in enumerate(starts):
                writer.write_table(self.chunk(number, min(CHUNK_ROWS, rows - start)))

    def universe(self) -> dict[str, dict[str, object]]:
        """Return the universe in the form of a spec, alternating integer and categorical columns."""
        whole = {"type": "integer", "min": 0, "max": VALUES - 1}
        named = {"type": "categorical", "values": list(range(VALUES))}
        return {name: named if number % 2 else whole for number, name in enumerate(self.names)}
