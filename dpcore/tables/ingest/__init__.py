"""Turn the raw table into private records: read it, code it by the declared universe, bound each unit's rows."""

from dpcore.tables.ingest.coding import Coding
from dpcore.tables.ingest.draws import Draws
from dpcore.tables.ingest.fingerprint import Fingerprint, check_key, fingerprint_key
from dpcore.tables.ingest.records import Records, Versioned, ingest, readable_version
from dpcore.tables.sources.source import Source

__all__ = [
    "Coding",
    "Draws",
    "Fingerprint",
    "Records",
    "Source",
    "Versioned",
    "check_key",
    "fingerprint_key",
    "ingest",
    "readable_version",
]
