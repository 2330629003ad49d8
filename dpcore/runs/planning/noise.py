"""The noise of what a run would measure, from its spec and its amount alone: by the functions that price the run itself."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from dpcore.mechanisms.pricing import cell_noise, marginal_noise
from dpcore.models.evidence import LEAST_NOISE
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Protection
from dpcore.runs.reservation import amount_to_reserve
from dpcore.spec import Declaration
from dpcore.spec.release import PmwSpec
from dpcore.strategies import Outline, Strategy

ABSOLUTE = math.sqrt(2 / math.pi)  # how large noise of standard deviation 1 is on average


@dataclass(frozen=True)
class Terms:
    """What a run sets aside, and what it means to measure for that in a table of about so many rows.

    `left` is the share of it that checking the total and finding values and edges in the data leave to the strategy.
    """

    amount: int
    currency: Currency
    protection: Protection
    single: bool  # whether single counts are measured instead of marginals
    rows: int
    outline: Outline
    left: Fraction

    def measured(self, place: int) -> tuple[float, ...]:
        """Return the noise of each measurement of one of the first marginals, or of the total."""
        return tuple(self._noise_of(share) for share in self.outline.first[place])

    def first_noise(self, place: int) -> float:
        """Return the noise of all its measurements together."""
        return 1 / math.sqrt(sum(1 / max(each, LEAST_NOISE) ** 2 for each in self.measured(place)))

    def round_noise(self) -> float | None:
        """Return the noise of what each round measures; None without rounds."""
        return None if self.outline.measuring is None else self._noise_of(self.outline.measuring)

    def worth_cells(self, noise: float) -> int | None:
        """Return how many cells a marginal may have to be worth so much noise; None without such a rule."""
        room = self.outline.room
        return None if room is None else int(room * self.rows / (ABSOLUTE * max(noise, LEAST_NOISE)))

    def error(self, cells: int, noise: float) -> float:
        """Return the L1 distance to the truth that noise alone makes, as a share of the rows."""
        return cells * noise * ABSOLUTE / self.rows

    def _noise_of(self, share: Fraction) -> float:
        amount = int(self.amount * self.left * share)
        return _noise(amount, self.currency, protection=self.protection, single=self.single)


def terms_of(
    declaration: Declaration, strategy: Strategy, *, currency: Currency, rows: int, smallest: Fraction | None = None
) -> Terms:
    """Return the terms of a run, or refuse an epsilon that is too small, as the run would."""
    amount = amount_to_reserve(declaration, strategy, currency=currency, smallest=smallest)
    protection, single = declaration.protection, isinstance(declaration.strategy, PmwSpec)
    left = 1 - declaration.discovering - declaration.checking

    def noise_of(share: Fraction) -> float:
        return _noise(int(amount * left * share), currency, protection=protection, single=single)

    outline = strategy.outline(rows, noise_of)
    return Terms(amount, currency, protection, single=single, rows=rows, outline=outline, left=left)


@lru_cache(maxsize=10_000)
def _noise(amount: int, currency: Currency, *, protection: Protection, single: bool) -> float:
    """Return the standard deviation that an amount buys; columns of one size have the same, and finding it takes a while."""
    kind = cell_noise if single else marginal_noise
    return kind(amount, currency=currency, protection=protection).standard_deviation
