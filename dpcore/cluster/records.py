"""The private table as coded and bounded rows that stay on the workers of a cluster."""

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from dpcore.cluster.frames import UNIT, Layout
from dpcore.cluster.public import publicly
from dpcore.cluster.work import BoundUnits, CodePiece, Piece, VersionOfPart
from dpcore.ingest.coding import Coding
from dpcore.ingest.draws import Draws
from dpcore.ingest.source import Part, Source, check_columns, check_types
from dpcore.private import Private

if TYPE_CHECKING:
    from dask.dataframe import DataFrame
    from distributed import Client

T = TypeVar("T")


class ClusterRecords(Private):
    """Rows on a cluster: for the histogram that counts them there."""

    __slots__ = ("client", "frame", "layout")

    def __init__(self, *, client: "Client", frame: "DataFrame", layout: Layout) -> None:
        self.client = client
        self.frame = frame
        self.layout = layout


def ingest_on(client: "Client", source: Source, *, coding: Coding, draws: Draws) -> ClusterRecords:
    """Let the workers read, code and bound the table, and return when they have: `dpcore.ingest.ingest` for a cluster.

    Every piece of the table is read by one worker. Dask's own shuffle brings all rows of a unit to one partition, where the same function
    bounds them that does so here. What is read and drawn is a function of the piece alone, so that a worker that is lost in the middle
    loses nothing: what it had is made again, the same, by others.

    Raises:
        SourceError: If the table cannot be read.
    """
    check_columns(source, columns=coding.columns)
    check_types(source, reads=coding.reads)
    word, layout, parts = secrets.token_hex(8), Layout.of(coding), source.pieces()

    def kept() -> "DataFrame":
        from dask import dataframe  # noqa: PLC0415  an extra
        from distributed import futures_of, wait  # noqa: PLC0415

        code = CodePiece(word, coding=coding, draws=draws)
        frame = dataframe.from_map(code, _numbered(word, parts), meta=layout.empty())
        if coding.by_unit:
            bound = BoundUnits(word, layout=layout, rows_per_unit=coding.protection.rows_per_unit)
            shuffled = frame.shuffle(on=UNIT, npartitions=len(parts), shuffle_method="p2p")
            frame = shuffled.map_partitions(bound, meta=layout.bounded.empty(), enforce_metadata=False)
        frame = client.persist(frame)
        futures = futures_of(frame)
        wait(futures)
        for future in futures:
            if future.status != "finished":
                future.result()  # raises; of those that are finished it would fetch the rows
        return frame

    return ClusterRecords(client=client, frame=asked(client, kept, doing="reading the table"), layout=layout.bounded)


def versions_on(client: "Client", parts: Sequence[Part], *, columns: Sequence[str], key: bytes) -> list[bytes]:
    """Let the workers tell the version of each part: only they need to read them."""
    word = secrets.token_hex(8)
    tell = VersionOfPart(word, columns=columns, key=key)
    keys = [f"dpflow-version-{word}-{number}" for number in range(len(parts))]

    def told() -> list[bytes]:
        versions: list[bytes] = client.gather(client.map(tell, _numbered(word, parts), key=keys))
        return versions

    return asked(client, told, doing="reading the table")


def asked(client: "Client", question: Callable[[], T], *, doing: str) -> T:
    """Ask the cluster something; of a failure only public words are left."""

    def ask() -> T:
        with client.as_current():
            return question()

    return publicly(ask, doing=doing, where="on the cluster")


def _numbered(word: str, parts: Sequence[Part]) -> list[Piece]:
    return [Piece(word, number=number, part=part) for number, part in enumerate(parts)]
