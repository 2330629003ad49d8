"""What leaves: Parquet, measurements, manifest and the statement of what was promised."""

from dpcore.release.publishing import Codes, Draft, check_writable, publish, release_id
from dpcore.release.statement import Statement, epsilon_of, state

__all__ = ["Codes", "Draft", "Statement", "check_writable", "epsilon_of", "publish", "release_id", "state"]
