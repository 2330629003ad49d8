"""Compute what each limit on the rows of a unit costs, for `max_rows_per_unit: auto`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from dpcore.errors import UsageError
from dpcore.mechanisms.pricing import marginal_noise
from dpcore.privacy.accounting import Currency
from dpcore.runs.paying import smallest_share
from dpcore.runs.planning.noise import Terms, terms_of
from dpcore.spec import Declaration
from dpcore.spec.release import AUTO_LIMITS
from dpcore.strategies import strategy_for


@dataclass(frozen=True)
class LimitCost:
    """What a limit on the rows of a unit costs: the expected L1 error of a column due to noise, on average, as a share of the rows."""

    rows_per_unit: int
    error: float


@dataclass(frozen=True)
class PlannedLimit:
    """The limit on the rows of a unit that a run chooses: the histogram's price as a share of the budget, its noise, and the cost of each limit.

    Unless the number of units is given, the costs assume that each limit keeps the same number of rows. A limit that the budget cannot pay is left out.
    """

    unit: str
    share: float
    noise: float
    costs: tuple[LimitCost, ...]


def planned_limit(declaration: Declaration, *, currency: Currency, rows: Mapping[int, float]) -> PlannedLimit:
    """Return the planned choice of the limit on rows per unit. Raise if the epsilon is too small even for one row.

    Args:
        declaration: The declaration of the run.
        currency: The account's currency.
        rows: The approximate number of rows that each limit keeps.
    """
    first = declaration.limited(AUTO_LIMITS[0])
    terms = terms_of(first, strategy_for(first), currency=currency, rows=max(1, round(rows[AUTO_LIMITS[0]])))
    bought, protection = int(terms.amount * declaration.limiting), declaration.protection.of_one_answer
    found = affordable(declaration, currency=currency, rows=rows)
    return PlannedLimit(
        unit=protection.unit,
        share=float(declaration.limiting),
        noise=marginal_noise(bought, currency=currency, protection=protection).standard_deviation,
        costs=tuple(LimitCost(limit, column_error(each, declaration.universe.shape)) for limit, each in found),
    )


def affordable(declaration: Declaration, *, currency: Currency, rows: Mapping[int, float]) -> list[tuple[int, Terms]]:
    """Return each limit whose noise the budget can pay, with the terms of a run under it.

    Args:
        declaration: The declaration of the run.
        currency: The account's currency.
        rows: The approximate number of rows that each limit keeps.
    """
    strategy = strategy_for(declaration)
    smallest, found = smallest_share(declaration, strategy), []
    for limit in AUTO_LIMITS:
        about = max(1, round(rows[limit]))
        try:
            terms = terms_of(declaration.limited(limit), strategy, currency=currency, rows=about, smallest=smallest)
        except UsageError:
            break  # a larger limit needs more noise still
        found.append((limit, terms))
    return found


def column_error(terms: Terms, shape: Sequence[int]) -> float:
    """Return the mean expected L1 error of a column due to noise, as a share of the rows.

    A strategy that measures single counts has no such measurements: each cell is then taken to be measured as in a round.
    """
    if terms.single:
        noise = terms.round_noise() or terms.first_noise(0)
        return mean(terms.error(cells, noise) for cells in shape)
    return mean(terms.error(cells, terms.first_noise(place)) for place, cells in enumerate(shape))
