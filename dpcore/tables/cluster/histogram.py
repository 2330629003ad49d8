"""Private counts of a table on a cluster. The workers count the rows they hold."""

from collections.abc import Sequence

from dpcore.tables.cluster.counts import count_on
from dpcore.tables.cluster.records import ClusterRecords
from dpcore.tables.counting import Counts
from dpcore.tables.histogram import Histogram
from dpcore.universe import Universe
from dpcore.workload import Axes


class ClusterHistogram(Histogram):
    """Exact counts of rows by cell, computed by the workers that hold the rows."""

    __slots__ = ("_records",)

    def __init__(self, records: ClusterRecords, universe: Universe) -> None:
        super().__init__(universe.shape)
        self._records = records

    def _counts(self, sets: Sequence[Axes]) -> list[Counts]:
        return count_on(self._records, shape=self._shape, sets=sets, coarse=self._coarse)
