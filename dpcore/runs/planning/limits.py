"""Compute what each limit on the rows of a unit costs, for `max_rows_per_unit: auto`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Protocol

from dpcore.errors import UsageError
from dpcore.privacy.accounting import Currency
from dpcore.runs.paying import smallest_share
from dpcore.runs.planning.noise import ABSOLUTE, Terms, terms_of
from dpcore.spec import Declaration
from dpcore.spec.release import AUTO_LIMITS
from dpcore.spec.shares import Early
from dpcore.strategies import strategy_for
from dpcore.tables.ingest.tally import EDGES

BEYOND = 2 * EDGES[-1]
"""The number of rows that a unit in the last bucket is taken to have. The histogram does not tell how many there are."""

UNLIKE = 0.2
"""The assumed L1 distance between the distributions of a column in lost rows and in all rows.

It was 0.15 to 0.21 on the table of visits that the rule was fitted to.
"""


class Units(Protocol):
    """What is known of the rows of units."""

    def rows(self, limit: int) -> float:
        """Return about how many rows a limit keeps."""
        ...


@dataclass(frozen=True)
class LimitError:
    """The expected workload error under a limit, as a share of the rows, and its parts."""

    rows_per_unit: int
    error: float
    noise: float
    lost: float


@dataclass(frozen=True)
class LimitCost:
    """What a limit on the rows of a unit costs: the expected L1 error of a column due to noise, on average, as a share of the rows."""

    rows_per_unit: int
    error: float


@dataclass(frozen=True)
class PlannedLimit:
    """The limit on the rows of a unit that a run chooses: the histogram's price as a share of the budget, its noise, and the cost of each limit.

    All other figures of the plan are for the limit `likely`. A limit that the budget cannot pay is left out.
    """

    unit: str
    likely: int
    share: float
    noise: float
    costs: tuple[LimitCost, ...]


def planned_limit(
    declaration: Declaration, *, currency: Currency, rows: Mapping[int, float], likely: int
) -> PlannedLimit:
    """Return the planned choice of the limit on rows per unit. Raise if the epsilon is too small even for one row.

    Args:
        declaration: The declaration of the run.
        currency: The account's currency.
        rows: The approximate number of rows that each limit keeps.
        likely: The limit that the plan's figures are for.
    """
    first = declaration.limited(AUTO_LIMITS[0])
    terms = terms_of(first, strategy_for(first), currency=currency, rows=max(1, round(rows[AUTO_LIMITS[0]])))
    share, protection = declaration.share(Early.LIMIT), declaration.protection.of_one_answer
    found = affordable(declaration, currency=currency, rows=rows)
    return PlannedLimit(
        unit=protection.unit,
        likely=likely,
        share=float(share),
        noise=terms.early_noise(share, protection),
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


def expected_errors(declaration: Declaration, units: Units, *, currency: Currency) -> tuple[LimitError, ...]:
    """Return the expected workload error under each limit that the budget can pay. There are none if no rows are known.

    Three independent errors add up as squares, in a marginal of w columns: the noise of the first measurements of a column and the error
    from lost rows, each sqrt(w) times that of one column, and the sampling error of the kept rows in a marginal of median size.
    """
    whole = units.rows(BEYOND)
    if not whole:
        return ()
    marginals, shape = declaration.workload.marginals, declaration.universe.shape
    columns = mean(len(axes) for axes in marginals)
    cells = median(math.prod(shape[axis] for axis in axes) for axes in marginals)
    errors = []
    for limit, terms in affordable(
        declaration, currency=currency, rows={each: units.rows(each) for each in AUTO_LIMITS}
    ):
        noise, lost = column_error(terms, shape), 1 - units.rows(limit) / whole
        squares = columns * (noise**2 + (UNLIKE * lost) ** 2) + ABSOLUTE**2 * cells / units.rows(limit)
        errors.append(LimitError(limit, math.sqrt(squares), noise=noise, lost=lost))
    return tuple(errors)


def chosen_limit(errors: Sequence[LimitError]) -> int:
    """Return the limit with the least expected error. If two errors are equal, return the smaller limit; if there are none, return 1.

    >>> chosen_limit(())
    1
    """
    return min(errors, key=lambda each: (each.error, each.rows_per_unit)).rows_per_unit if errors else 1
