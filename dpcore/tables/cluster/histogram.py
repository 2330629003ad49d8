"""Private counts of a table on a cluster. The workers count the rows they hold, and their counts are added up in a tree."""

from collections.abc import Sequence
from math import prod

import numpy as np

from dpcore.marginals.workload import Axes
from dpcore.tables.cluster.records import ClusterRecords, asked, new_word
from dpcore.tables.cluster.work import CountSets
from dpcore.tables.counting import Coarse, Counts, in_groups
from dpcore.tables.histogram import Histogram
from dpcore.universe import Universe

MOST_CELLS = 1 << 22  # counted in one pass: a worker holds a few times as many 8-byte integers
SPLIT_EVERY = 8  # partitions whose counts one task adds up


class ClusterHistogram(Histogram):
    """Exact counts of rows by cell, computed by the workers that hold the rows."""

    __slots__ = ("_records",)

    def __init__(self, records: ClusterRecords, universe: Universe) -> None:
        super().__init__(universe.shape, protection=records.protection)
        self._records = records

    def _counts(self, sets: Sequence[Axes]) -> list[Counts]:
        return count_on(self._records, shape=self._shape, sets=sets, coarse=self._coarse)


def count_on(
    records: ClusterRecords, *, shape: Sequence[int], sets: Sequence[Axes], coarse: Sequence[Coarse]
) -> list[Counts]:
    """Count the rows over each set of axes: `dpcore.tables.counting.count_sets` for a cluster.

    The workers count their partitions with that same function. Their counts are added up on the way, and nothing else leaves the workers.
    """
    counts: list[Counts] = []

    def cells(axes: Axes) -> int:
        return prod(shape[axis] for axis in axes)

    for group in in_groups(sets, cells=cells, most=MOST_CELLS):
        shapes = [tuple(shape[axis] for axis in axes) for axes in group]
        count = CountSets(new_word(), layout=records.layout, shape=shape, sets=group, coarse=coarse)
        sums = _sums(records, count, cells=sum(map(prod, shapes)))
        ends = np.cumsum([prod(one) for one in shapes])
        counts += [part.reshape(one) for part, one in zip(np.split(sums, ends[:-1]), shapes, strict=True)]
    return counts


def _sums(records: ClusterRecords, count: CountSets, *, cells: int) -> Counts:
    def total() -> Counts:
        from dask import array, delayed  # noqa: PLC0415  an extra

        rows = [
            array.from_delayed(
                delayed(count, pure=True)(part, dask_key_name=f"{count.__name__}-{count.word}-{number}"),
                shape=(1, cells),
                dtype=np.int64,
            )
            for number, part in enumerate(records.frame.to_delayed())
        ]
        sums: Counts = records.client.compute(array.concatenate(rows).sum(axis=0, split_every=SPLIT_EVERY)).result()
        return sums

    return asked(records.client, total, doing="counting")
