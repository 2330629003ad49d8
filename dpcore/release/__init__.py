"""Publish a release: the Parquet rows, the measurements, the manifest, the card and the privacy statement."""

from dpcore.release.covered import BlocksStatement
from dpcore.release.dataset_folder import release_id
from dpcore.release.draft import Codes, Draft, Judgement, Persons, SyntheticRows, public_seed
from dpcore.release.integrity import MANIFEST
from dpcore.release.ownership import adopt_folder, check_owner, claim_folder
from dpcore.release.publishing import Published
from dpcore.release.statement import ChosenLimit, Statement, state
from dpcore.release.targets import check_writable, publish, published_before, settle
from dpcore.release.withdrawal import require_rewritable, retain_declared

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
    "public_seed",
    "publish",
    "published_before",
    "release_id",
    "require_rewritable",
    "retain_declared",
    "settle",
    "state",
]
