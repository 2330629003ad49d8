"""The tasks of a cluster's workers: code a piece of the table, bound a partition, count a partition.

Raw rows are read, coded and freed within one call. Dask derives task names from arguments and logs the repr of a failed task, so the names
and reprs of all tasks here are public.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from dpcore.errors import UsageError
from dpcore.marginals.workload import Axes
from dpcore.tables.cluster.failures import publicly
from dpcore.tables.cluster.frames import Layout, sums_frame
from dpcore.tables.counting import Coarse, Counts, count_sets
from dpcore.tables.ingest.agreement import agreed
from dpcore.tables.ingest.bounding import bound
from dpcore.tables.ingest.coded import Coded
from dpcore.tables.ingest.coding import Coding
from dpcore.tables.ingest.draws import Draws
from dpcore.tables.ingest.fingerprint import Fingerprint, Sums
from dpcore.tables.ingest.records import piece_sums
from dpcore.tables.ingest.tally import bucketed, started, tallied
from dpcore.tables.sources.part import Part
from dpcore.tables.sources.source import read_piece
from dpcore.version import installed_version

T = TypeVar("T")


def _on_worker(step: Callable[[], T], *, doing: str) -> T:
    return publicly(step, doing=doing, where="on a worker of the cluster")


class Task:
    """A task whose Dask name and repr consist of its class and a meaningless word."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.__name__ = f"dpflow-{type(self).__name__}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.word}>"

    def __dask_tokenize__(self) -> tuple[str, str]:
        return type(self).__name__, self.word


class Piece(Task):
    """One piece of the table, and its number among all pieces."""

    def __init__(self, word: str, *, number: int, part: Part) -> None:
        super().__init__(f"{word}-{number}")
        self.number = number
        self.part = part


class SumPiece(Task):
    """Reads a piece only for the data's version."""

    def __init__(self, word: str, *, coding: Coding, undecided: Collection[str], fingerprint: Fingerprint) -> None:
        super().__init__(word)
        self.coding = coding
        self.undecided = frozenset(undecided)
        self.fingerprint = fingerprint

    def __call__(self, piece: Piece) -> Sums:
        """Return the piece's fingerprint sums."""

        def summed() -> Sums:
            return piece_sums(piece.part, coding=self.coding, undecided=self.undecided, fingerprint=self.fingerprint)

        return _on_worker(summed, doing="reading the table")


class CodePiece(Task):
    """Reads a piece and codes its rows."""

    def __init__(self, word: str, *, coding: Coding, draws: Draws, fingerprint: Fingerprint | None) -> None:
        super().__init__(word)
        self.coding = coding
        self.draws = draws
        self.fingerprint = fingerprint
        self.version = installed_version()

    def __call__(self, piece: Piece) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the piece's coded rows and their fingerprint sums, each as a dataframe."""
        return _on_worker(lambda: self._summed(piece), doing="coding the table")

    def _summed(self, piece: Piece) -> tuple[pd.DataFrame, pd.DataFrame]:
        parts, sums = list(self._coded(piece)), Fingerprint.nothing()
        if self.fingerprint is not None:
            for part in parts:
                sums += self.fingerprint.of(part, shape=self.coding.universe.shape)
        return self._framed(parts), sums_frame(sums)

    def _framed(self, parts: list[Coded]) -> pd.DataFrame:
        if self.coding.tallies and parts:
            parts = [tallied(started(Coded.joined(parts)))]
        elif self.coding.by_unit and parts:
            # a row that is not among the k smallest draws of its unit here is not among them in the whole table: do not send it
            parts = [bound(Coded.joined(parts), rows_per_unit=self.coding.protection.rows_per_unit)]
        return Layout.of(self.coding).frame(parts)

    def _coded(self, piece: Piece) -> Iterator[Coded]:
        if self.version != installed_version():
            raise UsageError(
                "the cluster's workers have another version of dpflow than this run; install the same version there"
            )
        start = 0
        for batch in read_piece(piece.part, columns=self.coding.columns):
            yield self.coding.code(batch, draws=self.draws, piece=piece.number, start=start)
            start += batch.num_rows


class TakeOne(Task):
    """Selects one item of another task's result."""

    def __init__(self, word: str, *, place: int) -> None:
        super().__init__(word)
        self.place = place

    def __call__(self, parts: Sequence[Any]) -> Any:
        """Return the item at `place`."""
        return parts[self.place]


class BoundUnits(Task):
    """Bounds the rows of each unit in a partition, which holds all rows of its units."""

    def __init__(self, word: str, *, layout: Layout, rows_per_unit: int, agreeing: Sequence[int]) -> None:
        super().__init__(word)
        self.layout = layout
        self.rows_per_unit = rows_per_unit
        self.agreeing = tuple(agreeing)

    def __call__(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows to keep, without ids and draws."""

        def kept() -> pd.DataFrame:
            coded = agreed(bound(self.layout.coded(frame), rows_per_unit=self.rows_per_unit), axes=self.agreeing)
            return self.layout.bounded.frame([Coded(coded.codes, weights=coded.weights, ids=None, draws=None)])

        return _on_worker(kept, doing="bounding")


class TallyUnits(Task):
    """Finds the bucket of each unit's number of rows in a partition, which holds all records of its units."""

    def __init__(self, word: str, *, layout: Layout, edges: Sequence[int]) -> None:
        super().__init__(word)
        self.layout = layout
        self.edges = tuple(edges)

    def __call__(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return one record for each unit, without ids."""

        def counted() -> pd.DataFrame:
            return self.layout.tallied.frame([bucketed(tallied(self.layout.coded(frame)), edges=self.edges)])

        return _on_worker(counted, doing="counting the rows per unit")


class CountSets(Task):
    """Counts a partition over some sets of axes."""

    def __init__(
        self, word: str, *, layout: Layout, shape: Sequence[int], sets: Sequence[Axes], coarse: Sequence[Coarse]
    ) -> None:
        super().__init__(word)
        self.layout = layout
        self.shape = tuple(shape)
        self.sets = tuple(sets)
        self.coarse = tuple(coarse)

    def __call__(self, frame: pd.DataFrame) -> Counts:
        """Return the counts of all sets in one row. The rows of all partitions add up."""

        def counted() -> Counts:
            rows = self.layout.coded(frame)
            counts = count_sets([(rows.codes, rows.weights)], shape=self.shape, sets=self.sets, coarse=self.coarse)
            return np.concatenate([one.ravel() for one in counts])[np.newaxis]

        return _on_worker(counted, doing="counting")
