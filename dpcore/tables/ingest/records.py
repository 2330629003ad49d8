"""Read a source into coded records, with at most the declared number of rows per unit."""

import os
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dpcore.privacy.protection import Protection
from dpcore.private import Private
from dpcore.tables.ingest.agreement import agreed
from dpcore.tables.ingest.bounding import bound, ranked
from dpcore.tables.ingest.coded import Coded, Weights
from dpcore.tables.ingest.coding import Coding
from dpcore.tables.ingest.draws import Draws
from dpcore.tables.ingest.fingerprint import Fingerprint, Sums
from dpcore.tables.ingest.spool import Spool
from dpcore.tables.ingest.tally import bucketed, started, tallied
from dpcore.tables.sources.part import Part
from dpcore.tables.sources.source import Source, check_columns, check_types, read_piece
from dpcore.universe import CompactCodes

CHUNK_ROWS = 1 << 16  # the smallest chunk of records, except for the last one
BUCKETS = 128  # of units: bounding holds one bucket of the coded table in memory
BUCKETED_ROWS = 1 << 18  # split at a time, so that the pieces appended to a bucket are not tiny


class Versioned(Private):
    """Rows that were read, with their version and the protection that bounds them. Both are public.

    Attributes:
        version: The version of the rows before bounding, or None if it was not requested. It may be stored; see `Fingerprint`.
        protection: How much one unit adds to counts of these rows, at most.
    """

    __slots__ = ("protection", "version")

    def __init__(self, version: str | None, *, protection: Protection) -> None:
        self.version = version
        self.protection = protection


class Records(Versioned):
    """Coded rows in chunks, with weights if they are declared. The chunks can be iterated any number of times.

    Attributes:
        classes: If the rows say which class of sizes their unit is in, the number of classes. The class is then the last code.
    """

    __slots__ = ("_spool", "_weighted", "classes")

    def __init__(
        self,
        spool: Spool,
        *,
        weighted: bool,
        protection: Protection,
        version: str | None = None,
        classes: int | None = None,
    ) -> None:
        super().__init__(version, protection=protection)
        self._spool = spool
        self._weighted = weighted
        self.classes = classes

    @classmethod
    def of(cls, codes: Sequence[CompactCodes], *, weights: Weights | None, protection: Protection) -> "Records":
        """Make records from rows in memory, which are bounded already."""
        spool = Spool()
        spool.append(codes if weights is None else (*codes, weights))
        return cls(spool, weighted=weights is not None, protection=protection)

    def chunks(self) -> Iterator[tuple[tuple[CompactCodes, ...], Weights | None]]:
        """Yield chunks: one array of codes for each attribute, and how often each row counts; None if each counts once.

        For counting on the private side only.
        """
        for columns in self._spool.chunks():
            if self.classes is not None:
                yield columns[:-1], within(columns[-1], limit=self.protection.rows_per_unit)
            else:
                yield (columns[:-1], columns[-1]) if self._weighted else (columns, None)

    def ranked_chunks(self) -> Iterator[tuple[tuple[CompactCodes, ...], Weights]]:
        """Yield chunks of whole units: one array of codes for each attribute and the class, and the rank of each row among those of its unit."""
        for columns in self._spool.chunks():
            yield columns[:-1], columns[-1]


def ingest(source: Source, *, coding: Coding, draws: Draws, fingerprint: Fingerprint | None = None) -> Records:
    """Read the coding's columns from the source, code the rows, and bound the rows of each unit.

    For the unit `row` nothing is bounded and no id is read. Otherwise the coded rows are split into buckets by unit, and each bucket is
    reduced and finished separately.

    With a fingerprint, the records carry the version of all coded rows, computed in the same pass.

    Memory: the batches being coded, the memory limit of the spools, and one bucket, which is a 128th of the coded rows.
    """
    sums = Fingerprint.nothing()
    coded = _code(checked_pieces(source, coding), Coder(coding, draws, fingerprint), sums=sums)
    if coding.by_unit:
        coded = (finished(units, coding) for units in _by_unit(coded, coding))
    spool = Spool()
    for chunk in _joined(coded, rows=CHUNK_ROWS):
        spool.append(chunk.columns())
    version = None if fingerprint is None else fingerprint.version(sums)
    return Records(
        spool,
        weighted=coding.counted.weight is not None,
        protection=coding.counted,
        version=version,
        classes=coding.classes,
    )


def within(ranks: Weights, *, limit: int) -> Weights:
    """Return how often each row counts if only the first rows of each unit do: once or not at all."""
    return (ranks < limit).astype(np.uint8)


def readable_version(source: Source, *, coding: Coding, undecided: Collection[str], fingerprint: Fingerprint) -> str:
    """Read the table only to compute its version, before the cells of some attributes are known.

    Args:
        source: The table.
        coding: How it is read.
        undecided: The attributes whose cells are not yet known: see `Coding.words`.
        fingerprint: The run's.
    """
    sums = Fingerprint.nothing()
    for piece in source.pieces(ids=coding.ids):
        sums += piece_sums(piece, coding=coding, undecided=undecided, fingerprint=fingerprint)
    return fingerprint.version(sums)


def checked_pieces(source: Source, coding: Coding) -> tuple[Part, ...]:
    """Check the names and types of the columns to read, and return the pieces of the table."""
    check_columns(source, columns=coding.columns)
    check_types(source, reads=coding.reads)
    return source.pieces(ids=coding.ids)


def piece_sums(piece: Part, *, coding: Coding, undecided: Collection[str], fingerprint: Fingerprint) -> Sums:
    """Return the sums that one piece adds to `readable_version`."""
    sums = Fingerprint.nothing()
    for batch in read_piece(piece, columns=coding.columns):
        sums += fingerprint.of_words(coding.words(batch, undecided=undecided, key=fingerprint.unit_key()))
    return sums


@dataclass(frozen=True)
class Coder:
    """Codes the batches of one pass: with a fingerprint, also their part of the data's version."""

    coding: Coding
    draws: Draws
    fingerprint: Fingerprint | None

    def code(self, batch: pa.RecordBatch, *, piece: int, start: int) -> tuple[Coded, Sums]:
        """Return the rows of a batch and their sums. If units are tallied, each row starts a record of its unit."""
        coded = self.coding.code(batch, draws=self.draws, piece=piece, start=start)
        shape = self.coding.universe.shape
        sums = Fingerprint.nothing() if self.fingerprint is None else self.fingerprint.of(coded, shape=shape)
        return coded if self.coding.edges is None else started(coded), sums


def reduced(coded: Coded, coding: Coding) -> Coded:
    """Keep the rows of each unit that may count, or join its records. Reducing parts of the rows first does not change the result."""
    return bound(coded, rows_per_unit=coding.reach) if coding.edges is None else tallied(coded)


def finished(coded: Coded, coding: Coding) -> Coded:
    """Return the records of units whose rows are all here, without ids and draws.

    If units are tallied, a record is a unit with the bucket of its number of rows. Otherwise the kept rows agree in the constant columns.
    """
    if coding.edges is not None:
        return bucketed(coded, edges=coding.edges)
    if coding.ends is not None:
        return ranked(coded, ends=coding.ends)
    rows = agreed(coded, axes=coding.agreeing)
    return Coded(rows.codes, weights=rows.weights, ids=None, draws=None)


def _code(pieces: Sequence[Part], coder: Coder, *, sums: Sums) -> Iterator[Coded]:
    """Yield the coded batches in order, and add their sums to `sums`. Threads code them while the next batch is read."""
    cores = os.cpu_count() or 1
    at_work: deque[Future[tuple[Coded, Sums]]] = deque()

    def oldest() -> Coded:
        coded, added = at_work.popleft().result()
        np.add(sums, added, out=sums)
        return coded

    with ThreadPoolExecutor(cores, thread_name_prefix="coding") as pool:
        for number, piece in enumerate(pieces):
            start = 0
            for batch in read_piece(piece, columns=coder.coding.columns):
                at_work.append(pool.submit(coder.code, batch, piece=number, start=start))
                start += batch.num_rows
                if len(at_work) > cores:
                    yield oldest()
        while at_work:
            yield oldest()


def _by_unit(coded: Iterable[Coded], coding: Coding) -> Iterator[Coded]:
    """Reduce rows with ids, which may not fit in memory: split them into buckets by unit, then reduce bucket by bucket."""
    buckets = [Spool() for _ in range(BUCKETS)]
    kind: Coded | None = None
    for rows in _joined(coded, rows=BUCKETED_ROWS):
        # a row that is not among the k smallest draws of its unit here is not among them in the whole table either
        kind = reduced(rows, coding)
        for bucket, part in zip(buckets, kind.split(BUCKETS), strict=True):
            bucket.append(part.columns())
    for bucket in buckets:
        with closing(bucket):
            chunks = [kind.like(columns) for columns in bucket.chunks()] if kind is not None else []
        if chunks:
            yield reduced(Coded.joined(chunks), coding)


def _joined(coded: Iterable[Coded], *, rows: int) -> Iterator[Coded]:
    """Join small parts into parts of at least `rows` rows, except for the last one."""
    waiting: list[Coded] = []
    for part in coded:
        waiting.append(part)
        if sum(part.rows for part in waiting) >= rows:
            yield Coded.joined(waiting)
            waiting = []
    if waiting:
        yield Coded.joined(waiting)
