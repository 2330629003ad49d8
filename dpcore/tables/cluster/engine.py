"""Read and count on a Dask cluster, which is connected on first use. The rows stay on its workers, and only counts come back."""

import logging
import secrets
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from dask import array, dataframe, delayed
from distributed import Client, futures_of, wait

from dpcore.marginals.workload import Axes
from dpcore.privacy.protection import Protection
from dpcore.spec.engine import EngineSpec
from dpcore.tables.cluster.connecting import Connect
from dpcore.tables.cluster.failures import publicly
from dpcore.tables.cluster.work import (
    Task,
    as_frame,
    code_piece,
    count_partition,
    count_partition_by_norm,
    finish_units,
    id_column,
    sum_piece,
    without_rows,
)
from dpcore.tables.counting import Counts, in_groups
from dpcore.tables.engines import Engine
from dpcore.tables.histogram import Histogram
from dpcore.tables.ingest import Coding, Draws, Fingerprint, Source, Versioned
from dpcore.tables.ingest.coded import Coded
from dpcore.tables.ingest.records import Coder, checked_pieces, finished
from dpcore.tables.sources.part import Part
from dpcore.universe import Universe

if TYPE_CHECKING:
    from dask.delayed import Delayed

T = TypeVar("T")

progress = logging.getLogger("dpcore.progress")


class ClusterRecords(Versioned):
    """Rows on a cluster, for the histogram that counts them there.

    Attributes:
        client: The client of the cluster.
        parts: The rows, as dataframes on its workers.
        kind: Rows of the same columns, of which there are none.
        classes: As in `Records`.
    """

    __slots__ = ("classes", "client", "kind", "parts")

    def __init__(  # noqa: PLR0913  where they are, and what is known of them
        self,
        *,
        client: Client,
        parts: Sequence["Delayed"],
        kind: Coded,
        protection: Protection,
        version: str | None,
        classes: int | None,
    ) -> None:
        super().__init__(version, protection=protection)
        self.classes = classes
        self.client = client
        self.parts = parts
        self.kind = kind


class DaskEngine(Engine):
    """Reads and counts on a Dask cluster."""

    def __init__(self, spec: EngineSpec, *, connect: Connect) -> None:
        self._spec = spec
        self._connect = connect
        self._opened = ExitStack()
        self._client: Client | None = None

    def connect(self) -> None:
        """Connect to the cluster, or start one."""
        self._connected()

    def version(self, source: Source, *, coding: Coding, undecided: Collection[str], fingerprint: Fingerprint) -> str:
        """Compute the version on the workers."""
        client, pieces = self._connected(), source.pieces(ids=coding.ids)

        def sums_of_pieces() -> Any:
            sums = _tasks(sum_piece, pieces, coding=coding, undecided=frozenset(undecided), fingerprint=fingerprint)
            return client.gather(client.compute(sums))

        sums = _asked(client, sums_of_pieces, doing="reading the table")
        return fingerprint.version(sum(sums, start=Fingerprint.nothing()))

    def read(
        self, source: Source, *, coding: Coding, draws: Draws, fingerprint: Fingerprint | None = None
    ) -> ClusterRecords:
        """Read the table on the workers, which hold the rows in memory, and wait until they are done.

        One worker reads each piece of the table. Dask's shuffle brings all rows of a unit to one partition, where the same functions as on
        this machine reduce and finish them. Rows and draws are functions of the piece alone, so if a worker is lost, others compute the same
        result again.
        """
        client, pieces = self._connected(), checked_pieces(source, coding)
        coder = Coder(coding, draws, fingerprint)
        kind = without_rows(coder)
        after = finished(kind, coding) if coding.by_unit else kind

        def rows_and_sums() -> tuple[Sequence["Delayed"], Any]:
            coded = _tasks(code_piece, pieces, coder=coder)
            frame = dataframe.from_delayed([rows for rows, _ in coded], meta=as_frame(kind), verify_meta=False)
            if coding.by_unit:
                finish = Task(finish_units, word=_new_word(), doing="bounding", kind=kind, coding=coding)
                shuffled = frame.shuffle(on=id_column(kind), npartitions=len(pieces), shuffle_method="p2p")
                frame = shuffled.map_partitions(finish, meta=as_frame(after), enforce_metadata=False)
            # together, so that each piece is read only once
            held = client.persist([*frame.to_delayed(), *(sums for _, sums in coded)])
            futures = futures_of(held)
            wait(futures)
            for future in futures:
                if future.status != "finished":
                    future.result()  # raises; for a finished future it would fetch the rows
            rows = held[: -len(pieces)]
            return rows, client.gather(futures_of(held[len(rows) :]))

        rows, sums = _asked(client, rows_and_sums, doing="reading the table")
        version = None if fingerprint is None else fingerprint.version(sum(sums, start=Fingerprint.nothing()))
        return ClusterRecords(
            client=client,
            parts=rows,
            kind=after,
            protection=coding.counted,
            version=version,
            classes=coding.classes,
        )

    def count(self, records: ClusterRecords, universe: Universe) -> Histogram:
        """Return a histogram that counts on the workers, on demand."""
        return ClusterHistogram(records, universe)

    def close(self) -> None:
        """Close a cluster that this run started, or disconnect from any other."""
        self._client = None
        self._opened.close()

    def _connected(self) -> Client:
        if self._client is None:
            self._client = self._opened.enter_context(self._connect(self._spec))
            progress.info("the Dask cluster has %d workers", len(self._client.nthreads()))
        return self._client


class ClusterHistogram(Histogram):
    """Exact counts of rows by cell. The workers count the rows they hold, and their counts are added up in a tree."""

    __slots__ = ("_records",)

    def __init__(self, records: ClusterRecords, universe: Universe) -> None:
        super().__init__(universe.shape, protection=records.protection, classes=records.classes)
        self._records = records

    def _counts(self, sets: Sequence[Axes]) -> list[Counts]:
        counts: list[Counts] = []

        def cells(axes: Axes) -> int:
            return prod(self._shape[axis] for axis in axes)

        # a worker holds a few times as many 8-byte integers
        for group in in_groups(sets, cells=cells, most=1 << 22):
            sums = self._sums(count_partition, cells=sum(map(cells, group)), sets=group, limit=self._limit)
            marginals = np.split(sums, np.cumsum([cells(axes) for axes in group])[:-1])
            shapes = [[self._shape[axis] for axis in axes] for axes in group]
            counts += [marginal.reshape(shape) for marginal, shape in zip(marginals, shapes, strict=True)]
        return counts

    @property
    def _limit(self) -> int | None:
        """How many of the ranked rows of each unit count; None if rows have no ranks."""
        return None if self.classes is None else self.protection.rows_per_unit

    def _by_norm(self, axes: Axes) -> Counts:
        shape = [self._shape[axis] for axis in axes]
        sums = self._sums(count_partition_by_norm, cells=prod(shape), axes=axes, norm=self.protection.rows_per_unit)
        return sums.reshape(shape)

    def _sums(self, function: Callable[..., Counts], *, cells: int, **asked: Any) -> Counts:
        """Return what a function counts in all partitions, in one row. Nothing else leaves the workers."""
        records, word = self._records, _new_word()
        settings = {"kind": records.kind, "shape": self._shape, "coarse": tuple(self._coarse), **asked}
        count = delayed(Task(function, word=word, doing="counting", **settings), pure=True)

        def total() -> Counts:
            rows = [
                array.from_delayed(
                    count(part, dask_key_name=f"dpflow-counts-{word}-{number}"), shape=(1, cells), dtype=np.int64
                )
                for number, part in enumerate(records.parts)
            ]
            sums: Counts = records.client.compute(array.concatenate(rows).sum(axis=0, split_every=8)).result()
            return sums

        return _asked(records.client, total, doing="counting")


def _asked(client: Client, question: Callable[[], T], *, doing: str) -> T:
    """Run a computation on the cluster. If it fails, raise an error with a public message."""

    def ask() -> T:
        with client.as_current():
            return question()

    return publicly(ask, doing=doing, where="on the cluster")


def _tasks(function: Callable[..., Any], pieces: Sequence[Part], **settings: Any) -> list[Any]:
    """Return one delayed call for each piece, whose names are meaningless."""
    words = [f"{_new_word()}-{number}" for number in range(len(pieces))]
    return [
        delayed(
            Task(function, word=word, doing="reading the table", piece=piece, number=number, **settings),
            nout=2,
            pure=True,
        )(dask_key_name=f"dpflow-piece-{word}")
        for number, (word, piece) in enumerate(zip(words, pieces, strict=True))
    ]


def _new_word() -> str:
    return secrets.token_hex(8)
