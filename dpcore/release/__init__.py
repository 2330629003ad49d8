"""What leaves: Parquet, measurements, manifest, card and the statement of what was promised."""

from dpcore.accounting import epsilon_of
from dpcore.release.covered import BlocksStatement, state_blocks
from dpcore.release.draft import Codes, Draft, SyntheticRows
from dpcore.release.publishing import check_writable, publish, release_id
from dpcore.release.statement import Statement, state

__all__ = [
    "BlocksStatement",
    "Codes",
    "Draft",
    "Statement",
    "SyntheticRows",
    "check_writable",
    "epsilon_of",
    "publish",
    "release_id",
    "state",
    "state_blocks",
]
