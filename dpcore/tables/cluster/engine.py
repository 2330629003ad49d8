"""Read and count on a Dask cluster, which is connected on first use."""

import logging
from collections.abc import Collection
from contextlib import ExitStack

from distributed import Client

from dpcore.spec.engine import EngineSpec
from dpcore.tables.cluster.connecting import Connect
from dpcore.tables.cluster.histogram import ClusterHistogram
from dpcore.tables.cluster.records import ClusterRecords, ingest_on, readable_version_on
from dpcore.tables.engines import Engine
from dpcore.tables.histogram import Histogram
from dpcore.tables.ingest import Coding, Draws, Fingerprint, Source
from dpcore.universe import Universe

progress = logging.getLogger("dpcore.progress")


class DaskEngine(Engine):
    """Reads and counts on a Dask cluster. The rows stay on its workers."""

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
        client = self._connected()
        return readable_version_on(client, source, coding=coding, undecided=undecided, fingerprint=fingerprint)

    def read(self, source: Source, *, coding: Coding, draws: Draws, fingerprint: Fingerprint) -> ClusterRecords:
        """Read the table on the workers, which hold the rows in memory."""
        return ingest_on(self._connected(), source, coding=coding, draws=draws, fingerprint=fingerprint)

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
