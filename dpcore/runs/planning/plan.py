"""Plan a run from its spec and a guess at the number of rows. Planning reads no data and spends nothing."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import date
from statistics import median
from typing import Any

from dpcore.descent.tree import CELL_NOISE
from dpcore.errors import UsageError
from dpcore.ledger import Account, Balance, open_ledger
from dpcore.ledger.refusals import refuse_if_closed
from dpcore.mechanisms.pricing import currency_for
from dpcore.places import places_of_spec
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.reporting.formatting import new_block_epsilon, next_epsilon
from dpcore.runs.expected_rows import FAINT, margin_of, weak_check_warning
from dpcore.runs.paying import check_remaining, paying_account, total_noise
from dpcore.runs.planning.costs import Costs, costs_of
from dpcore.runs.planning.limits import PlannedLimit, planned_limit
from dpcore.runs.planning.noise import Terms, terms_of
from dpcore.runs.planning.scope import (
    PlannedAmounts,
    PlannedCandidates,
    PlannedDiscovery,
    PlannedUniverse,
    cells_of,
    planned_discovery,
    unspent_share,
)
from dpcore.runs.reservation import blocks_to_read, day_to_read, scarcest
from dpcore.spec import Declaration
from dpcore.spec.release import AUTO_LIMITS
from dpcore.strategies import has_levels, strategy_for

USUAL_ROWS = 100_000
FINEST_THAT_FITS = 2  # adaptive coarsens in steps: it measures about this many times fewer cells than the limit


@dataclass(frozen=True)
class Payer:
    """The account, and its remaining budget after the run. `missing` says why there is no account to charge.

    If the account is kept by block, the remaining budget is that of `block`, the run's most used block. A run that reads only new blocks
    can ask for `new_block_epsilon`.
    """

    name: str
    currency: str
    remaining: float | None
    remaining_epsilon: float | None
    missing: str | None
    block: str | None = None
    new_block_epsilon: float | None = None


@dataclass(frozen=True)
class PlannedColumn:
    """The first marginal of a column, or the total (of one cell), with the standard deviation of each count's noise.

    `measured` holds it for each measurement of the column, `noise` for all of them combined. `error` is the expected L1 error due to noise
    alone, as a share of the rows.
    """

    name: str
    cells: int
    measured: tuple[float, ...]
    noise: float
    error: float


@dataclass(frozen=True)
class PlannedRounds:
    """The rounds: their number, the noise of each measurement, and the L1 error of that noise in a marginal of typical size.

    `worth_cells` is the maximum number of cells of a marginal that is worth its noise; None if the strategy has no such rule. `candidates` are the
    marginals that the rounds select from, or whose single counts they select from.
    """

    number: int
    at_most: int
    noise: float
    worth_cells: int | None
    typical_cells: int
    error: float
    candidates: PlannedCandidates


@dataclass(frozen=True)
class PlannedTotal:
    """The noisy total that is bought first and compared with `expect_rows`: its price as a share of the budget, and its noise.

    The run stops if the total is outside the expected range by more than `margin`.
    """

    least: int
    most: int
    share: float
    noise: float
    margin: float


@dataclass(frozen=True)
class Plan:
    """The plan of a run.

    Its errors are those of the noise alone. A release may be better, since the model combines overlapping measurements and does not fit all
    their noise, or worse, where the model is wrong; this depends on the data. Columns in `ranges` are also measured in coarser versions,
    for the same price again. `unspent` is the share of the budget that cannot be spent. If the run chooses the limit on rows per unit, `limits`
    says by what, and all other figures are those of one row per unit.
    """

    dataset: str
    strategy: str
    strategy_reason: str | None
    universe: PlannedUniverse
    rows: int
    rows_from: str
    epsilon: float
    delta: float
    amount: float
    amounts: PlannedAmounts
    unspent: float
    account: Payer
    limits: PlannedLimit | None
    expects: PlannedTotal | None
    discovers: tuple[PlannedDiscovery, ...]
    first: tuple[PlannedColumn, ...]
    ranges: tuple[str, ...]
    rounds: PlannedRounds | None
    costs: Costs
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Grounds:
    """The basis of a plan: the account, or why there is none; its currency; the number of rows and where it comes from."""

    account: tuple[Account, str | None, Balance] | str
    currency: Currency
    rows: int
    rows_from: str


def plan_run(declaration: Declaration, *, rows: int | None, as_of: date | None = None) -> Plan:
    """Plan a run. Raise the errors that the run would raise.

    Args:
        declaration: The declaration of the run.
        rows: The approximate number of rows: a public guess. None for the spec's `output.rows`, or `USUAL_ROWS` without it.
        as_of: With `blocks`, the day as of which blocks are complete; None for today in UTC.
    """
    grounds = grounds_of(declaration, rows=rows, as_of=as_of)
    limits = (
        planned_limit(declaration, currency=grounds.currency, rows=grounds.rows) if declaration.lacks_limit else None
    )
    declaration = declaration.limited(AUTO_LIMITS[0])
    strategy = strategy_for(declaration)
    privacy, columns = declaration.spec.privacy, declaration.universe.attributes
    terms = terms_of(declaration, strategy, currency=grounds.currency, rows=grounds.rows)
    payer = _payer(declaration, grounds.account, currency=grounds.currency, amount=terms.amount)
    rounds = _rounds(declaration, terms, at_most=strategy.rounds)
    number, cells = (rounds.number, rounds.typical_cells) if rounds else (0, 0)
    expects, first = _expects(declaration, terms), _first(declaration, terms)
    return Plan(
        dataset=declaration.spec.dataset,
        strategy=declaration.strategy.name,
        strategy_reason=declaration.strategy_reason,
        universe=PlannedUniverse.of(declaration.universe),
        rows=grounds.rows,
        rows_from=grounds.rows_from,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        amount=terms.amount / AMOUNT_OF_ONE,
        amounts=PlannedAmounts.of(privacy.epsilon, delta=privacy.delta),
        unspent=unspent_share(terms),
        account=payer,
        limits=limits,
        expects=expects,
        discovers=planned_discovery(declaration, terms),
        first=first,
        ranges=tuple(name for name in declaration.spec.workload.ranges or () if has_levels(columns[name].size)),
        rounds=rounds,
        costs=costs_of(declaration, rows=grounds.rows, rounds=number, cells=cells),
        warnings=tuple(_warnings(expects, first)),
    )


def _expects(declaration: Declaration, terms: Terms) -> PlannedTotal | None:
    """Return the planned check of the total, if the spec says how many rows it expects."""
    expected = declaration.spec.privacy.expect_rows
    if expected is None:
        return None
    noise = total_noise(declaration, currency=terms.currency, amount=terms.amount)
    return PlannedTotal(*expected, share=float(declaration.totalling), noise=noise, margin=margin_of(noise))


def _warnings(expects: PlannedTotal | None, first: tuple[PlannedColumn, ...]) -> Iterator[str]:
    """Yield warnings about problems that are known before anything is charged."""
    if expects is None:
        return
    if weak := weak_check_warning((expects.least, expects.most), noise=expects.noise):
        yield weak
    noise = 1 / math.sqrt(sum(1 / (column.noise**2 * column.cells) for column in first))
    if expects.most < FAINT * noise:
        yield (
            f"at most {expects.most:,} rows are expected, which is small compared with the noise of their total, {noise:,.1f}: "
            "the release would be mostly noise; ask for a larger epsilon"
        )


def grounds_of(declaration: Declaration, *, rows: int | None, as_of: date | None) -> Grounds:
    """Return the basis of a plan. Raise if the account does not match the spec."""
    found = _account(declaration, as_of=day_to_read(declaration, as_of))
    # Without an account: the default currency of a new one with this budget.
    privacy = declaration.spec.privacy
    unopened = currency_for(
        privacy.epsilon, delta=privacy.delta, unit=privacy.unit, neighbours=declaration.protection.neighbours
    )
    guessed, source = _rows(declaration, rows)
    return Grounds(found, unopened if isinstance(found, str) else found[0].currency, rows=guessed, rows_from=source)


def _account(declaration: Declaration, *, as_of: date) -> tuple[Account, str | None, Balance] | str:
    """Return the account and the run's scarcest block, or the reason why there is none. Raise if the account does not match the spec."""
    try:
        ledger = open_ledger(places=places_of_spec(declaration.path))
    except UsageError as error:
        return str(error)
    with ledger:
        name = declaration.spec.dataset
        if name not in {account.name for account in ledger.accounts()}:
            return f"the ledger has no account '{name}'"
        account = paying_account(ledger, declaration)
        refuse_if_closed(account)
        names = blocks_to_read(ledger, declaration, as_of=as_of)
        return account, *scarcest(ledger, account, names=names)


def _payer(
    declaration: Declaration, found: tuple[Account, str | None, Balance] | str, *, currency: Currency, amount: int
) -> Payer:
    """Return the remaining budget of the account. Raise if the ledger would refuse the run."""
    if isinstance(found, str):
        return Payer(declaration.spec.dataset, currency.value, remaining=None, remaining_epsilon=None, missing=found)
    account, block, balance = found
    check_remaining(account, declaration, amount=amount, remaining=balance.remaining, block=block)
    left = balance.remaining - account.weight * amount
    after = replace(account, across_used=account.across_used + amount)
    return Payer(
        account.name,
        currency.value,
        remaining=left / AMOUNT_OF_ONE,
        remaining_epsilon=next_epsilon(after, left),
        missing=None,
        block=block,
        new_block_epsilon=new_block_epsilon(after),
    )


def _rows(declaration: Declaration, rows: int | None) -> tuple[int, str]:
    if rows is not None:
        return rows, "given"
    wanted = declaration.spec.output.rows
    return (USUAL_ROWS, "a guess") if wanted == "noisy" else (wanted, "output.rows")


def _first(declaration: Declaration, terms: Terms) -> tuple[PlannedColumn, ...]:
    """Return the measurements for the first model."""
    columns = {name: each.size for name, each in declaration.universe.attributes.items()}
    planned = []
    for place, (name, most) in enumerate([("total", 1)] if terms.single else columns.items()):
        noise = terms.first_noise(place)
        # of a column at full resolution, the model learns the cells that stand out of the tree's noise
        standing_out = int(terms.rows / (CELL_NOISE * noise)) if place in terms.trees and not terms.single else most
        cells = max(1, min(most, standing_out))
        planned.append(PlannedColumn(name, cells, terms.measured(place), noise=noise, error=terms.error(cells, noise)))
    return tuple(planned)


def _rounds(declaration: Declaration, terms: Terms, *, at_most: int) -> PlannedRounds | None:
    """Return the rounds, if there are any."""
    noise = terms.round_noise()
    if noise is None:
        return None
    worth = terms.worth_cells(noise)
    cells = 1 if worth is None else _typical_cells(declaration, terms, worth=worth)
    return PlannedRounds(
        number=terms.outline.rounds,
        at_most=at_most,
        noise=noise,
        worth_cells=worth,
        typical_cells=cells,
        error=terms.error(cells, noise),
        candidates=PlannedCandidates.of(terms, declaration.universe.shape, noise=noise),
    )


def _typical_cells(declaration: Declaration, terms: Terms, *, worth: int) -> int:
    """Return the likely number of cells of a round's marginal: one of the workload's that is worth its noise, or a part of one."""
    sizes, model_cells = cells_of(declaration.workload.marginals, declaration.universe.shape), terms.outline.model_cells
    if model_cells is not None:  # a factored model learns a coarser version of a marginal with too many cells
        return min(int(median(sizes)), max(min(worth, model_cells) // FINEST_THAT_FITS, 2))
    parts = cells_of(terms.outline.candidates, declaration.universe.shape)
    fitting = [size for size in sizes if size <= worth] or [max((size for size in parts if size <= worth), default=0)]
    return int(median(fitting)) or min(parts, default=sizes[0])
