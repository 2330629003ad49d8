"""The private table: sources, ingestion, counting and histograms, on this machine or on a Dask cluster."""
