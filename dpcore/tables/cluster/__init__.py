"""Read, bound and count a table on a Dask cluster. Only counts come back.

Dask is an optional extra (`pip install -e '.[dask]'`, in the folder of dpflow). It is imported only when a spec declares a cluster.
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
