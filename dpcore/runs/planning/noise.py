"""Compute the noise of a run's measurements from its spec and amount, with the functions that price the run itself."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from dpcore.descent.tree import CELL_NOISE
from dpcore.marginals.measurements import LEAST_NOISE
from dpcore.mechanisms.pricing import cell_noise, marginal_noise
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Protection
from dpcore.runs.paying import amount_to_reserve
from dpcore.spec import Declaration
from dpcore.strategies import Outline, Strategy
from dpcore.universe.leaves import Fine

ABSOLUTE = math.sqrt(2 / math.pi)  # the mean absolute value of Gaussian noise with standard deviation 1


@dataclass(frozen=True)
class Terms:
    """The amount a run reserves, and what it plans to measure with it in a table of about `rows` rows.

    `left` is the share of the amount that remains for the strategy after the check of the total and discovery.
    """

    amount: int
    currency: Currency
    protection: Protection
    single: bool  # whether single counts are measured instead of marginals
    rows: int
    outline: Outline
    left: Fraction
    trees: Mapping[
        int, Fraction
    ]  # the share of a level of each column at full resolution, whose counts the strategy is given

    def measured(self, place: int) -> tuple[float, ...]:
        """Return the noise of each measurement of a first marginal, or of the total; of a tree, the noise of a level."""
        if place in self.trees and not self.single:
            return (self.early_noise(self.trees[place], self.protection),)
        return tuple(self.noise_of(share) for share in self.outline.first[place])

    def first_noise(self, place: int) -> float:
        """Return the combined noise of these measurements."""
        return 1 / math.sqrt(sum(1 / max(noise, LEAST_NOISE) ** 2 for noise in self.measured(place)))

    def round_noise(self) -> float | None:
        """Return the noise of a round's measurement; None without rounds."""
        return None if self.outline.measuring is None else self.noise_of(self.outline.measuring)

    def worth_cells(self, noise: float) -> int | None:
        """Return the maximum number of cells of a marginal that is worth measuring with this noise; None if the strategy has no such rule."""
        room = self.outline.room
        return None if room is None else int(room * self.rows / (ABSOLUTE * max(noise, LEAST_NOISE)))

    def error(self, cells: int, noise: float) -> float:
        """Return the expected L1 error due to noise alone, as a share of the rows."""
        return cells * noise * ABSOLUTE / self.rows

    def early_noise(self, share: Fraction, protection: Protection) -> float:
        """Return the noise that a share of the whole budget buys for a marginal before the strategy begins."""
        return _noise(int(self.amount * share), self.currency, protection=protection, single=False)

    def noise_of(self, share: Fraction) -> float:
        """Return the noise that a share of the strategy's budget buys."""
        amount = int(self.amount * self.left * share)
        return _noise(amount, self.currency, protection=self.protection, single=self.single)


def terms_of(
    declaration: Declaration, strategy: Strategy, *, currency: Currency, rows: int, smallest: Fraction | None = None
) -> Terms:
    """Return the terms of a run. Raise if its epsilon is too small, as the run would."""
    amount = amount_to_reserve(declaration, strategy, currency=currency, smallest=smallest)
    protection, single = declaration.protection, strategy.single_counts
    left = declaration.left

    def noise_of(share: Fraction) -> float:
        return _noise(int(amount * left * share), currency, protection=protection, single=single)

    outline = strategy.outline(rows, noise_of)
    names, descents = declaration.universe.names, declaration.descents()
    trees = {names.index(name): descents[name].share / descents[name].levels for name in declaration.fine}
    return Terms(amount, currency, protection, single=single, rows=rows, outline=outline, left=left, trees=trees)


def expecting(declaration: Declaration, *, amount: int, currency: Currency, rows: int) -> Declaration:
    """Return the declaration with as many cells in each column at full resolution as stand out of its tree's noise.

    These are the cells that the model will learn, about. The real ones are found in the data.
    """
    descents, likely = declaration.descents(), {}
    for name in declaration.fine:
        attribute, descent = declaration.universe.attributes[name], descents[name]
        level = int(amount * descent.share / descent.levels)
        noise = _noise(level, currency, protection=declaration.protection, single=False)
        if isinstance(attribute, Fine):
            cells = max(1, min(attribute.cells, int(rows / (CELL_NOISE * noise))))
            likely[name] = attribute.cut_at([attribute.places * part // cells for part in range(1, cells)])
    return declaration.discovered(likely) if likely else declaration


@lru_cache(maxsize=10_000)
def _noise(amount: int, currency: Currency, *, protection: Protection, single: bool) -> float:
    """Return the standard deviation that an amount buys. Cached, since it is slow and the same for columns of one size."""
    kind = cell_noise if single else marginal_noise
    return kind(amount, currency=currency, protection=protection).standard_deviation
