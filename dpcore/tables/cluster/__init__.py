"""A Dask cluster that reads, bounds and counts a table which is larger than one machine; only counts come back.

Dask is an extra of its own (`pip install -e '.[dask]'`, in the folder of dpflow), and is imported when a cluster is asked for, not before.
"""

from dpcore.tables.cluster.connecting import (
    Connect,
    check_installed,
    connected,
    local_options,
    private_connection,
    reached,
)

__all__ = ["Connect", "check_installed", "connected", "local_options", "private_connection", "reached"]
