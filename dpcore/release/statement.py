"""The privacy statement: what is promised to whom, in the manifest and in every Parquet footer."""

from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from dpcore.ledger import Account, Run
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, mu_of, sampler_delta
from dpcore.release.covered import BlocksStatement
from dpcore.reporting.formatting import at_most, pair
from dpcore.reporting.promises import release_promise
from dpcore.spec import Declaration
from dpcore.version import installed_version

ACCOUNTING = {
    Currency.PURE: "pure epsilon, basic composition",
    Currency.ZCDP: "zero-concentrated differential privacy",
    Currency.GDP: "Gaussian differential privacy",
}


@dataclass(frozen=True)
class Bookkeeping:
    """What a run has reserved and spent, in what its account counts in. An epsilon of what was spent would promise nothing."""

    counts: str
    reserved: float
    spent: float


@dataclass(frozen=True)
class Statement:
    """What a reader may rely on, in one record of public facts.

    Attributes:
        epsilon: What the run's reservation promises at `delta`, rounded up. What it has spent of the reservation is bookkeeping.
        delta: The spec's.
        sampler_delta: What comes on top of `delta` because noise is drawn from its distribution up to a proved distance only.
        draws: From how many draws that follows.
        accounting: By which kind of accounting.
        rho: The reservation, where the account counts in rho.
        mu: The mu of the reservation, where the account counts in mu^2.
        bookkeeping: What the run has reserved and spent, in the account's currency.
    """

    epsilon: float
    delta: float
    sampler_delta: float
    draws: int
    accounting: str
    rho: float | None
    mu: float | None
    bookkeeping: Bookkeeping
    unit: str
    max_rows_per_unit: int
    neighbours: str
    account: str
    run: str
    ledger: str
    ledger_head: str
    spec_sha256: str
    versions: dict[str, str]
    blocks: BlocksStatement | None = None
    weight: str | None = None
    max_row_weight: int = 1

    def to_json(self) -> dict[str, Any]:
        """Return the statement as plain JSON values."""
        return {"guarantee": f"{self.sentence} {self.sampling}", **asdict(self)}

    @property
    def sentence(self) -> str:
        """Say the guarantee in one sentence."""
        if self.unit == "row":
            whom = "one row" if self.weight is None else f"one row, which counts {self.weighing}"
        else:
            each = "" if self.weight is None else f", each {self.weighing}"
            whom = f"one {self.unit} with all its rows, of which at most {self.max_rows_per_unit} count{each}"
        change = "adding or removing" if self.neighbours == "add-remove" else "replacing"
        what = pair(self.epsilon, self.delta)
        return f"This release is {what}-differentially private with respect to {change} {whom}."

    @property
    def sampling(self) -> str:
        """Say what the samplers add to delta."""
        return (
            f"Its {self.draws:,} random draws follow their distributions up to a proved distance, which adds at most "
            f"{at_most(self.sampler_delta)} to delta."
        )

    @property
    def weighing(self) -> str:
        """Say how often a row of the real table counted."""
        if self.weight is None:
            return "once"
        return f"as often as {self.weight} says, at most {self.max_row_weight:,} times"


def state(  # noqa: PLR0913  who promises what, and where that is written
    declaration: Declaration,
    *,
    account: Account,
    run: Run,
    ledger: str,
    head: str,
    draws: int,
    blocks: BlocksStatement | None = None,
) -> Statement:
    """State what a run promises and whom its release protects; `draws` are those that its answers were made of."""
    privacy = declaration.spec.privacy
    promise = release_promise(account, run, delta=privacy.delta)
    return Statement(
        epsilon=promise.epsilon,
        delta=promise.delta,
        sampler_delta=sampler_delta(draws, epsilon=promise.epsilon),
        draws=draws,
        accounting=ACCOUNTING[account.currency],
        rho=run.reserved / AMOUNT_OF_ONE if account.currency is Currency.ZCDP else None,
        mu=mu_of(run.reserved) if account.currency is Currency.GDP else None,
        bookkeeping=Bookkeeping(
            account.currency.symbol, reserved=run.reserved / AMOUNT_OF_ONE, spent=run.spent / AMOUNT_OF_ONE
        ),
        unit=privacy.unit,
        max_rows_per_unit=privacy.max_rows_per_unit,
        neighbours=privacy.neighbours.value,
        account=account.name,
        run=run.id,
        ledger=ledger,
        ledger_head=head,
        spec_sha256=declaration.digest,
        versions={"dpflow": installed_version()} | {name: version(name) for name in ("mpmath", "numpy", "pyarrow")},
        blocks=blocks,
        weight=declaration.protection.weight,
        max_row_weight=declaration.protection.row_weight,
    )
