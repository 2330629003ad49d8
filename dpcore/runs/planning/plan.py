"""Plan a run from its spec and a guess at the number of rows. Planning reads no data and spends nothing."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date
from fractions import Fraction
from statistics import median
from typing import Any

from dpcore.errors import DpflowError
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.release.statement import FAINT
from dpcore.runs.expected_rows import margin_of, weak_check_warning
from dpcore.runs.paying import amount_to_reserve, smallest_share, total_noise
from dpcore.runs.planning.changes import Change, helpful_changes
from dpcore.runs.planning.costs import Costs, costs_of
from dpcore.runs.planning.grounds import GUESS, Grounds, PlannedAccount, approximate_rows, grounds_of
from dpcore.runs.planning.kept import KeptRows, impossible_warnings, rows_that_count
from dpcore.runs.planning.limits import PlannedLimit, planned_limit
from dpcore.runs.planning.noise import Terms, expecting, terms_of
from dpcore.runs.planning.rated import Rated, poor_warning, rated
from dpcore.runs.planning.scope import (
    PlannedAmounts,
    PlannedCandidates,
    PlannedDiscovery,
    PlannedUniverse,
    cells_of,
    planned_discovery,
)
from dpcore.spec import Declaration
from dpcore.spec.shares import Early
from dpcore.strategies import Strategy, has_levels, strategy_for


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
class PlannedPersons:
    """The numbers of persons by how many rows they have: their price as a share of the budget, and their noise."""

    unit: str
    constant: tuple[str, ...]
    share: float
    noise: float


@dataclass(frozen=True)
class PlannedFunction:
    """The counts by which the function of a dependency is learned: their number, their price as a share of the budget, and their noise."""

    words: str
    cells: int
    share: float
    noise: float


@dataclass(frozen=True)
class Plan:
    """The plan of a run.

    Its errors are those of the noise alone. A release may be better, since the model combines overlapping measurements and does not fit all
    their noise, or worse, where the model is wrong; this depends on the data. Columns in `ranges` are also measured in coarser versions,
    for the same price again. If the run chooses the limit on rows per unit, `limits`
    says by what, and for which limit all other figures are. `ratings` rates every column and pair by its expected noise, and
    `changes` are the two changes of the spec that would help most. `blocks` are those that the run reads. `prior` says what its weights start from. If the account would not pay,
    `exit_code` is that of the refused run, and `account` says why.
    """

    dataset: str
    strategy: str
    strategy_reason: str | None
    universe: PlannedUniverse
    rows: int
    rows_from: str
    kept: KeptRows
    blocks: tuple[str, ...] | None
    prior: str | None
    epsilon: float
    delta: float
    amount: float
    amounts: PlannedAmounts
    account: PlannedAccount
    exit_code: int
    limits: PlannedLimit | None
    expects: PlannedTotal | None
    persons: PlannedPersons | None
    discovers: tuple[PlannedDiscovery, ...]
    depends: tuple[PlannedFunction, ...]
    first: tuple[PlannedColumn, ...]
    ranges: tuple[str, ...]
    rounds: PlannedRounds | None
    ratings: Rated
    changes: tuple[Change, ...]
    costs: Costs
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        return asdict(self)


def plan_run(
    declaration: Declaration, *, rows: int | None, units: int | None = None, as_of: date | None = None
) -> Plan:
    """Plan a run, even if the account cannot pay for it. Raise the other errors that the run would raise.

    Args:
        declaration: The declaration of the run.
        rows: The approximate number of rows: a public guess. None for that of an earlier release, of the spec, or `USUAL_ROWS`.
        units: The approximate number of units: a public guess, too. None if nobody has said.
        as_of: With `blocks`, the day as of which blocks are complete; None for today in UTC.
    """
    grounds = grounds_of(declaration, rows=rows, units=units, as_of=as_of)
    declared = declaration = grounds.declaration
    limits = (
        planned_limit(
            declared,
            currency=grounds.currency,
            rows=lambda limit: grounds.kept(declared.limited(limit)).rows,
            likely=grounds.limit,
        )
        if declared.lacks_limit
        else None
    )
    usual = _declared(grounds.limited(declaration))
    declaration, terms, strategy = _granted(declaration, grounds, usual=usual)
    privacy, columns = declaration.spec.privacy, declaration.universe.attributes
    refused = grounds.refusal(declaration, amount=terms.amount)
    rounds = _rounds(declaration, terms, at_most=strategy.rounds)
    number, cells = (rounds.number, rounds.typical_cells) if rounds else (0, 0)
    expects, first = _expects(declaration, terms), _first(declaration, terms)
    ratings = _rated(declaration, terms)
    counting = grounds.kept(declaration)
    poor = poor_warning(ratings, rows=counting.rows, guessed=grounds.rows_from == GUESS)
    return Plan(
        dataset=declaration.spec.dataset,
        strategy=declaration.strategy.name,
        strategy_reason=declaration.strategy_reason,
        universe=PlannedUniverse.of(declared.covering(grounds.blocks).universe),
        rows=grounds.rows,
        rows_from=grounds.rows_from,
        kept=counting,
        blocks=grounds.blocks,
        prior=grounds.prior,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        amount=terms.amount / AMOUNT_OF_ONE,
        amounts=PlannedAmounts.of(privacy.epsilon, delta=privacy.delta),
        account=grounds.payer(declaration, amount=terms.amount, refused=refused),
        exit_code=refused.exit_code if refused else 0,
        limits=limits,
        expects=expects,
        persons=_persons(declaration, terms),
        discovers=planned_discovery(declaration, terms),
        depends=tuple(_functions(declaration, terms)),
        first=first,
        ranges=tuple(name for name in declaration.spec.workload.ranges or () if has_levels(columns[name].size)),
        rounds=rounds,
        ratings=ratings,
        changes=helpful_changes(
            declared, ratings, plan=lambda changed: _replanned(changed, grounds, before=(declared, usual))
        ),
        costs=costs_of(declaration, rows=grounds.rows, rounds=number, cells=cells),
        warnings=(*impossible_warnings(declared, units=units), *_warnings(expects, first, poor)),
    )


def _granted(
    declaration: Declaration, grounds: Grounds, *, usual: tuple[Strategy, Fraction] | None = None
) -> tuple[Declaration, Terms, Strategy]:
    """Return the declaration as the run's strategy will see it, the run's terms, and the strategy.

    It is narrowed to the run's blocks, has a limit on rows per unit, and has the likely cells of columns at full resolution.
    """
    declaration = grounds.limited(declaration)
    currency, rows = grounds.currency, grounds.kept(declaration).rows
    # A run checks its budget before it knows its blocks and the cells of columns at full resolution.
    strategy, smallest = usual or _declared(declaration)
    amount = amount_to_reserve(declaration, strategy, currency=currency, smallest=smallest)
    granted = expecting(declaration.covering(grounds.blocks), amount=amount, currency=currency, rows=rows)
    planned = strategy if granted is declaration else strategy_for(granted)
    return granted, terms_of(granted, planned, currency=currency, rows=rows, smallest=smallest), planned


def _declared(declaration: Declaration) -> tuple[Strategy, Fraction]:
    """Return the strategy of a declaration and its smallest share. Both are the same for every epsilon and limit on rows per unit."""
    strategy = strategy_for(declaration)
    return strategy, smallest_share(declaration, strategy)


def _rated(declaration: Declaration, terms: Terms) -> Rated:
    first = [] if terms.single else [(column.cells, column.error) for column in _first(declaration, terms)]
    return rated(declaration, terms, first=first)


def _replanned(
    changed: Declaration, grounds: Grounds, *, before: tuple[Declaration, tuple[Strategy, Fraction]]
) -> tuple[Rated, str | None]:
    """Rate the run of a changed declaration, and say why the account would not pay for it."""
    declared, usual = before
    same = changed.universe is declared.universe and changed.workload is declared.workload
    declaration, terms, _ = _granted(changed, grounds, usual=usual if same else None)
    refused = grounds.refusal(declaration, amount=terms.amount)
    return _rated(declaration, terms), None if refused is None else str(refused)


def warning_before(
    declaration: Declaration, *, currency: Currency, amount: int, counted: int | None = None
) -> str | None:
    """Return the warning that most of what a run asks for is poor, in the words of its plan; None if it is not.

    Args:
        declaration: The declaration of the run, with its blocks and its limit on rows per unit.
        currency: The account's currency.
        amount: The amount that the run has reserved.
        counted: About how many rows count, if the run has measured that already.
    """
    rows, source = approximate_rows(declaration, None) if counted is None else (counted, "measured")
    if counted is None:
        rows = rows_that_count(declaration, rows=rows, rows_from=source, units=None).rows
    try:
        expected = expecting(declaration, amount=amount, currency=currency, rows=rows)
        # The run has checked its budget already: no share is too small.
        terms = terms_of(expected, strategy_for(expected), currency=currency, rows=rows, smallest=Fraction(1))
    except DpflowError:
        return None  # a warning never stops a run
    return poor_warning(_rated(expected, terms), rows=rows, guessed=source == GUESS)


def _expects(declaration: Declaration, terms: Terms) -> PlannedTotal | None:
    """Return the planned check of the total, if the spec says how many rows it expects."""
    expected = declaration.spec.privacy.expect_rows
    if expected is None:
        return None
    noise = total_noise(declaration, currency=terms.currency, amount=terms.amount)
    return PlannedTotal(*expected, share=float(declaration.share(Early.TOTAL)), noise=noise, margin=margin_of(noise))


def _persons(declaration: Declaration, terms: Terms) -> PlannedPersons | None:
    """Return what the run learns about persons, if the spec keeps their rows together."""
    if declaration.spec.persons is None:
        return None
    protection, share = declaration.protection.of_one_answer, declaration.share(Early.PERSONS)
    noise = terms.early_noise(declaration.early[Early.PERSONS][0], protection)
    return PlannedPersons(protection.unit, declaration.constant, share=float(share), noise=noise)


def _functions(declaration: Declaration, terms: Terms) -> Iterator[PlannedFunction]:
    """Yield what the run learns about columns that determine others."""
    for dependency in declaration.dependencies:
        noise = terms.early_noise(dependency.share, declaration.protection)
        cells = math.prod(declaration.universe.attributes[column].size for column in dependency.columns)
        yield PlannedFunction(dependency.words, cells, share=float(dependency.share), noise=noise)


def _warnings(expects: PlannedTotal | None, first: tuple[PlannedColumn, ...], poor: str | None) -> Iterator[str]:
    """Yield warnings about problems that are known before anything is charged."""
    if poor:
        yield poor
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


def _first(declaration: Declaration, terms: Terms) -> tuple[PlannedColumn, ...]:
    """Return the measurements for the first model."""
    columns = {name: attribute.size for name, attribute in declaration.universe.attributes.items()}
    planned = []
    for place, (name, cells) in enumerate([("total", 1)] if terms.single else columns.items()):
        noise = terms.first_noise(place)
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
    if model_cells is not None:
        # A factored model learns a coarser version of a marginal with too many cells: coarsened in steps, with about half of what fits.
        return min(int(median(sizes)), max(min(worth, model_cells) // 2, 2))
    parts = cells_of(terms.outline.candidates, declaration.universe.shape)
    fitting = [size for size in sizes if size <= worth] or [max((size for size in parts if size <= worth), default=0)]
    return int(median(fitting)) or min(parts, default=sizes[0])
