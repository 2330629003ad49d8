"""Publish a release: the Parquet rows, the measurements, the manifest, the card and the privacy statement."""

from dpcore.release.covered import BlocksStatement, state_blocks
from dpcore.release.dataset_folder import release_id, reservation_numbers
from dpcore.release.draft import Codes, Draft, Judgement, SyntheticRows
from dpcore.release.integrity import MANIFEST
from dpcore.release.ownership import adopt_folder, check_owner, claim_folder
from dpcore.release.publishing import Published, check_writable, publish
from dpcore.release.statement import ChosenLimit, Statement, state

__all__ = [
    "MANIFEST",
    "BlocksStatement",
    "ChosenLimit",
    "Codes",
    "Draft",
    "Judgement",
    "Published",
    "Statement",
    "SyntheticRows",
    "adopt_folder",
    "check_owner",
    "check_writable",
    "claim_folder",
    "publish",
    "release_id",
    "reservation_numbers",
    "state",
    "state_blocks",
]
