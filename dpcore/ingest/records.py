"""The private table as codes of the declared universe, with no more rows of one unit than declared."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

from dpcore.ingest.bounding import bound
from dpcore.ingest.coded import Coded, Weights
from dpcore.ingest.coding import Coding
from dpcore.ingest.draws import Draws
from dpcore.ingest.source import Source, check_columns, check_types, read_piece
from dpcore.ingest.spool import Spool
from dpcore.private import Private
from dpcore.universe import CompactCodes

BLOCK_ROWS = 1 << 16  # of records, at least, but for the last one
BUCKETS = 128  # of units: what is held to bound them is one such part of the coded table
BUCKETED_ROWS = 1 << 18  # split at a time, so that what is appended to a bucket is no crumb


class Records(Private):
    """Coded rows in blocks, each with its weights if the rows have any; they may be gone through again and again."""

    __slots__ = ("_spool", "_weighted")

    def __init__(self, spool: Spool, *, weighted: bool) -> None:
        self._spool = spool
        self._weighted = weighted

    @classmethod
    def of(cls, codes: Sequence[CompactCodes], *, weights: Weights | None) -> "Records":
        """Make records of rows that are in memory."""
        spool = Spool()
        spool.append(codes if weights is None else (*codes, weights))
        return cls(spool, weighted=weights is not None)

    def blocks(self) -> Iterator[tuple[tuple[CompactCodes, ...], Weights | None]]:
        """Yield the rows, one array of codes for each attribute, and how often each row counts; None if each counts once.

        For counting on the private side only.
        """
        for columns in self._spool.blocks():
            yield (columns[:-1], columns[-1]) if self._weighted else (columns, None)


def ingest(source: Source, *, coding: Coding, draws: Draws) -> Records:
    """Read what the coding names of the source, code it, and keep what its protection allows of each unit.

    For the unit `row` there is nothing to bound, and no id is read. Else the coded rows go into buckets by their units, and then each
    bucket is bounded by itself.

    Memory: the batches that are at work, what spools may hold, and one bucket: a 128th of the coded rows.
    """
    check_columns(source, columns=coding.columns)
    check_types(source, reads=coding.reads)
    coded = _code(source, coding=coding, draws=draws)
    if coding.by_unit:
        coded = _bounded(coded, rows_per_unit=coding.protection.rows_per_unit)
    spool = Spool()
    for block in _joined(coded, rows=BLOCK_ROWS):
        spool.append((*block.codes, *(() if block.weights is None else (block.weights,))))
    return Records(spool, weighted=coding.protection.weight is not None)


def _code(source: Source, *, coding: Coding, draws: Draws) -> Iterator[Coded]:
    """Code batch by batch: the next one is read while others are coded, and they come out in the order in which they went in."""
    cores = os.cpu_count() or 1
    at_work: deque[Future[Coded]] = deque()
    with ThreadPoolExecutor(cores, thread_name_prefix="coding") as pool:
        for piece, part in enumerate(source.pieces()):
            start = 0
            for batch in read_piece(part, columns=coding.columns):
                at_work.append(pool.submit(coding.code, batch, draws=draws, piece=piece, start=start))
                start += batch.num_rows
                if len(at_work) > cores:
                    yield at_work.popleft().result()
        while at_work:
            yield at_work.popleft().result()


def _bounded(coded: Iterable[Coded], *, rows_per_unit: int) -> Iterator[Coded]:
    """Bound rows that may be more than the memory holds: first into buckets, all rows of a unit into the same, then bucket by bucket."""
    buckets = [Spool() for _ in range(BUCKETS)]
    kind: Coded | None = None
    for many in _joined(coded, rows=BUCKETED_ROWS):
        # a row that is not among the k smallest draws of its unit here isn't in the whole table either
        kind = bound(many, rows_per_unit=rows_per_unit)
        for bucket, part in zip(buckets, kind.split(BUCKETS), strict=True):
            bucket.append(part.columns())
    for bucket in buckets:
        with closing(bucket):
            blocks = [kind.like(columns) for columns in bucket.blocks()] if kind is not None else []
        if blocks:
            yield bound(Coded.joined(blocks), rows_per_unit=rows_per_unit)


def _joined(coded: Iterable[Coded], *, rows: int) -> Iterator[Coded]:
    """Join what comes in small parts, until there are so many rows."""
    waiting: list[Coded] = []
    for part in coded:
        waiting.append(part)
        if sum(one.rows for one in waiting) >= rows:
            yield Coded.joined(waiting)
            waiting = []
    if waiting:
        yield Coded.joined(waiting)
