"""The scope of a run: the size of its universe, the candidates of its rounds, its discovery, its budget in each currency."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median_low

from dpcore.descent import threshold
from dpcore.errors import UsageError
from dpcore.marginals.workload import Axes
from dpcore.mechanisms import DiscreteLaplace
from dpcore.mechanisms.pricing import marginal_noise
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, budget_of, mu_of, pure_gdp, pure_zcdp, spend_amount
from dpcore.runs.planning.noise import Terms
from dpcore.spec import Declaration
from dpcore.universe import Universe
from dpcore.universe.leaves import Fine


@dataclass(frozen=True)
class PlannedUniverse:
    """The size of the universe. `cells` is None above 10^18."""

    columns: int
    cells: int | None
    log10_cells: float

    @classmethod
    def of(cls, universe: Universe) -> "PlannedUniverse":
        """Return the size of a universe."""
        size = universe.size
        exact = size if size <= 10**18 else None  # every JSON reader can hold it as an integer
        return cls(len(universe.shape), exact, math.log10(size))


@dataclass(frozen=True)
class PlannedCandidates:
    """The marginals that the rounds select from: their number and their cells.

    `too_noisy` marginals have so many cells that noise would hide their counts. `too_large` ones have more cells than the model may have.
    Each is None if the strategy has no such limit. Strategy adaptive measures these marginals with merged cells; strategy mwem measures
    only their parts.
    """

    number: int
    smallest: int
    median: int
    largest: int
    too_noisy: int | None
    too_large: int | None

    @classmethod
    def of(cls, terms: Terms, shape: tuple[int, ...], *, noise: float) -> "PlannedCandidates":
        """Return the candidates of rounds with this noise."""
        cells = cells_of(terms.outline.candidates, shape)
        worth, most = terms.worth_cells(noise), terms.outline.model_cells
        return cls(
            number=len(cells),
            smallest=min(cells),
            median=median_low(cells),
            largest=max(cells),
            too_noisy=None if worth is None else sum(size > worth for size in cells),
            too_large=None if most is None else sum(size > most for size in cells),
        )


@dataclass(frozen=True)
class PlannedAmounts:
    """The run's epsilon and delta converted to pure epsilon, rho of zCDP, and mu of GDP.

    With a delta above 0 there is no pure epsilon, and rho and mu are the amounts that an account in that currency reserves. With delta 0,
    they follow from the pure guarantee. None means that the amount does not exist, or is too small or too large to be counted.
    """

    epsilon: float | None
    rho: float | None
    mu: float | None

    @classmethod
    def of(cls, epsilon: float, *, delta: float) -> "PlannedAmounts":
        """Convert epsilon and delta to each currency."""
        if delta == 0:
            rho = _or_none(lambda: spend_amount(pure_zcdp(epsilon)))
            mu_squared = _or_none(lambda: spend_amount(pure_gdp(epsilon)))
        else:
            rho = _or_none(lambda: budget_of(epsilon, delta=delta, currency=Currency.ZCDP)[1])
            mu_squared = _or_none(lambda: budget_of(epsilon, delta=delta, currency=Currency.GDP)[1])
        return cls(
            epsilon=None if delta else epsilon,
            rho=None if rho is None else rho / AMOUNT_OF_ONE,
            mu=None if mu_squared is None else mu_of(mu_squared),
        )


@dataclass(frozen=True)
class PlannedDiscovery:
    """A column whose values or edges are discovered: the maximum number of cells, the number of levels, and the share of the budget.

    `places` is the number of possible values of a column at full resolution. `noise` is the standard deviation of each count. A value with
    about `least` rows stands out of the noise in a first level of `candidates`; in other levels this number is slightly larger or smaller.
    """

    name: str
    cells: int
    share: float
    levels: int
    noise: float
    candidates: int
    least: int
    places: int | None = None


def planned_discovery(declaration: Declaration, terms: Terms) -> tuple[PlannedDiscovery, ...]:
    """Return the planned descent of each column."""
    planned = []
    for name, descent in declaration.descents().items():
        attribute, amount = declaration.universe.attributes[name], int(terms.amount * descent.share / descent.levels)
        mechanism = marginal_noise(amount, currency=terms.currency, protection=terms.protection)
        noise, laplace = mechanism.standard_deviation, isinstance(mechanism, DiscreteLaplace)
        candidates = 1 if descent.candidates is None else descent.candidates.size
        planned.append(
            PlannedDiscovery(
                name=name,
                cells=attribute.cells,
                share=float(descent.share),
                levels=descent.levels,
                noise=noise,
                candidates=candidates,
                least=threshold(candidates, noise=noise, laplace=laplace),
                places=attribute.places if isinstance(attribute, Fine) else None,
            )
        )
    return tuple(planned)


def cells_of(sets: tuple[Axes, ...], shape: tuple[int, ...]) -> list[int]:
    """Return the number of cells of each marginal."""
    return [math.prod(map(shape.__getitem__, axes)) for axes in sets]


def _or_none(amount: Callable[[], int]) -> int | None:
    try:
        return amount()
    except UsageError:
        return None
