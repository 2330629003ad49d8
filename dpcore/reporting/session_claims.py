"""The claims of sessions: what the ledger says about which runs are sessions, and which releases they began with."""

import re
from dataclasses import dataclass

from dpcore.ledger import Ledger, Run, RunState

_CLAIM = re.compile(r"session of ([0-9a-f]{64}) from run (\S+) bought for epsilon (\S+?)( unchanged)?")


@dataclass(frozen=True)
class Claim:
    """What a session's run is for, as its claim in the ledger says.

    Attributes:
        digest: The meaning of its spec, whatever the epsilon.
        first: The run of the release with which it begins.
        epsilon: The epsilon for which it buys that release.
        unchanged: Whether the opener has declared that the table is the same as for the dataset's newest release.
    """

    digest: str
    first: str
    epsilon: float
    unchanged: bool

    @classmethod
    def read(cls, text: str) -> "Claim | None":
        """Read a claim; return None if it is not that of a session.

        >>> Claim.read(Claim(64 * "0", "5f0c", 0.9, unchanged=True).text).first, Claim.read(64 * "0")
        ('5f0c', None)
        """
        match = _CLAIM.fullmatch(text)
        return cls(match[1], match[2], float.fromhex(match[3]), unchanged=match[4] is not None) if match else None

    @property
    def text(self) -> str:
        """The claim as the ledger has it."""
        declared = " unchanged" if self.unchanged else ""
        return f"session of {self.digest} from run {self.first} bought for epsilon {self.epsilon.hex()}{declared}"


def sessions(ledger: Ledger, account: str) -> dict[Run, Claim]:
    """Return the sessions of an account, oldest first, with their claims."""
    read = {run: Claim.read(run.claim) for run in ledger.runs(account)}
    return {run: claim for run, claim in read.items() if claim is not None}


def beginnings(ledger: Ledger, account: str) -> dict[str, str]:
    """Return the runs whose releases open sessions began with, each with the newest such session. These sessions cannot go on without them."""
    return {claim.first: run.id for run, claim in sessions(ledger, account).items() if run.state is RunState.OPEN}
