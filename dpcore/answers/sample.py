"""Draw more rows, or rows of a kind, from the model of a release: post-processing, which costs nothing.

The model is restricted by the condition, and rows are drawn from what is left. That is exact: each row has its probability under the model, given
the condition. Within a cell, values are drawn as in the release's own rows, from the part of the cell that satisfies the condition.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.answers.boxes import Box, Pieces, weights_of
from dpcore.answers.cells import Column
from dpcore.answers.evaluate import Prepared
from dpcore.answers.query import Always, Count, Output, Query
from dpcore.answers.release import Release, open_release
from dpcore.answers.uncertainty import Fit
from dpcore.errors import UsageError
from dpcore.models import Model
from dpcore.models.model import RowCodes, Weights
from dpcore.models.projection import projected
from dpcore.models.systematic import sample_cells
from dpcore.universe.drawing import replaced

MOST_ROWS = 1_000_000_000
CHUNK_ROWS = 1 << 18


def new_seed() -> int:
    """Return a seed for rows that differ each time."""
    return int(np.random.SeedSequence().generate_state(1)[0])


def sample(
    release: str | Path | Release, *, rows: int, where: str | None = None, seed: int | None = None
) -> Iterator[pa.Table]:
    """Draw rows from a release's model, in tables with the release's columns. Nothing is charged, and no raw data is read.

    Args:
        release: The folder of a release, the folder of its dataset for the newest one, or a release that `open_release` has read.
        rows: How many rows to draw.
        where: A condition in the SQL of `answer`, such as `age >= 65 and sex = 'F'`. All drawn rows satisfy it.
        seed: The same seed gives the same rows. Default: other rows each time.

    Yields:
        Tables that together have the wanted rows, in random order.

    Raises:
        DpflowError: If the folder holds no release, or the condition cannot be understood or satisfied. The message says what to do.
    """
    opened = release if isinstance(release, Release) else open_release(release)
    return Sampler(opened, where).draw(rows, seed=new_seed() if seed is None else seed)


class Sampler:
    """A release's model, restricted by a condition.

    Raises:
        UsageError: If the condition cannot be understood, or the model has no such rows.
    """

    def __init__(self, release: Release, where: str | None) -> None:
        from dpcore.answers.sql import parse_condition  # noqa: PLC0415  the parser takes longer to import than to parse

        self._universe = release.universe
        names = ("release", release.name)
        condition = Always() if where is None else parse_condition(where, self._universe, tables=names)
        self._where = Prepared(Query((Output("n", Count()),), where=condition), self._universe)
        self._boxes = self._where.form(Count()).boxes
        self._restricted = Restricted(release, {column for box in self._boxes for column in box})
        self.total = self._restricted.total
        """The number of rows that the model stands for."""
        shares = [self._restricted.share(self._weights(box)) for box in self._boxes]
        share = math.fsum(shares)  # of the model's rows
        self.expected = share * self.total
        """The number of rows of the release that are expected to satisfy the condition."""
        if share <= 1e-12:  # of so few rows, a model knows nothing but the rounding errors of its fit
            raise UsageError("the release has no rows that satisfy this condition; ask for a wider one")
        self._shares = np.array(shares) / share

    def draw(self, rows: int, *, seed: int) -> Iterator[pa.Table]:
        """Return an iterator over tables that together have the wanted rows.

        Raises:
            UsageError: If the number of rows, or the seed, is out of range.
        """
        if isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows <= MOST_ROWS:
            raise UsageError(f"the number of rows must be from 1 to {MOST_ROWS:,}")
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise UsageError("a seed must be a whole number, 0 or more")
        return self._tables(rows, np.random.default_rng(seed))

    def _tables(self, rows: int, rng: np.random.Generator) -> Iterator[pa.Table]:
        # For each row, so many are drawn at most where a condition contradicts constraints in some rows.
        left, drawn, most = rows, 0, max(100 * rows, CHUNK_ROWS)
        while left:
            if drawn >= most:
                raise UsageError(
                    f"only {rows - left:,} of {drawn:,} drawn rows satisfy this condition, which contradicts an order or a sum of columns in "
                    "most rows; ask for fewer rows, or for another condition"
                )
            size = min(left, CHUNK_ROWS)
            table = self._chunk(size, rng).slice(0, left)
            left, drawn = left - table.num_rows, drawn + size
            if table.num_rows:
                yield table

    def _chunk(self, size: int, rng: np.random.Generator) -> pa.Table:
        counts = np.bincount(sample_cells(self._shares, size, rng=rng), minlength=len(self._shares)).tolist()
        tables = []
        for box, count in zip(self._boxes, counts, strict=True):
            if count:
                codes = self._restricted.by(self._weights(box)).rows(count, rng=rng)
                tables.append(self._decoded(codes, box, rng))
        table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        return table if len(tables) == 1 else table.take(rng.permutation(table.num_rows))

    def _decoded(self, codes: tuple[RowCodes, ...], box: Box, rng: np.random.Generator) -> pa.Table:
        """Draw the values of rows in a box, without rows that constraints exclude there."""
        pieces = {
            column: pieces_of(self._where.column(column), allowed, codes[column], rng)
            for column, allowed in self._cut(box).items()
        }
        table = self._universe.decode(codes, rng)
        parts = {}
        for column, drawn in pieces.items():
            seen = self._where.column(column)
            cut = within(seen, drawn, table.column(column), rng)
            table = table.set_column(column, table.schema.field(column), cut)
            if seen.spread is not None:
                parts[self._universe.names[column]] = seen.start[drawn], seen.ends[drawn]
        if not pieces or not self._universe.constraints:
            return table
        # The parts of cells that satisfy the condition may allow no order or sum, although the cells do: there are no such rows.
        table, feasible = self._universe.satisfying(table, codes, rng, within=parts)
        return table if feasible.all() else table.filter(pa.array(feasible))

    def _cut(self, box: Box) -> Box:
        """Return the columns of a box of which some cell is allowed in part only."""
        return {
            column: allowed
            for column, allowed in box.items()
            if ((weights := weights_of(self._where.column(column), allowed)) * (1 - weights)).any()
        }

    def _weights(self, box: Box) -> dict[int, Weights]:
        return {column: weights_of(self._where.column(column), allowed) for column, allowed in box.items()}


class Restricted:
    """A release's model that can be restricted in some columns. The functions of single columns never make it larger."""

    def __init__(self, release: Release, columns: set[int]) -> None:
        uncertainty = release.uncertainty
        fit = release.fitted(release.transcript)[1] if uncertainty is None else uncertainty.model
        self.total = fit.total
        shape = release.universe.shape
        self._functions = dict(fit.functions)
        for column in sorted(columns):
            self._functions.setdefault((column,), np.zeros(shape[column]))
        self._model = release.assigned(Fit(fit.total, self._functions))

    def by(self, weights: Mapping[int, Weights]) -> Model:
        """Return the model times a weight for every cell of some columns. It is valid until the next call."""
        functions = dict(self._functions)
        for column, weight in weights.items():
            with np.errstate(divide="ignore"):
                functions[column,] = functions[column,] + np.maximum(
                    np.log(weight), -1e6
                )  # far below the logarithm of any other weight
        self._model.assign(functions)
        return self._model

    def share(self, weights: Mapping[int, Weights]) -> float:
        """Return the sum of the model's probabilities times the weights."""
        axes = tuple(sorted(weights))
        return projected(self.by({}), axes, [weights[axis][:, None] for axis in axes]).item() / self.total


def pieces_of(
    column: Column, allowed: Pieces, codes: Sequence[int] | npt.NDArray[np.integer[Any]], rng: np.random.Generator
) -> npt.NDArray[np.intp]:
    """Draw an allowed piece of each row's cell, by their shares. Every cell has one."""
    possible = np.flatnonzero(allowed & (column.share > 0))
    ends, cells = np.cumsum(column.share[possible]), column.cell[possible]
    first, after = np.searchsorted(cells, codes), np.searchsorted(cells, codes, side="right")
    below = np.where(first > 0, ends[first - 1], 0.0)
    drawn = below + rng.random(len(first)) * (ends[after - 1] - below)
    places = np.searchsorted(ends, drawn, side="right")
    return possible[np.clip(places, first, after - 1)]


def within(
    column: Column, pieces: npt.NDArray[np.intp], drawn: pa.ChunkedArray, rng: np.random.Generator
) -> pa.ChunkedArray:
    """Replace values that were drawn from whole cells by values of the rows' pieces, where a piece is not a whole cell."""
    spread = column.spread
    several = np.bincount(column.cell, minlength=column.attribute.size) > 1
    rows = np.flatnonzero(several[column.cell[pieces]])
    if spread is None or not len(rows):
        return drawn
    at = pieces[rows]
    start, end = column.start[at], column.ends[at]
    places = spread.quantile(spread.below(start) + rng.random(len(at)) * column.share[at])
    last = end - 1 if spread.whole else np.nextafter(end, -np.inf)
    first = start if spread.whole else np.nextafter(start, np.inf)
    return replaced(drawn, rows, spread.value(np.clip(places, first, np.maximum(first, last))))
