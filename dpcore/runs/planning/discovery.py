"""Plan the discovery of a run: the most it can find, and its noise."""

from dataclasses import dataclass

from dpcore.descent import threshold
from dpcore.mechanisms import DiscreteLaplace
from dpcore.mechanisms.pricing import marginal_noise
from dpcore.runs.planning.noise import Terms
from dpcore.spec import Declaration


@dataclass(frozen=True)
class PlannedDiscovery:
    """A column whose values or edges are discovered: the most cells that can be found, the number of levels, and the share of the budget.

    `noise` is the standard deviation of each count. A value with about `least` rows stands out of the noise in a first level of
    `candidates`; in other levels this number is slightly larger or smaller.
    """

    name: str
    cells: int
    share: float
    levels: int
    noise: float
    candidates: int
    least: int


def planned_discovery(declaration: Declaration, terms: Terms) -> tuple[PlannedDiscovery, ...]:
    """Return the planned descent of each column."""
    planned = []
    for name, descent in declaration.descents().items():
        amount = int(terms.amount * descent.share / descent.levels)
        mechanism = marginal_noise(amount, currency=terms.currency, protection=terms.protection)
        noise, laplace = mechanism.standard_deviation, isinstance(mechanism, DiscreteLaplace)
        candidates = 1 if descent.candidates is None else descent.candidates.size
        planned.append(
            PlannedDiscovery(
                name=name,
                cells=declaration.universe.attributes[name].cells,
                share=float(descent.share),
                levels=descent.levels,
                noise=noise,
                candidates=candidates,
                least=threshold(candidates, noise=noise, laplace=laplace),
            )
        )
    return tuple(planned)
