"""Publish a release: the Parquet rows, the measurements, the manifest, the card and the privacy statement."""

from dpcore.release.covered import BlocksStatement, state_blocks
from dpcore.release.dataset_folder import release_id
from dpcore.release.draft import Codes, Draft, Judgement, Persons, SyntheticRows
from dpcore.release.integrity import MANIFEST
from dpcore.release.ownership import adopt_folder, check_owner, claim_folder
from dpcore.release.publishing import Published, check_writable
from dpcore.release.retention import retain_declared
from dpcore.release.statement import ChosenLimit, Statement, state, stated_parts
from dpcore.release.targets import publish, published_before
from dpcore.release.versions import release_before
from dpcore.release.withdrawal import live_numbers, require_rewritable

__all__ = [
    "MANIFEST",
    "BlocksStatement",
    "ChosenLimit",
    "Codes",
    "Draft",
    "Judgement",
    "Persons",
    "Published",
    "Statement",
    "SyntheticRows",
    "adopt_folder",
    "check_owner",
    "check_writable",
    "claim_folder",
    "live_numbers",
    "publish",
    "published_before",
    "release_before",
    "release_id",
    "require_rewritable",
    "retain_declared",
    "state",
    "state_blocks",
    "stated_parts",
]
