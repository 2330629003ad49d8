"""From raw files to private records: read, encode by the declared universe, bound what one unit contributes."""

from dpcore.ingest.coding import Coding
from dpcore.ingest.draws import Draws
from dpcore.ingest.fingerprint import Fingerprint, fingerprint_key
from dpcore.ingest.records import Records, Versioned, ingest, readable_version
from dpcore.ingest.source import Source

__all__ = [
    "Coding",
    "Draws",
    "Fingerprint",
    "Records",
    "Source",
    "Versioned",
    "fingerprint_key",
    "ingest",
    "readable_version",
]
