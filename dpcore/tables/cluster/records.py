"""Read the private table into coded and bounded rows that stay on the workers of a cluster."""

import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from dpcore.privacy.protection import Protection
from dpcore.tables.cluster.failures import publicly
from dpcore.tables.cluster.frames import ID, Layout, sums_frame, sums_of
from dpcore.tables.cluster.work import BoundUnits, CodePiece, Piece, SumPiece, TakeOne, TallyUnits, Task
from dpcore.tables.ingest.coding import Coding
from dpcore.tables.ingest.draws import Draws
from dpcore.tables.ingest.fingerprint import Fingerprint, Sums
from dpcore.tables.ingest.records import Versioned
from dpcore.tables.sources.part import Part
from dpcore.tables.sources.source import Source, check_columns, check_types

if TYPE_CHECKING:
    import pandas as pd
    from dask.dataframe import DataFrame
    from distributed import Client

T = TypeVar("T")


class ClusterRecords(Versioned):
    """Rows on a cluster, for the histogram that counts them there."""

    __slots__ = ("client", "frame", "layout")

    def __init__(
        self, *, client: "Client", frame: "DataFrame", layout: Layout, protection: Protection, version: str | None
    ) -> None:
        super().__init__(version, protection=protection)
        self.client = client
        self.frame = frame
        self.layout = layout


def ingest_on(
    client: "Client", source: Source, *, coding: Coding, draws: Draws, fingerprint: Fingerprint | None = None
) -> ClusterRecords:
    """Read, code and bound the table on the workers, and wait until they are done: `dpcore.tables.ingest.ingest` for a cluster.

    One worker reads each piece of the table. Dask's shuffle brings all rows of a unit to one partition, where the local engine's function
    bounds them. Rows and draws are functions of the piece alone, so if a worker is lost, others compute the same result again.

    Raises:
        SourceError: If the table cannot be read.
    """
    check_columns(source, columns=coding.columns)
    check_types(source, reads=coding.reads)
    word, layout, parts = new_word(), Layout.of(coding), source.pieces(ids=coding.ids)
    after = layout.tallied if coding.tallies else layout.bounded

    def kept() -> tuple["DataFrame", Sums]:
        from dask import dataframe, delayed  # noqa: PLC0415  an extra
        from distributed import futures_of, wait  # noqa: PLC0415

        def each(task: Task, arguments: Iterable[Any], *, what: str) -> list[Any]:
            keys = (f"dpflow-{what}-{word}-{number}" for number in range(len(parts)))
            return [
                delayed(task, pure=True)(argument, dask_key_name=key)
                for argument, key in zip(arguments, keys, strict=True)
            ]

        def joined(place: int, meta: "pd.DataFrame", *, what: str) -> "DataFrame":
            taken = each(TakeOne(word, place=place), coded, what=what)
            return dataframe.from_delayed(taken, meta=meta, verify_meta=False)

        code = CodePiece(word, coding=coding, draws=draws, fingerprint=fingerprint)
        coded = each(code, _numbered(word, parts), what="coded")
        frame, sums = joined(0, layout.empty(), what="frame"), joined(1, sums_frame(Fingerprint.nothing()), what="sums")
        if coding.by_unit:
            limit = coding.protection.rows_per_unit
            bound = BoundUnits(word, layout=layout, rows_per_unit=limit, agreeing=coding.agreeing)
            task = TallyUnits(word, layout=layout, edges=coding.edges) if coding.tallies else bound
            shuffled = frame.shuffle(on=ID, npartitions=len(parts), shuffle_method="p2p")
            frame = shuffled.map_partitions(task, meta=after.empty(), enforce_metadata=False)
        frame, sums = client.persist([frame, sums])  # together, so that each piece is read only once
        futures = futures_of([frame, sums])
        wait(futures)
        for future in futures:
            if future.status != "finished":
                future.result()  # raises; for a finished future it would fetch the rows
        return frame, sums_of(client.gather(futures_of(sums)))

    frame, sums = asked(client, kept, doing="reading the table")
    version = None if fingerprint is None else fingerprint.version(sums)
    return ClusterRecords(client=client, frame=frame, layout=after, protection=coding.counted, version=version)


def readable_version_on(
    client: "Client", source: Source, *, coding: Coding, undecided: Collection[str], fingerprint: Fingerprint
) -> str:
    """Compute the version on the workers: `dpcore.tables.ingest.readable_version` for a cluster."""
    word, parts = new_word(), source.pieces(ids=coding.ids)
    task = SumPiece(word, coding=coding, undecided=undecided, fingerprint=fingerprint)
    keys = [f"dpflow-version-{word}-{number}" for number in range(len(parts))]

    def told() -> list[Sums]:
        sums: list[Sums] = client.gather(client.map(task, _numbered(word, parts), key=keys))
        return sums

    sums = asked(client, told, doing="reading the table")
    return fingerprint.version(sum(sums, start=Fingerprint.nothing()))


def asked(client: "Client", question: Callable[[], T], *, doing: str) -> T:
    """Run a computation on the cluster. If it fails, raise an error with a public message."""

    def ask() -> T:
        with client.as_current():
            return question()

    return publicly(ask, doing=doing, where="on the cluster")


def new_word() -> str:
    """Return a new meaningless word for the names of tasks."""
    return secrets.token_hex(8)


def _numbered(word: str, parts: Sequence[Part]) -> list[Piece]:
    return [Piece(word, number=number, part=part) for number, part in enumerate(parts)]
