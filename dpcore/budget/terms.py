"""What callers state of a step or a reserve: its guarantee, whom it protects, and who pays in which blocks."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Required, TypedDict, Unpack

from dpcore.budget.steps import Order
from dpcore.errors import UsageError
from dpcore.ledger import Account
from dpcore.mechanisms.declared import Declared, DpSgd, Number, StatedEpsilon, StatedMu, StatedRho
from dpcore.mechanisms.noise import Noise
from dpcore.privacy.accounting import Currency, budget_of, epsilon_of
from dpcore.reporting.formatting import at_most
from dpcore.steward.approvals import approval_of

LEASE_SECONDS = 3600
"""How long a step belongs to its worker if nobody can tell whether that is alive."""


class ReserveTerms(TypedDict, total=False):
    """What a reserve may state: exactly one of epsilon, rho and mu.

    Attributes:
        epsilon: An epsilon.
        delta: The delta to this epsilon. For a step, only 0 has a price.
        rho: The rho of zero-concentrated differential privacy.
        mu: The mu of Gaussian differential privacy.
        blocks: The blocks that may be touched, if the account is kept by block.
        analyst: The analyst whose allowance pays, if the account has allowances for analysts.
        purpose: The purpose whose allowance pays, likewise.
        approved: Whether the steward approves what is above the account's threshold.
    """

    epsilon: Number
    delta: Number
    rho: Number
    mu: Number
    blocks: Sequence[str] | None
    analyst: str | None
    purpose: str | None
    approved: bool


class StepTerms(ReserveTerms, total=False):
    """What a step may state besides: its unit, always, and instead of epsilon, rho and mu a mechanism.

    Attributes:
        unit: Whom the step protects. It must be the account's unit, and the neighbours are the account's.
        mechanism: What the step adds: `Laplace`, `Gaussian` or `DpSgd`, or noise of `dpcore.mechanisms`.
        lease_seconds: How long another worker waits if it cannot tell whether this one is alive: longer than the body takes.
    """

    unit: Required[str]
    mechanism: Declared | Noise
    lease_seconds: int


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms of a step, checked."""

    unit: str
    mechanism: Declared | Noise
    lease_seconds: int
    approved: bool
    payer: ReserveTerms

    def order(self, account: Account) -> Order:
        """Return what the step reserves. Raise if the account protects others, or does not count such a guarantee."""
        neighbours = self.mechanism.neighbours if isinstance(self.mechanism, DpSgd) else account.neighbours
        for what, stated, fixed in (("unit", self.unit, account.unit), ("neighbours", neighbours, account.neighbours)):
            if stated != fixed:
                raise UsageError(
                    f"this step protects {what} {stated}, but account '{account.name}' protects {fixed}, and an account's terms are fixed; "
                    "state what the step really protects, and pay from an account with these terms"
                )
        return _order(account, _price(self.mechanism, account.currency), self.payer)


def step_terms(
    *,
    unit: str,
    mechanism: Declared | Noise | None = None,
    lease_seconds: int = LEASE_SECONDS,
    **stated: Unpack[ReserveTerms],
) -> Terms:
    """Check what a step states, before there is an account."""
    approved, guarantee = stated.get("approved", False), _guarantee(mechanism, stated)
    return Terms(unit=unit, mechanism=guarantee, lease_seconds=lease_seconds, approved=approved, payer=stated)


def reserve_order(account: Account, **stated: Unpack[ReserveTerms]) -> Order:
    """Return what a reserve takes from an account. Raise if its steward must approve that."""
    guarantee = _guarantee(None, stated)
    if isinstance(guarantee, StatedEpsilon) and guarantee.delta:
        epsilon, delta = float(guarantee.epsilon), float(guarantee.delta)
        _, amount = budget_of(epsilon, delta=delta, currency=account.currency)
    else:
        amount = guarantee.price(account.currency)
    if not stated.get("approved"):
        require_approval(account, amount)
    return _order(account, amount, stated)


def require_approval(account: Account, amount: int) -> None:
    """Raise if an account's steward must approve an amount."""
    approval = approval_of(account.name)
    if approval is None:
        return
    asked = epsilon_of(amount, currency=account.currency, delta=account.delta)
    if asked > approval.above:
        raise UsageError(
            f"account {account.name} needs the steward's approval above epsilon {at_most(approval.above)}, and this asks for epsilon "
            f"{at_most(asked)}; ask for less, or, as the steward, say approved=True"
        )


def _guarantee(mechanism: Declared | Noise | None, stated: ReserveTerms) -> Declared | Noise:
    """Return the one guarantee that is stated."""
    epsilon, delta, rho, mu = (stated.get(name) for name in ("epsilon", "delta", "rho", "mu"))
    if [epsilon, rho, mu, mechanism].count(None) != 3 or (delta is not None and epsilon is None):
        raise UsageError("state exactly one of epsilon, rho, mu and mechanism, and a delta with an epsilon only")
    if not (mechanism is None or isinstance(mechanism, Declared | Noise)):
        raise UsageError("a mechanism is Laplace, Gaussian or DpSgd of dpcore.budget, or noise of dpcore.mechanisms")
    if mechanism is not None:
        return mechanism
    if "epsilon" in stated and epsilon is not None:
        return StatedEpsilon(epsilon=stated["epsilon"], delta=stated.get("delta"))
    return StatedRho(rho=stated["rho"]) if rho is not None else StatedMu(mu=stated["mu"])


def _order(account: Account, amount: int, payer: ReserveTerms) -> Order:
    blocks = payer.get("blocks")
    return Order(
        account=account.name,
        amount=amount,
        blocks=None if blocks is None else tuple(blocks),
        analyst=payer.get("analyst"),
        purpose=payer.get("purpose"),
    )


@lru_cache(maxsize=1_000)  # a price in GDP takes a millisecond
def _price(mechanism: Declared | Noise, currency: Currency) -> int:
    return mechanism.price(currency)
