"""From raw files to private records: read, encode by the declared universe, bound what one unit contributes."""

from dpcore.ingest.coding import Coding
from dpcore.ingest.draws import Draws
from dpcore.ingest.fingerprint import data_version, fingerprint_key
from dpcore.ingest.records import Records, ingest
from dpcore.ingest.source import Source

__all__ = ["Coding", "Draws", "Records", "Source", "data_version", "fingerprint_key", "ingest"]
