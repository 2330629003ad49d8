"""Read, ingest and count the private table, on this machine or on a Dask cluster."""
