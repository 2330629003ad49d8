"""Choose the limit on rows per unit for `max_rows_per_unit: auto`, by a public rule from a noisy histogram of the rows per unit.

A low limit loses rows, and those of persons with many rows first. A high limit adds noise to every count. The rule compares the expected
error of the workload under each limit. It uses noisy counts and the spec alone (docs/decisions/0041).
"""

import math
from dataclasses import dataclass
from itertools import pairwise

from dpcore.marginals.measurements import Measurement
from dpcore.models.evidence import LEAST_NOISE
from dpcore.privacy.accounting import Currency
from dpcore.release import ChosenLimit
from dpcore.release.statement import CLEAR
from dpcore.runs.planning.limits import BEYOND, chosen_limit, expected_errors
from dpcore.spec import Declaration
from dpcore.spec.release import AUTO_LIMITS
from dpcore.tables.ingest.tally import BUCKETS, EDGES

TYPICAL = (*EDGES[:2], *((low + 1 + high) / 2 for low, high in pairwise(EDGES[1:])), BEYOND)
"""The number of rows that a unit of each bucket is taken to have: the middle of the bucket."""


@dataclass(frozen=True)
class NoisyUnits:
    """Noisy numbers of units by bucket of their rows, with the standard deviation of their noise.

    >>> units = NoisyUnits((900, 100, -3, 5, 0, 2, 1, 0), noise=4.0)
    >>> units.rows(1), units.rows(2)
    (1000.0, 1100.0)
    """

    counts: tuple[int, ...]
    noise: float

    @classmethod
    def of(cls, measurement: Measurement) -> "NoisyUnits":
        """Return the measured numbers of units."""
        return cls(tuple(map(int, measurement.values.ravel())), noise=measurement.noise)

    def rows(self, limit: int) -> float:
        """Estimate the number of rows that a limit keeps. Buckets that do not stand out of the noise count as empty."""
        least = CLEAR * max(self.noise, LEAST_NOISE)
        kept = (count * min(rows, limit) for count, rows in zip(self.counts, TYPICAL, strict=True) if count >= least)
        return float(math.fsum(kept))

    def by_bucket(self) -> dict[str, int]:
        """Return the noisy number of units in each bucket."""
        return dict(zip(BUCKETS, self.counts, strict=True))


def rows_kept(chosen: ChosenLimit) -> int | None:
    """Return about how many rows the chosen limit keeps, by the noisy histogram; None if it tells nothing."""
    return round(NoisyUnits(tuple(chosen.units.values()), noise=chosen.noise).rows(chosen.rows)) or None


def choice_of(declaration: Declaration, units: NoisyUnits, *, currency: Currency, spent: float) -> ChosenLimit:
    """Choose the limit, and return it with what it was chosen by.

    Args:
        declaration: The granted declaration, before discovery.
        units: The noisy histogram.
        currency: The account's currency.
        spent: The price of the histogram, as a share of the run's budget.
    """
    limit = chosen_limit(expected_errors(declaration, units, currency=currency))
    # Units in the last bucket have at least so many rows: the share that is lost is stated as a lower bound, not as a guess.
    whole = units.rows(EDGES[-1] + 1)
    lost = 1 - units.rows(limit) / whole if whole else None
    return ChosenLimit(rows=limit, of=AUTO_LIMITS, spent=spent, noise=units.noise, units=units.by_bucket(), lost=lost)
