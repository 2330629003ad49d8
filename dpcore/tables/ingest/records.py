"""Read a source into coded records, with at most the declared number of rows per unit."""

import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pyarrow as pa

from dpcore.privacy.protection import Protection
from dpcore.private import Private
from dpcore.tables.ingest.agreement import agreed
from dpcore.tables.ingest.bounding import bound
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
    """Coded rows in chunks, with weights if they are declared. The chunks can be iterated any number of times."""

    __slots__ = ("_spool", "_weighted")

    def __init__(self, spool: Spool, *, weighted: bool, protection: Protection, version: str | None = None) -> None:
        super().__init__(version, protection=protection)
        self._spool = spool
        self._weighted = weighted

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
            yield (columns[:-1], columns[-1]) if self._weighted else (columns, None)


def ingest(source: Source, *, coding: Coding, draws: Draws, fingerprint: Fingerprint | None = None) -> Records:
    """Read the coding's columns from the source, code the rows, and bound the rows of each unit.

    For the unit `row` nothing is bounded and no id is read. Otherwise the coded rows are split into buckets by unit, and each bucket is
    bounded separately; then its kept rows are made to agree in the constant columns. If the coding tallies, the records are units with the
    bucket of their number of rows, and nothing is bounded.

    With a fingerprint, the records carry the version of all coded rows, computed in the same pass.

    Memory: the batches being coded, the memory limit of the spools, and one bucket, which is a 128th of the coded rows.
    """
    check_columns(source, columns=coding.columns)
    check_types(source, reads=coding.reads)
    sums = Fingerprint.nothing()
    coded = _code(source, coding=coding, draws=draws, fingerprint=fingerprint, sums=sums)
    if coding.tallies:
        units = _by_unit(map(started, coded), tallied)
        coded = (bucketed(many, edges=coding.edges) for many in units)
    elif coding.by_unit:
        bounded = _by_unit(coded, lambda many: bound(many, rows_per_unit=coding.protection.rows_per_unit))
        coded = (agreed(many, axes=coding.agreeing) for many in bounded)
    spool = Spool()
    for chunk in _joined(coded, rows=CHUNK_ROWS):
        spool.append((*chunk.codes, *(() if chunk.weights is None else (chunk.weights,))))
    version = None if fingerprint is None else fingerprint.version(sums)
    return Records(spool, weighted=coding.counted.weight is not None, protection=coding.counted, version=version)


def readable_version(source: Source, *, coding: Coding, undecided: Collection[str], fingerprint: Fingerprint) -> str:
    """Read the table only to compute its version, before the cells of some attributes are known.

    Args:
        source: The table.
        coding: How it is read.
        undecided: The attributes whose cells are not yet known: see `Coding.words`.
        fingerprint: The run's.
    """
    sums = Fingerprint.nothing()
    for part in source.pieces(ids=coding.ids):
        sums += piece_sums(part, coding=coding, undecided=undecided, fingerprint=fingerprint)
    return fingerprint.version(sums)


def piece_sums(part: Part, *, coding: Coding, undecided: Collection[str], fingerprint: Fingerprint) -> Sums:
    """Return the sums that one piece adds to `readable_version`."""
    sums = Fingerprint.nothing()
    for batch in read_piece(part, columns=coding.columns):
        sums += fingerprint.of_words(coding.words(batch, undecided=undecided, key=fingerprint.unit_key()))
    return sums


def _code(
    source: Source, *, coding: Coding, draws: Draws, fingerprint: Fingerprint | None, sums: Sums
) -> Iterator[Coded]:
    """Yield the coded batches in order. Threads code them while the next batch is read.

    Add the fingerprint's sums of each batch to `sums`.
    """

    def code(batch: pa.RecordBatch, *, piece: int, start: int) -> tuple[Coded, Sums | None]:
        coded = coding.code(batch, draws=draws, piece=piece, start=start)
        return coded, None if fingerprint is None else fingerprint.of(coded, shape=coding.universe.shape)

    def done(future: Future[tuple[Coded, Sums | None]]) -> Coded:
        coded, added = future.result()
        if added is not None:
            np.add(sums, added, out=sums)
        return coded

    cores = os.cpu_count() or 1
    at_work: deque[Future[tuple[Coded, Sums | None]]] = deque()
    with ThreadPoolExecutor(cores, thread_name_prefix="coding") as pool:
        for piece, part in enumerate(source.pieces(ids=coding.ids)):
            start = 0
            for batch in read_piece(part, columns=coding.columns):
                at_work.append(pool.submit(code, batch, piece=piece, start=start))
                start += batch.num_rows
                if len(at_work) > cores:
                    yield done(at_work.popleft())
        while at_work:
            yield done(at_work.popleft())


def _by_unit(coded: Iterable[Coded], reduce: Callable[[Coded], Coded]) -> Iterator[Coded]:
    """Reduce rows that may not fit in memory: split them into buckets by unit, then reduce bucket by bucket.

    Args:
        coded: The rows, with ids.
        reduce: Bounds or joins the rows of each unit. Reducing parts of the rows first must not change the result.
    """
    buckets = [Spool() for _ in range(BUCKETS)]
    kind: Coded | None = None
    for many in _joined(coded, rows=BUCKETED_ROWS):
        # a row that is not among the k smallest draws of its unit here is not among them in the whole table either
        kind = reduce(many)
        for bucket, part in zip(buckets, kind.split(BUCKETS), strict=True):
            bucket.append(part.columns())
    for bucket in buckets:
        with closing(bucket):
            chunks = [kind.like(columns) for columns in bucket.chunks()] if kind is not None else []
        if chunks:
            yield reduce(Coded.joined(chunks))


def _joined(coded: Iterable[Coded], *, rows: int) -> Iterator[Coded]:
    """Join small parts into parts of at least `rows` rows, except for the last one."""
    waiting: list[Coded] = []
    for part in coded:
        waiting.append(part)
        if sum(one.rows for one in waiting) >= rows:
            yield Coded.joined(waiting)
            waiting = []
    if waiting:
        yield Coded.joined(waiting)
