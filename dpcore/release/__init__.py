"""Publish a release: the Parquet rows, the measurements, the manifest, the card and the privacy statement."""

from dpcore.release.covered import BlocksStatement, state_blocks
from dpcore.release.draft import Codes, Draft, SyntheticRows
from dpcore.release.integrity import MANIFEST
from dpcore.release.ownership import adopt_folder, check_owner, claim_folder
from dpcore.release.publishing import Published, check_writable, publish, release_id
from dpcore.release.statement import Statement, state

__all__ = [
    "MANIFEST",
    "BlocksStatement",
    "Codes",
    "Draft",
    "Published",
    "Statement",
    "SyntheticRows",
    "adopt_folder",
    "check_owner",
    "check_writable",
    "claim_folder",
    "publish",
    "release_id",
    "state",
    "state_blocks",
]
