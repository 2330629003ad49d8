"""The privacy statement: what was promised to whom, and what it cost, in the manifest and in every Parquet footer."""

from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from dpcore.accounting import UNIT, Currency, zcdp_to_epsilon
from dpcore.ledger import Account, Run
from dpcore.spec import Declaration


@dataclass(frozen=True)
class Statement:
    """What a reader may rely on, in one flat record of public facts."""

    epsilon: float
    delta: float
    accounting: str
    rho: float | None
    unit: str
    max_rows_per_unit: int
    neighbours: str
    account: str
    run: str
    ledger_head: str
    spec_sha256: str
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the statement as plain JSON values."""
        return {"guarantee": self.sentence, **asdict(self)}

    @property
    def sentence(self) -> str:
        """Say the guarantee in one sentence."""
        whom = (
            "one row"
            if self.unit == "row"
            else f"one {self.unit} with all its rows, of which at most {self.max_rows_per_unit} count"
        )
        change = "adding or removing" if self.neighbours == "add-remove" else "replacing"
        what = f"({self.epsilon:.6g}, {self.delta:g})" if self.delta else f"{self.epsilon:.6g}"
        return f"This release is {what}-differentially private with respect to {change} {whom}."


def epsilon_of(units: int, *, currency: Currency, delta: float) -> float:
    """Return the epsilon that an amount of a currency stands for at `delta`; nothing spent is epsilon 0."""
    if units <= 0:
        return 0.0
    amount = units / UNIT
    return amount if currency is Currency.PURE else zcdp_to_epsilon(amount, delta=delta)


def state(declaration: Declaration, *, account: Account, run: Run, head: str) -> Statement:
    """State what a run has spent and whom its release protects."""
    privacy = declaration.spec.privacy
    zcdp = account.currency is Currency.ZCDP
    return Statement(
        epsilon=epsilon_of(run.spent, currency=account.currency, delta=privacy.delta),
        delta=privacy.delta,
        accounting="zero-concentrated differential privacy" if zcdp else "pure epsilon, basic composition",
        rho=run.spent / UNIT if zcdp else None,
        unit=privacy.unit,
        max_rows_per_unit=privacy.max_rows_per_unit,
        neighbours=privacy.neighbours.value,
        account=account.name,
        run=run.id,
        ledger_head=head,
        spec_sha256=declaration.digest,
        versions={name: version(name) for name in ("dpflow", "opendp", "numpy", "pyarrow")},
    )
