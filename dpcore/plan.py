"""What a run would do and cost, from its spec and a guess at the number of rows: no data is touched, and nothing is spent."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from statistics import median
from typing import Any

from dpcore.accounting import UNIT, Currency
from dpcore.costs import Costs, costs_of
from dpcore.errors import UsageError
from dpcore.ledger import Account, Balance, open_ledger
from dpcore.ledger.refusals import refuse_if_closed
from dpcore.models.evidence import LEAST_NOISE
from dpcore.models.factored import BYTES_PER_CELL
from dpcore.pricing import cell_noise, marginal_noise
from dpcore.reservation import check_remaining, paying_account, units_to_reserve
from dpcore.spec import Declaration
from dpcore.spec.release import AdaptiveSpec, PmwSpec
from dpcore.strategies import Outline, has_levels, strategy_for
from dpcore.wording import epsilon_in

USUAL_ROWS = 100_000
ABSOLUTE = math.sqrt(2 / math.pi)  # how large noise of standard deviation 1 is on average
FINEST_THAT_FITS = 2  # adaptive's ladders go in steps: it measures so many times fewer cells than would be worth it


@dataclass(frozen=True)
class Payer:
    """The account, and what it would have left after the run; `missing` says why there is none to be charged."""

    name: str
    currency: str
    remaining: float | None
    remaining_epsilon: float | None
    missing: str | None


@dataclass(frozen=True)
class PlannedColumn:
    """The first marginal of a column, or the total (of one cell), with the standard deviation of each count's noise.

    `measured` has it for each time that the column is measured, `noise` for all of them together. `error` is what the noise alone makes
    of the L1 distance to the truth, as a share of the rows.
    """

    name: str
    cells: int
    measured: tuple[float, ...]
    noise: float
    error: float


@dataclass(frozen=True)
class PlannedRounds:
    """The rounds: how many, the noise of what each measures, and the L1 error of that noise in a marginal of a typical size.

    `worth_cells` is the most cells of a marginal that is worth its noise; without such a rule it is None.
    """

    number: int
    at_most: int
    noise: float
    worth_cells: int | None
    typical_cells: int
    error: float


@dataclass(frozen=True)
class Plan:
    """What a run would do.

    Its errors are those of the noise alone. A release may be better, as the model takes overlapping measurements together and does not follow
    all their noise, or worse, where the model is wrong: that depends on the data. Columns in `ranges` are also measured in coarser versions, for
    as much again.
    """

    dataset: str
    strategy: str
    strategy_reason: str | None
    rows: int
    rows_from: str
    epsilon: float
    delta: float
    amount: float
    account: Payer
    first: tuple[PlannedColumn, ...]
    ranges: tuple[str, ...]
    rounds: PlannedRounds | None
    costs: Costs

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        return asdict(self)


def plan_run(declaration: Declaration, *, rows: int | None) -> Plan:
    """Work out what a run would do, or refuse as it would.

    Args:
        declaration: What would be run.
        rows: About how many rows the table has: a public guess. None: as many as the spec wants to release, or else a usual number.
    """
    strategy = strategy_for(declaration)
    found = _account(declaration)
    privacy, protection, columns = declaration.spec.privacy, declaration.protection, declaration.universe.attributes
    unopened = Currency.ZCDP if privacy.delta else Currency.PURE  # what an account would count unless told otherwise
    currency = unopened if isinstance(found, str) else found[0].currency
    units = units_to_reserve(declaration, strategy, currency=currency)
    payer = _payer(declaration, found, currency=currency, units=units)
    guessed, source = _rows(declaration, rows)

    def noise_of(share: Fraction) -> float:
        kind = cell_noise if isinstance(declaration.strategy, PmwSpec) else marginal_noise
        return kind(int(units * share), currency=currency, protection=protection).standard_deviation

    outline = strategy.outline(guessed, noise_of)
    rounds = _rounds(declaration, outline, rows=guessed, at_most=strategy.rounds, noise_of=noise_of)
    number, cells = (rounds.number, rounds.typical_cells) if rounds else (0, 0)
    return Plan(
        dataset=declaration.spec.dataset,
        strategy=declaration.strategy.name,
        strategy_reason=declaration.strategy_reason,
        rows=guessed,
        rows_from=source,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        amount=units / UNIT,
        account=payer,
        first=_first(declaration, outline, rows=guessed, noise_of=noise_of),
        ranges=tuple(name for name in declaration.spec.workload.ranges or () if has_levels(columns[name].size)),
        rounds=rounds,
        costs=costs_of(declaration, rows=guessed, rounds=number, cells=cells),
    )


def _account(declaration: Declaration) -> tuple[Account, Balance] | str:
    """Return the account as it is now, or why there is none; one that does not suit the spec refuses."""
    try:
        ledger = open_ledger()
    except UsageError as error:
        return str(error)
    with ledger:
        name = declaration.spec.dataset
        if name not in {account.name for account in ledger.accounts()}:
            return f"the ledger has no account '{name}'"
        account = paying_account(ledger, declaration)
        refuse_if_closed(account)
        return account, ledger.balance(name)


def _payer(declaration: Declaration, found: tuple[Account, Balance] | str, *, currency: Currency, units: int) -> Payer:
    """Return what the account would have left, or refuse as the ledger would."""
    if isinstance(found, str):
        return Payer(declaration.spec.dataset, currency.value, remaining=None, remaining_epsilon=None, missing=found)
    account, balance = found
    check_remaining(account, declaration, units=units, remaining=balance.remaining)
    left = balance.remaining - units
    epsilon = epsilon_in(account, left)
    return Payer(account.name, currency.value, remaining=left / UNIT, remaining_epsilon=epsilon, missing=None)


def _rows(declaration: Declaration, rows: int | None) -> tuple[int, str]:
    if rows is not None:
        return rows, "given"
    wanted = declaration.spec.output.rows
    return (USUAL_ROWS, "a guess") if wanted == "noisy" else (wanted, "output.rows")


def _first(
    declaration: Declaration, outline: Outline, *, rows: int, noise_of: Callable[[Fraction], float]
) -> tuple[PlannedColumn, ...]:
    """Return what the first model is made of."""
    columns = {name: each.size for name, each in declaration.universe.attributes.items()}
    if isinstance(declaration.strategy, PmwSpec):
        columns = {"total": 1}
    planned = []
    for (name, cells), shares in zip(columns.items(), outline.first, strict=True):
        measured = tuple(noise_of(share) for share in shares)
        noise = 1 / math.sqrt(sum(1 / max(each, LEAST_NOISE) ** 2 for each in measured))
        planned.append(PlannedColumn(name, cells, measured, noise=noise, error=_error(cells, noise, rows=rows)))
    return tuple(planned)


def _rounds(
    declaration: Declaration, outline: Outline, *, rows: int, at_most: int, noise_of: Callable[[Fraction], float]
) -> PlannedRounds | None:
    """Return the rounds, if there are any."""
    if outline.measuring is None:
        return None
    noise = noise_of(outline.measuring)
    worth = None if outline.room is None else int(outline.room * rows / (ABSOLUTE * max(noise, LEAST_NOISE)))
    cells = 1 if worth is None else _typical_cells(declaration, worth)
    return PlannedRounds(
        number=outline.rounds,
        at_most=at_most,
        noise=noise,
        worth_cells=worth,
        typical_cells=cells,
        error=_error(cells, noise, rows=rows),
    )


def _typical_cells(declaration: Declaration, worth: int) -> int:
    """Return how many cells a round's marginal has, most likely: of those that are worth it, one of the workload's, or a part of one."""
    shape = declaration.universe.shape
    sizes = [math.prod(shape[axis] for axis in axes) for axes in declaration.workload.marginals]
    if isinstance(declaration.strategy, AdaptiveSpec):  # measures a coarser version of what has too many cells
        fitting_model = int(declaration.strategy.max_model_mb * 2**20 / BYTES_PER_CELL)
        return min(int(median(sizes)), max(min(worth, fitting_model) // FINEST_THAT_FITS, 2))
    parts = [math.prod(shape[axis] for axis in axes) for axes in declaration.workload.parts() if len(axes) > 1]
    fitting = [size for size in sizes if size <= worth] or [max((size for size in parts if size <= worth), default=0)]
    return int(median(fitting)) or min(parts, default=sizes[0])


def _error(cells: int, noise: float, *, rows: int) -> float:
    """Return the L1 distance that noise alone makes, as a share of the rows."""
    return cells * noise * ABSOLUTE / rows
