"""The privacy statement of a release, stored in its manifest and in every Parquet footer."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from dpcore.ledger import Account, Run
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, mu_of, sampler_delta
from dpcore.release.covered import BlocksStatement
from dpcore.reporting.formatting import at_most, pair
from dpcore.reporting.given import Given, condition
from dpcore.reporting.promises import release_promise
from dpcore.spec import Declaration
from dpcore.version import installed_version

ACCOUNTING = {
    Currency.PURE: "pure epsilon, basic composition",
    Currency.ZCDP: "zero-concentrated differential privacy",
    Currency.GDP: "Gaussian differential privacy",
}

MORE_THAN, CLEAR = "more than ", 3.0
"""How the name of the group without an upper end begins, and how many standard deviations of noise a group stands out by."""


@dataclass(frozen=True)
class Bookkeeping:
    """The amounts a run reserved and spent, in its account's currency. The amount spent is not a promise, so it has no epsilon."""

    counts: str
    reserved: float
    spent: float


@dataclass(frozen=True)
class ChosenLimit:
    """The most rows per unit, chosen by a noisy histogram of the rows per unit.

    Attributes:
        rows: The chosen limit.
        of: The limits that it was chosen from.
        spent: The price of the histogram, as a share of the run's budget.
        noise: The standard deviation of the noise of its counts.
        units: The noisy number of units by their number of rows.
        lost: The share of the rows that the limit removes, estimated from those numbers; None if they tell nothing. Units in the last
            group are taken to have the fewest rows that it allows.
    """

    rows: int
    of: tuple[int, ...]
    spent: float
    noise: float
    units: dict[str, int]
    lost: float | None = None

    @property
    def lost_at_least(self) -> bool:
        """Whether `lost` is a lower bound: the group without an upper end stands out of the noise, and its units may have any number of rows."""
        return any(each >= CLEAR * self.noise for name, each in self.units.items() if name.startswith(MORE_THAN))

    @property
    def words(self) -> str:
        """How the limit was chosen, as text."""
        return f"chosen by a noisy histogram of the rows per unit, for {100 * self.spent:.2g} % of the budget"


@dataclass(frozen=True)
class Statement:
    """The public facts that a reader of a release may rely on.

    Attributes:
        epsilon: The epsilon of the run's reservation at `delta`, rounded up. The amount spent of the reservation is bookkeeping.
        delta: The delta of the spec.
        sampler_delta: An additional delta: the samplers match their noise distributions only up to a proved distance.
        draws: The number of random draws that `sampler_delta` covers.
        accounting: The kind of accounting.
        rho: The reservation, if the account counts in rho.
        mu: The mu of the reservation, if the account counts in mu^2.
        bookkeeping: The amounts that the run has reserved and spent, in the account's currency.
        earlier: Other runs whose answers the release was also made from. Their reservations are part of epsilon.
        reservation: The number of the ledger's event that reserved the run. It orders the releases of a ledger; names and times have minutes only.
        given: Earlier releases that it was made with. The promise is about what it adds to them: their reservations are no part of epsilon.
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
    chosen_limit: ChosenLimit | None = None
    earlier: tuple[str, ...] = ()
    given: tuple[Given, ...] = ()
    reservation: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the statement as plain JSON values."""
        return {"guarantee": f"{self.sentence} {self.sampling}", **asdict(self)}

    @property
    def sentence(self) -> str:
        """The guarantee in words."""
        return self.said_of("This release is")

    def said_of(self, subject: str) -> str:
        """Return the guarantee about something else that the run has bought, such as "These figures are", and its condition if it has one."""
        return " ".join(filter(None, (self.promised(subject), self.condition)))

    def promised(self, subject: str) -> str:
        """Return the guarantee about something in one sentence."""
        what = pair(self.epsilon, self.delta)
        return f"{subject} {what}-differentially private with respect to {self.difference}."

    @property
    def condition(self) -> str:
        """What the promise does not count, because it was published before; empty in most cases."""
        return condition(self.given, account=self.account)

    @property
    def difference(self) -> str:
        """By what two neighbours differ, as text."""
        if self.unit == "row":
            whom = "one row" if self.weight is None else f"one row, which counts {self.weighing}"
        else:
            each = "" if self.weight is None else f", each {self.weighing}"
            most = "at most 1 counts" if self.max_rows_per_unit == 1 else f"at most {self.max_rows_per_unit} count"
            whom = f"one {self.unit} with all its rows, of which {most}{each}"
        change = "adding or removing" if self.neighbours == "add-remove" else "replacing"
        return f"{change} {whom}"

    @property
    def sampling(self) -> str:
        """A sentence about the delta that the samplers add."""
        return self.sampling_of("Its")

    def sampling_of(self, whose: str) -> str:
        """Return the same sentence about something else that the run has bought, such as "Their"."""
        return (
            f"{whose} {self.draws:,} random draws follow their distributions up to a proved distance, which adds at most "
            f"{at_most(self.sampler_delta)} to delta."
        )

    @property
    def weighing(self) -> str:
        """How often a row of the real table counted."""
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
    given: Sequence[Given],
    blocks: BlocksStatement | None = None,
    chosen_limit: ChosenLimit | None = None,
    earlier: Sequence[Run] = (),
) -> Statement:
    """Return the privacy statement of a run's release.

    `draws` is the number of random draws behind its answers. `given` are earlier releases that it starts from, and `earlier` are other runs
    whose answers it was also made from.
    """
    privacy = declaration.spec.privacy
    promise = release_promise(account, run, delta=privacy.delta, earlier=earlier)
    reserved = run.reserved + sum(each.reserved for each in earlier)
    return Statement(
        epsilon=promise.epsilon,
        delta=promise.delta,
        sampler_delta=sampler_delta(draws, epsilon=promise.epsilon),
        draws=draws,
        accounting=ACCOUNTING[account.currency],
        rho=reserved / AMOUNT_OF_ONE if account.currency is Currency.ZCDP else None,
        mu=mu_of(reserved) if account.currency is Currency.GDP else None,
        bookkeeping=Bookkeeping(
            account.currency.symbol, reserved=run.reserved / AMOUNT_OF_ONE, spent=run.spent / AMOUNT_OF_ONE
        ),
        unit=privacy.unit,
        max_rows_per_unit=declaration.protection.rows_per_unit,
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
        chosen_limit=chosen_limit,
        earlier=tuple(each.id for each in earlier),
        given=tuple(given),
        reservation=run.first,
    )
