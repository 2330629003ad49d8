"""From raw files to private records: read, encode by the declared universe, bound what one unit contributes."""

from dpcore.ingest.fingerprint import data_version, fingerprint_key
from dpcore.ingest.records import Records, ingest
from dpcore.ingest.source import Source

__all__ = ["Records", "Source", "data_version", "fingerprint_key", "ingest"]
