"""The privacy statement: what was promised to whom, and what it cost, in the manifest and in every Parquet footer."""

from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from dpcore.accounting import UNIT, Currency, epsilon_of, mu_of
from dpcore.ledger import Account, Run
from dpcore.release.covered import BlocksStatement
from dpcore.spec import Declaration

ACCOUNTING = {
    Currency.PURE: "pure epsilon, basic composition",
    Currency.ZCDP: "zero-concentrated differential privacy",
    Currency.GDP: "Gaussian differential privacy",
}


@dataclass(frozen=True)
class Statement:
    """What a reader may rely on, in one record of public facts."""

    epsilon: float
    delta: float
    accounting: str
    rho: float | None
    mu: float | None
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
        return {"guarantee": self.sentence, **asdict(self)}

    @property
    def sentence(self) -> str:
        """Say the guarantee in one sentence."""
        if self.unit == "row":
            whom = "one row" if self.weight is None else f"one row, which counts {self.weighing}"
        else:
            each = "" if self.weight is None else f", each {self.weighing}"
            whom = f"one {self.unit} with all its rows, of which at most {self.max_rows_per_unit} count{each}"
        change = "adding or removing" if self.neighbours == "add-remove" else "replacing"
        what = f"({self.epsilon:.6g}, {self.delta:g})" if self.delta else f"{self.epsilon:.6g}"
        return f"This release is {what}-differentially private with respect to {change} {whom}."

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
    blocks: BlocksStatement | None = None,
) -> Statement:
    """State what a run has spent and whom its release protects."""
    privacy = declaration.spec.privacy
    return Statement(
        epsilon=epsilon_of(run.spent, currency=account.currency, delta=privacy.delta),
        delta=privacy.delta,
        accounting=ACCOUNTING[account.currency],
        rho=run.spent / UNIT if account.currency is Currency.ZCDP else None,
        mu=mu_of(run.spent) if account.currency is Currency.GDP else None,
        unit=privacy.unit,
        max_rows_per_unit=privacy.max_rows_per_unit,
        neighbours=privacy.neighbours.value,
        account=account.name,
        run=run.id,
        ledger=ledger,
        ledger_head=head,
        spec_sha256=declaration.digest,
        versions={name: version(name) for name in ("dpflow", "mpmath", "numpy", "pyarrow")},
        blocks=blocks,
        weight=declaration.protection.weight,
        max_row_weight=declaration.protection.row_weight,
    )
