"""Numbers of groups whose values are tilted within cells, and how uncertain that is (docs/decisions/0044).

Only the share of a group in each cell was measured. A released value is drawn from the distribution of the whole table within its cell, so the
mean, sum or quantile of a group can be wrong even if all counts are right. `tilt` tells in which direction, and the rest is uncertain.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpcore.answers.cells import Column
from dpcore.answers.evaluate import LEAST_ROWS, mean_of, quantiles
from dpcore.answers.query import Mean, Quantile, Sum
from dpcore.answers.tilt import EVENLY, STEEPEST, share_tilted, shift, slopes
from dpcore.marginals.resolutions import Groups
from dpcore.models.model import Weights

# In standard deviations of a cell: how far the mean of a group lies from where the tilt puts it. Chosen on two tables: docs/decisions/0044
OWN = 0.1  # in each cell of its own
APART = 0.2  # in all cells alike, if the column was not measured together with those of the condition
ALONE = 0.5  # if there is no cell before or after that would tell
STEEPNESS = 0.35  # and this part of what the tilt itself moves
FEW_ROWS = 5.0  # are added to each cell at the usual share, so that a share of few rows is not taken too seriously

Valued = Mean | Sum | Quantile


@dataclass(frozen=True)
class Resolved:
    """The cells in which a column was measured together with the other columns of a number: one for each of its cells.

    Attributes:
        cells: The measured cell of each cell.
        together: Whether the column was measured together with each of the others.
    """

    cells: Groups
    together: bool


@dataclass(frozen=True, eq=False)
class Tilting:
    """A mean, sum or quantile on some models, whose groups are tilted within the measured cells of its column.

    Attributes:
        number: The mean, sum or quantile.
        columns: Its column as each model distributes the values.
        masses: The rows of each group in each piece of the column with values, in ascending order, by each model.
        whole: The rows of all groups in each cell of the column, by each model.
        resolved: The measured cells.
    """

    number: Valued
    columns: Sequence[Column]
    masses: Weights
    whole: Weights
    resolved: Resolved

    def values(self) -> Weights:
        """Return the tilted number of each group on each model."""
        return np.stack([self._value(at, self._slopes[at]) for at in range(len(self.masses))])

    def moved(self, errors: float) -> Weights:
        """Return the number of each group on the first model, if its values lie this many standard errors above the tilt."""
        return self._value(0, np.clip(self._slopes[0] + errors * self._errors[0], -STEEPEST, STEEPEST))

    def tilted_masses(self) -> Weights:
        """Return the masses after tilting. They move between pieces of a measured cell only."""
        return np.stack([self._masses(at, self._slopes[at]) for at in range(len(self.masses))])

    def quantiles(self, masses: Weights, shares: Weights) -> Weights:
        """Return quantiles of tilted masses on the first model."""
        return quantiles(self.columns[0], masses, shares, slopes=self._across(0, self._slopes[0]))

    def _value(self, at: int, slope: Weights) -> Weights:
        column, masses = self.columns[at], self._masses(at, slope)
        if isinstance(self.number, Quantile):
            shares = np.full(len(masses), self.number.share)
            return quantiles(column, masses, shares, slopes=self._across(at, slope))
        inside = column.ascending
        sums = (masses * (column.means[inside] + column.deviations[inside] * shift(self._across(at, slope)))).sum(
            axis=1
        )
        return sums if isinstance(self.number, Sum) else mean_of(sums, masses.sum(axis=1))

    def _masses(self, at: int, slope: Weights) -> Weights:
        """Tilt the masses of one model. A measured cell that counts as a whole keeps its rows."""
        low, high = self._ends[0][at], self._ends[1][at]
        own = slope[:, self._measured]
        parts = share_tilted(high, own) - share_tilted(low, own)
        wide = high > low
        moved = self.masses[at] * np.where(wide, parts / np.where(wide, high - low, 1.0), 1.0)
        rows, now = self.masses[at] @ self._chosen, moved @ self._chosen
        kept = (self._held[at] > 1 - 1e-9) & (now > LEAST_ROWS)
        factors = np.where(kept, rows / np.where(kept, now, 1.0), 1.0)
        found: Weights = moved * factors[:, self._measured]
        return found

    def _across(self, at: int, slope: Weights) -> Weights:
        """Return the slope across each piece, which is a part of that across its measured cell."""
        found: Weights = slope[:, self._measured] * (self._ends[1][at] - self._ends[0][at])
        return found

    @cached_property
    def _measured(self) -> npt.NDArray[np.intp]:
        """The measured cell of each piece, numbered in ascending order of their first pieces."""
        cells = self.resolved.cells[self.columns[0].cell[self.columns[0].ascending]]
        _, first, inverse = np.unique(cells, return_index=True, return_inverse=True)
        found: npt.NDArray[np.intp] = np.argsort(np.argsort(first))[inverse.ravel()]
        return found

    @cached_property
    def _chosen(self) -> Weights:
        """A column for each measured cell, with ones for its pieces."""
        return np.eye(int(self._measured.max()) + 1)[self._measured]

    @cached_property
    def _pieces(self) -> Weights:
        """The rows of all groups in each piece, by each model."""
        inside = self.columns[0].ascending
        return np.stack(
            [
                rows[column.cell[inside]] * column.share[inside]
                for rows, column in zip(self.whole, self.columns, strict=True)
            ]
        )

    @cached_property
    def _all(self) -> Weights:
        """The rows of all groups in each measured cell, by each model."""
        found: Weights = np.maximum(self._pieces @ self._chosen, LEAST_ROWS)
        return found

    @cached_property
    def _ends(self) -> tuple[Weights, Weights]:
        """The share of its measured cell that is below each piece, and that below its end, by each model."""
        parts = self._pieces / self._all[:, self._measured]
        run = np.cumsum(parts[:, :, None] * self._chosen, axis=1)
        high = np.clip(np.take_along_axis(run, self._measured[None, :, None], axis=2)[:, :, 0], 0.0, 1.0)
        return np.maximum(high - parts, 0.0), high

    @cached_property
    def _held(self) -> Weights:
        """The share of each measured cell that counts for each group, by each model."""
        found: Weights = ((self.masses > 0) * self._pieces[:, None, :]) @ self._chosen / self._all[:, None, :]
        return found

    @cached_property
    def _rows(self) -> Weights:
        """The rows that each group would have in each measured cell if all of it counted, by each model."""
        rows = self.masses @ self._chosen
        return np.divide(rows, self._held, out=np.zeros(rows.shape), where=self._held > 0)

    @cached_property
    def _rest(self) -> Weights:
        """The share of each measured cell that is not the group's, by each model."""
        return np.clip(1 - self._rows / self._all[:, None, :], 0.0, 1.0)

    @cached_property
    def _slopes_and_known(self) -> tuple[Weights, npt.NDArray[np.bool_]]:
        counted = self._held > 0
        whole = np.where(counted, self._all[:, None, :], 0.0)
        usual = self._rows.sum(axis=2, keepdims=True) / np.maximum(whole.sum(axis=2, keepdims=True), LEAST_ROWS)
        added = FEW_ROWS / np.maximum(usual, LEAST_ROWS)
        return slopes(np.log((self._rows + FEW_ROWS) / (whole + added)), counted)

    @property
    def _slopes(self) -> Weights:
        """The slope of each group in each measured cell, by each model."""
        return self._slopes_and_known[0]

    @cached_property
    def _errors(self) -> Weights:
        """The standard error of each slope."""
        slope, known = self._slopes_and_known
        alike = np.where(known, 0.0 if self.resolved.together else APART, ALONE) * self._rest
        own = np.where(known, OWN, 0.0) * self._rest
        chance = self._rest / np.maximum(self._rows, 1.0)  # rows of a group are not exactly distributed as all of them
        found: Weights = EVENLY * np.sqrt(
            (STEEPNESS * shift(slope)) ** 2 + alike**2 + self._own_part[:, :, None] ** 2 * (own**2 + chance)
        )
        return found

    @cached_property
    def _own_part(self) -> Weights:
        """The root of the sum of squares of what cells add to a number, as a part of their sum: errors of their own partly cancel out."""
        if isinstance(self.number, Quantile):  # lies in one cell
            return np.ones(self.masses.shape[:2])
        deviations = np.stack([self._deviations(at) for at in range(len(self.masses))])
        added = (self.masses @ self._chosen) * deviations[:, None, :]
        total = added.sum(axis=2)
        found: Weights = np.divide(
            np.sqrt((added**2).sum(axis=2)), total, out=np.ones(total.shape), where=total > LEAST_ROWS
        )
        return found

    def _deviations(self, at: int) -> Weights:
        """Return the standard deviation of all values in each measured cell."""
        column, inside = self.columns[at], self.columns[at].ascending
        means, deviations = column.means[inside], column.deviations[inside]
        middle = (self._pieces[at] * means) @ self._chosen / self._all[at]
        squares = (
            (self._pieces[at] * ((means - middle[self._measured]) ** 2 + deviations**2)) @ self._chosen / self._all[at]
        )
        found: Weights = np.sqrt(np.maximum(squares, 0.0))
        return found
