"""The epsilon above which a run of an account needs the steward's approval. Stored in the registry's folder."""

import math
from dataclasses import dataclass

from dpcore.errors import UsageError
from dpcore.places import fixed_registry_folder
from dpcore.reporting.formatting import at_most
from dpcore.spec import Declaration
from dpcore.steward.entries import Entries, Entry, checked_name

LONGEST_SECONDS = 366 * 86400


@dataclass(frozen=True, kw_only=True)
class Approval(Entry):
    """An account's approval threshold.

    Attributes:
        account: The account.
        above: A run that may spend more epsilon than this needs approval; 0 means every run.
        delta: The account's delta, at which `above` applies. At a larger delta the same epsilon costs more budget, so a run with
            a larger delta needs approval whatever its epsilon.
        within_seconds: How long a run waits for approval before it is refused.
    """

    account: str
    above: float
    delta: float
    within_seconds: int

    def __post_init__(self) -> None:
        checked_name(self.account, what="an account's name")
        if not (math.isfinite(self.above) and self.above >= 0):
            raise UsageError("--above must be an epsilon, such as 1.0; with 0 every run needs approval")
        if not 0 <= self.delta < 1:
            raise UsageError("the delta of an approval is its account's: at least 0 and below 1")
        if not 1 <= self.within_seconds <= LONGEST_SECONDS:
            raise UsageError("--within must be from a second to 366 days, such as 30m, 24h or 7d")


def require_approval(account: str, *, above: float, delta: float, within_seconds: int) -> Approval:
    """Require approval for every run of an account that may spend more epsilon than `above`. Replaces an earlier threshold."""
    approval = Approval(account=account, above=above, delta=delta, within_seconds=within_seconds)
    _entries().write(account, approval)
    return approval


def require_none(account: str) -> bool:
    """Let the runs of an account start without approval. Return whether they needed it before."""
    return _entries().remove(account)


def approval_of(account: str) -> Approval | None:
    """Return an account's approval threshold, or None. An unreadable file raises; it never counts as approval."""
    approval = _entries().read(account)
    if approval is not None and approval.account != account:
        raise UsageError(f"the approval of account {account} names {approval.account}; {_MEND.format(name=account)}")
    return approval


def approval_for(declaration: Declaration) -> Approval | None:
    """Return the approval that a run of this declaration needs, or None if it needs none."""
    approval, privacy = approval_of(declaration.spec.dataset), declaration.spec.privacy
    if approval is None or (privacy.epsilon <= approval.above and privacy.delta <= approval.delta):
        return None
    return approval


def check_approved(declaration: Declaration, *, approved: bool) -> None:
    """Raise if a run needs approval and was not approved when it was started. For runs that cannot wait for approval."""
    approval = approval_for(declaration)
    if approval is not None and not approved:
        raise UsageError(
            f"{request(declaration, approval)}; as the steward, run it again with --approve, or ask for less"
        )


def request(declaration: Declaration, approval: Approval) -> str:
    """Describe the requested epsilon and the account's threshold."""
    privacy = declaration.spec.privacy
    at, asked = (
        (
            f" at delta {at_most(approval.delta)}",
            f"epsilon {at_most(privacy.epsilon)} at delta {at_most(privacy.delta)}",
        )
        if privacy.delta > approval.delta
        else ("", f"epsilon {at_most(privacy.epsilon)}")
    )
    return f"account {approval.account} needs the steward's approval above epsilon {at_most(approval.above)}{at}, and this run asks for {asked}"


_MEND = "set it again: dpflow approval {name} --none, then with --above"


def _entries() -> Entries[Approval]:
    return Entries(fixed_registry_folder(), ".approval", Approval, _MEND)
