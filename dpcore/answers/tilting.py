"""Numbers of groups whose values are tilted within cells, and how uncertain that is (docs/decisions/0044).

Only the share of a group in each cell was measured. A released value is drawn from the distribution of the whole table within its cell, so the
mean, sum or quantile of a group can be wrong even if all counts are right. `tilt` tells in which direction, and the rest is uncertain.
"""

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
    """A mean, sum or quantile on a model, whose groups are tilted within the measured cells of its column.

    Attributes:
        number: The mean, sum or quantile.
        column: Its column as the model distributes the values.
        masses: The rows of each group in each piece of the column with values, in ascending order.
        whole: The rows of all groups in each cell of the column.
        resolved: The measured cells.
    """

    number: Valued
    column: Column
    masses: Weights
    whole: Weights
    resolved: Resolved

    @property
    def value(self) -> Weights:
        """The tilted number of each group."""
        return self._value(self._slopes)

    def moved(self, errors: float) -> Weights:
        """Return the number of each group if its values lie this many standard errors above the tilt."""
        return self._value(np.clip(self._slopes + errors * self._errors, -STEEPEST, STEEPEST))

    @cached_property
    def tilted(self) -> Weights:
        """The masses after tilting. They move between pieces of a measured cell only."""
        return self._masses(self._slopes)

    def quantiles(self, shares: Weights) -> Weights:
        """Return quantiles of tilted masses."""
        return quantiles(self.column, self.tilted, shares, slopes=self._across(self._slopes))

    def _value(self, slope: Weights) -> Weights:
        masses, across, inside = self._masses(slope), self._across(slope), self.column.ascending
        if isinstance(self.number, Quantile):
            return quantiles(self.column, masses, np.full(len(masses), self.number.share), slopes=across)
        means = self.column.means[inside] + self.column.deviations[inside] * shift(across)
        sums = (masses * means).sum(axis=1)
        return sums if isinstance(self.number, Sum) else mean_of(sums, masses.sum(axis=1))

    def _masses(self, slope: Weights) -> Weights:
        """Tilt the masses. A measured cell that counts as a whole keeps its rows."""
        low, high = self._ends
        own = slope[:, self._measured]
        parts = share_tilted(high, own) - share_tilted(low, own)
        moved = self.masses * np.divide(parts, high - low, out=np.ones(parts.shape), where=high > low)
        rows, now = self.masses @ self._chosen, moved @ self._chosen
        is_whole = (self._held > 1 - 1e-9) & (now > LEAST_ROWS)
        factors = np.divide(rows, now, out=np.ones(now.shape), where=is_whole)
        return np.asarray(moved * factors[:, self._measured])

    def _across(self, slope: Weights) -> Weights:
        """Return the slope across each piece, which is a part of that across its measured cell."""
        low, high = self._ends
        return np.asarray(slope[:, self._measured] * (high - low))

    @cached_property
    def _measured(self) -> npt.NDArray[np.intp]:
        """The measured cell of each piece, numbered in ascending order of their first pieces."""
        cells = self.resolved.cells[self.column.cell[self.column.ascending]]
        _, first, inverse = np.unique(cells, return_index=True, return_inverse=True)
        return np.asarray(np.argsort(np.argsort(first))[inverse.ravel()])

    @cached_property
    def _chosen(self) -> Weights:
        """A column for each measured cell, with ones for its pieces."""
        return np.eye(int(self._measured.max()) + 1)[self._measured]

    @cached_property
    def _pieces(self) -> Weights:
        """The rows of all groups in each piece."""
        inside = self.column.ascending
        return np.asarray(self.whole[self.column.cell[inside]] * self.column.share[inside])

    @cached_property
    def _all(self) -> Weights:
        """The rows of all groups in each measured cell."""
        return np.asarray(np.maximum(self._pieces @ self._chosen, LEAST_ROWS))

    @cached_property
    def _ends(self) -> tuple[Weights, Weights]:
        """The share of its measured cell that is below each piece, and that below its end."""
        parts = self._pieces / self._all[self._measured]
        below = np.cumsum(parts[:, None] * self._chosen, axis=0)
        high = np.clip(below[np.arange(len(parts)), self._measured], 0.0, 1.0)
        return np.maximum(high - parts, 0.0), high

    @cached_property
    def _held(self) -> Weights:
        """The share of each measured cell that counts for each group."""
        return np.asarray(((self.masses > 0) * self._pieces) @ self._chosen / self._all)

    @cached_property
    def _rows(self) -> Weights:
        """The rows that each group would have in each measured cell if all of it counted."""
        rows = self.masses @ self._chosen
        return np.divide(rows, self._held, out=np.zeros(rows.shape), where=self._held > 0)

    @cached_property
    def _slopes_and_known(self) -> tuple[Weights, npt.NDArray[np.bool_]]:
        counted = self._held > 0
        whole = np.where(counted, self._all, 0.0)
        usual = self._rows.sum(axis=1, keepdims=True) / np.maximum(whole.sum(axis=1, keepdims=True), LEAST_ROWS)
        added = FEW_ROWS / np.maximum(usual, LEAST_ROWS)
        return slopes(np.log((self._rows + FEW_ROWS) / (whole + added)), counted)

    @property
    def _slopes(self) -> Weights:
        """The slope of each group in each measured cell."""
        return self._slopes_and_known[0]

    @cached_property
    def _errors(self) -> Weights:
        """The standard error of each slope."""
        slope, has_neighbour = self._slopes_and_known
        rest = np.clip(1 - self._rows / self._all, 0.0, 1.0)  # the share of each measured cell that is not the group's
        alike = np.where(has_neighbour, 0.0 if self.resolved.together else APART, ALONE) * rest
        own = np.where(has_neighbour, OWN, 0.0) * rest
        chance = rest / np.maximum(self._rows, 1.0)  # rows of a group are not exactly distributed as all of them
        own_squares = self._own_part[:, None] ** 2 * (own**2 + chance)
        return np.asarray(EVENLY * np.sqrt((STEEPNESS * shift(slope)) ** 2 + alike**2 + own_squares))

    @cached_property
    def _own_part(self) -> Weights:
        """The root of the sum of squares of what cells add to a number, as a part of their sum: errors of their own partly cancel out."""
        if isinstance(self.number, Quantile):  # lies in one cell
            return np.ones(len(self.masses))
        added = (self.masses @ self._chosen) * self._deviations
        total = added.sum(axis=1)
        root = np.sqrt((added**2).sum(axis=1))
        return np.asarray(np.divide(root, total, out=np.ones(total.shape), where=total > LEAST_ROWS))

    @property
    def _deviations(self) -> Weights:
        """The standard deviation of all values in each measured cell."""
        inside = self.column.ascending
        means, deviations = self.column.means[inside], self.column.deviations[inside]
        middle = (self._pieces * means) @ self._chosen / self._all
        squares = (self._pieces * ((means - middle[self._measured]) ** 2 + deviations**2)) @ self._chosen / self._all
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)))
