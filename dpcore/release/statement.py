"""The privacy statement of a release, stored in its manifest and in every Parquet footer."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any

from pydantic import TypeAdapter

from dpcore.errors import UsageError
from dpcore.ledger import Ledger, Run
from dpcore.marginals.sizes import Sizes
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, Promise, mu_of, promise_of, sampler_delta
from dpcore.privacy.protection import Neighbours
from dpcore.release.covered import BlocksStatement, state_blocks
from dpcore.reporting.formatting import at_most, counted_runs, figure, pair, promise_sentence
from dpcore.reporting.lineage import Part, ledger_parts
from dpcore.reporting.promises import release_cap
from dpcore.spec import Declaration
from dpcore.version import installed_version

ACCOUNTING = {
    Currency.PURE: "pure epsilon, basic composition",
    Currency.ZCDP: "zero-concentrated differential privacy",
    Currency.GDP: "Gaussian differential privacy",
}

MORE_THAN, CLEAR = "more than ", 3.0
"""How the name of the group without an upper end begins, and how many standard deviations of noise a group stands out by."""

FAINT = 10
"""A total below this many times its noise tells little, and deserves a warning."""


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
        sizes: The classes of sizes by which counts of the kept rows became counts of all rows; None if they did not.
    """

    rows: int
    of: tuple[int, ...]
    spent: float
    noise: float
    units: dict[str, int]
    lost: float | None = None
    sizes: Sizes | None = None

    @property
    def lost_at_least(self) -> bool:
        """Whether `lost` is a lower bound: the group without an upper end stands out of the noise, and its units may have any number of rows."""
        return any(units >= CLEAR * self.noise for name, units in self.units.items() if name.startswith(MORE_THAN))

    @property
    def words(self) -> str:
        """How the limit was chosen, as text."""
        return f"chosen by a noisy histogram of the rows per unit, for {100 * self.spent:.2g} % of the budget"


@dataclass(frozen=True)
class StatedPart(Part):
    """A run that a release is made from, with what its own manifest says of it.

    Attributes:
        delta: The delta of its spec.
        draws: The number of its random draws.
        max_rows_per_unit: The most rows of a unit that it has counted.
    """

    delta: float
    draws: int
    max_rows_per_unit: int

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> "StatedPart":
        """Return a part that a manifest stores."""
        return cls(**{**stored, "blocks": tuple(stored["blocks"])})

    @property
    def words(self) -> str:
        """The run, its reservation and its draws, as text."""
        release = "" if self.release is None else f", with release {self.release}"
        return f"run {self.run}{release}: {figure(self.amount / AMOUNT_OF_ONE)} reserved, {self.draws:,} draws"


@dataclass(frozen=True)
class Statement:
    """The public facts that a reader of a release may rely on.

    Attributes:
        epsilon: The epsilon, at `delta` and rounded up, of what all runs in `made_from` have reserved. What they spent of it is bookkeeping.
        delta: The delta of the first run's spec; several times that if later amounts were fixed after the first answers had been seen.
        sampler_delta: An additional delta: the samplers match their noise distributions only up to a proved distance.
        draws: The number of random draws of all runs in `made_from`, which `sampler_delta` covers.
        accounting: The kind of accounting.
        rho: The reservations, if the account counts in rho.
        mu: The mu of the reservations, if the account counts in mu^2.
        bookkeeping: The amounts that the run has reserved and spent, in the account's currency.
        reservation: The number of the ledger's event that reserved the run. It orders the releases of a ledger; names and times have minutes only.
        made_from: Every run that the release is made from, in the order of their reservations. The last is the release's own.
        in_one_block: The promise to a unit whose rows all lie in one block; null if that is the promise itself.
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
    made_from: tuple[StatedPart, ...]
    in_one_block: Promise | None
    blocks: BlocksStatement | None
    weight: str | None
    max_row_weight: int
    chosen_limit: ChosenLimit | None
    reservation: int

    def to_json(self) -> dict[str, Any]:
        """Return the statement as plain JSON values."""
        return {"guarantee": f"{self.sentence} {self.sampling}", **asdict(self)}

    @property
    def sentence(self) -> str:
        """The guarantee in words."""
        return self.said_of("This release is")

    def said_of(self, subject: str) -> str:
        """Return the guarantee about something else that the run has bought, such as "These figures are", and what it counts."""
        said = promise_sentence(subject, Promise(self.epsilon, self.delta), difference=self.difference)
        if self.in_one_block is not None:
            promised = pair(self.in_one_block.epsilon, self.in_one_block.delta)
            said += f" For one {self.unit} whose rows all lie in one block, the promise is {promised}."
        return said if len(self.made_from) == 1 else f"{said} {counted_runs(len(self.made_from))}"

    @property
    def difference(self) -> str:
        """By what two neighbours differ, as text: each run limits the rows of a unit by itself."""
        if self.unit == "row":
            whom = "one row" if self.weight is None else f"one row, which counts {self.weighing}"
        else:
            weighed = "" if self.weight is None else f", each {self.weighing}"
            limit = max(part.max_rows_per_unit for part in self.made_from)
            most = "at most 1 counts" if limit == 1 else f"at most {limit} count"
            if self.by_norm:
                most = f"as many count as keep the norm of its counts within {limit}"
            runs = f" in each of {len(self.made_from):,} runs" if len(self.made_from) > 1 else ""
            whom = f"one {self.unit} with all its rows, of which {most}{runs}{weighed}"
        change = "adding or removing" if self.neighbours == "add-remove" else "replacing"
        return f"{change} {whom}"

    @property
    def by_norm(self) -> bool:
        """Whether the limit on the rows of a unit is one on the norm of its counts in each measurement."""
        chosen = self.chosen_limit
        return chosen is not None and chosen.sizes is not None and (self.rho is not None or self.mu is not None)

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

    def terms(self) -> Iterator[tuple[str, str]]:
        """Yield each term of the promise by its name, for cards and pages."""
        amounts = (
            ("epsilon", self.epsilon),
            ("delta", self.delta),
            ("additional delta of the samplers", self.sampler_delta),
            ("rho", self.rho),
            ("mu", self.mu),
        )
        yield from ((name, at_most(amount)) for name, amount in amounts if amount is not None)
        yield "unit", self.unit
        chosen = "" if self.chosen_limit is None else f", {self.chosen_limit.words}"
        yield f"maximum {'norm' if self.by_norm else 'rows'} per unit", f"{self.max_rows_per_unit:,}{chosen}"
        if self.weight is not None:
            yield "a row counts", self.weighing
        adding = self.neighbours == "add-remove"
        yield "neighbours", f"{self.neighbours}: one unit {'added or removed' if adding else 'replaced by another'}"
        if self.blocks is not None:
            yield "covers", self.blocks.words
        yield from (("accounting", self.accounting), ("account", self.account), ("run", self.run))
        yield from (("made from", part.words) for part in self.made_from if len(self.made_from) > 1)
        booked = self.bookkeeping
        yield (
            f"spent (bookkeeping), in {booked.counts}",
            f"{figure(booked.spent)} of {figure(booked.reserved)} reserved",
        )

    @classmethod
    def read(cls, privacy: Mapping[str, Any]) -> "Statement":
        """Return the statement that a manifest stores."""
        return _STATEMENT.validate_python(privacy)


_STATEMENT = TypeAdapter(Statement)


def promised(parts: Sequence[StatedPart], *, currency: Currency, unit: str, neighbours: str) -> dict[str, Any]:
    """Return the figures of a statement: they follow from the runs that the release is made from, and from what is protected."""
    cap_of = partial(release_cap, parts, currency=currency, unit=unit, neighbours=Neighbours(neighbours))
    delta = min(parts, key=lambda part: part.fixed).delta  # a later one may depend on answers
    cap = cap_of()
    whole, in_one = promise_of(cap, delta=delta), promise_of(cap_of(in_one_block=True), delta=delta)
    draws = sum(part.draws for part in parts)
    return {
        "epsilon": whole.epsilon,
        "delta": whole.delta,
        "sampler_delta": sampler_delta(draws, epsilon=whole.epsilon),
        "draws": draws,
        "rho": cap.amount / AMOUNT_OF_ONE if currency is Currency.ZCDP else None,
        "mu": mu_of(cap.amount) if currency is Currency.GDP else None,
        "in_one_block": None if in_one == whole else in_one,
    }


def misstated(privacy: Mapping[str, Any]) -> str | None:
    """Say which figure of a stored statement contradicts the runs that it lists; None if none does."""
    try:
        parts, unit = tuple(map(StatedPart.read, privacy["made_from"])), privacy["unit"]
        follows = promised(
            parts, currency=currency_of(privacy["accounting"]), unit=unit, neighbours=privacy["neighbours"]
        )
        published, in_one = privacy["in_one_block"], follows.pop("in_one_block")
        pairs = {name: (privacy[name], figure) for name, figure in follows.items()} | {
            f"{name} in one block": (published and published[name], in_one and getattr(in_one, name))
            for name in ("epsilon", "delta")
        }
        wrong = [
            name
            for name, (stated, figure) in pairs.items()
            # Exponential functions of other machines may differ in the last digit.
            if not (stated is figure is None or math.isclose(stated, figure, rel_tol=1e-9))
        ]
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, StopIteration, UsageError):
        return "states no promise, or one that cannot be compared with the runs that it lists"
    return f"states another {wrong[0]} than follows from its runs" if wrong else None


def currency_of(accounting: str) -> Currency:
    """Return the currency of a kind of accounting."""
    return next(currency for currency, words in ACCOUNTING.items() if words == accounting)


def state(  # noqa: PLR0913  whose promise, and by which runs
    declaration: Declaration,
    *,
    ledger: Ledger,
    run: Run,
    draws: Mapping[str, int],
    earlier: Sequence[Mapping[str, Any]] = (),
    chosen_limit: ChosenLimit | None = None,
) -> Statement:
    """Return the privacy statement of a run's release.

    Args:
        declaration: The declaration of the run.
        ledger: It knows the account, and the runs that the release is made from.
        run: The run.
        draws: The number of draws of each run that has drawn by this spec.
        earlier: All other runs, as the manifest of an earlier release states them.
        chosen_limit: How the limit on rows per unit was chosen; None if it was declared.
    """
    privacy, account = declaration.spec.privacy, ledger.account(run.account)
    limit = declaration.protection.rows_per_unit
    facts = {part["run"]: {name: part[name] for name in ("delta", "draws", "max_rows_per_unit")} for part in earlier}
    facts |= {
        drew: {"delta": privacy.delta, "draws": count, "max_rows_per_unit": limit} for drew, count in draws.items()
    }
    made_from = tuple(StatedPart(**vars(part), **facts[part.run]) for part in ledger_parts(ledger, run))
    return Statement(
        **promised(made_from, currency=account.currency, unit=privacy.unit, neighbours=privacy.neighbours),
        accounting=ACCOUNTING[account.currency],
        bookkeeping=Bookkeeping(
            account.currency.symbol, reserved=run.reserved / AMOUNT_OF_ONE, spent=run.spent / AMOUNT_OF_ONE
        ),
        unit=privacy.unit,
        max_rows_per_unit=limit,
        neighbours=privacy.neighbours.value,
        account=account.name,
        run=run.id,
        ledger=ledger.identity(),
        ledger_head=ledger.head(),
        spec_sha256=declaration.digest,
        versions={"dpflow": installed_version()} | {name: version(name) for name in ("mpmath", "numpy", "pyarrow")},
        blocks=state_blocks(ledger, declaration, run=run),
        weight=declaration.protection.weight,
        max_row_weight=declaration.protection.row_weight,
        chosen_limit=chosen_limit,
        reservation=run.first,
        made_from=made_from,
    )


SAME = ("accounting", "unit", "neighbours", "ledger", "account", "weight", "max_row_weight")
"""What must be the same in all releases of a sum."""


def state_sum(privacy: Sequence[Mapping[str, Any]]) -> Statement:
    """Return the statement of the sum of several releases, from what each of them states. Nothing new is drawn.

    The sum is made from every run that one of the releases is made from. A run counts once, however many of the releases go back to it. What a
    unit loses to these runs follows from the blocks that each of them reserved (`reporting/promises.py`): a row in one block loses what the runs
    of that block reserved, and a person in all blocks the sum.

    Args:
        privacy: The statement of each release, as its manifest has it, in the order of their runs.

    Raises:
        UsageError: If they do not protect the same.
    """
    statements = tuple(map(Statement.read, privacy))
    last = statements[-1]
    for name in SAME:
        if any(getattr(statement, name) != getattr(last, name) for statement in statements):
            raise UsageError(
                f"the releases have different promises (`{name}`), so their sum has none; merge only releases of one spec"
            )
    parts = {part.run: part for statement in statements for part in statement.made_from}
    made_from = tuple(sorted(parts.values(), key=lambda part: part.fixed))
    currency = currency_of(last.accounting)
    return replace(
        last,
        **promised(made_from, currency=currency, unit=last.unit, neighbours=last.neighbours),
        bookkeeping=Bookkeeping(
            currency.symbol,
            reserved=sum(statement.bookkeeping.reserved for statement in statements),
            spent=sum(statement.bookkeeping.spent for statement in statements),
        ),
        max_rows_per_unit=max(statement.max_rows_per_unit for statement in statements),
        run=f"the sum of {len(statements)} runs",
        versions={**last.versions, "dpflow": installed_version()},
        blocks=None,
        chosen_limit=None,
        made_from=made_from,
    )
