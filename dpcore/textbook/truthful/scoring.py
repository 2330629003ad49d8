"""Integer scores of outcomes for the reports, with the sensitivity derived from the game."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.textbook.truthful.game import Game, Payoffs, Profile

FINEST_GRID = 1_000_000
"""The maximum number of steps per unit of quality. Most games need fewer to represent every score exactly."""

Quality = Callable[[tuple[Hashable, ...]], Sequence[Fraction | int]]
"""Maps all reported types to the quality of each outcome, in the order of the game's outcomes."""


class Scoring(Protocol):
    """Scores on an integer grid, and how much one player's report can change any of them."""

    @property
    def grid(self) -> int:
        """The number of score steps per unit of quality."""

    @property
    def sensitivity(self) -> int:
        """The largest change of any score when one player reports something else, at least 1."""

    @property
    def rounding(self) -> Fraction:
        """The largest rounding error of a score, in units of quality."""

    def scores(self, profile: Profile) -> npt.NDArray[np.int64]:
        """Return the score of each outcome."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WelfareScoring:
    """The social welfare: the sum of the players' utilities of an outcome if their reports were true.

    Each player's values are put on the grid before they are added, so the sensitivity is the largest difference between two
    rows of one player's table. That covers every misreport without going through the others' reports.
    """

    game: Game
    grid: int = field(init=False)
    sensitivity: int = field(init=False)
    rounding: Fraction = field(init=False)
    _tables: Mapping[int, npt.NDArray[np.int64]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Put every value on the grid and find the largest change of a score when one report changes."""
        kinds = self.game.kinds
        grid, error = _grid_of(value for payoffs in kinds for row in payoffs.values for value in row)
        tables = {id(payoffs): _on_grid(payoffs, grid) for payoffs in kinds}
        steps = (int((table.max(axis=0) - table.min(axis=0)).max()) for table in tables.values())
        object.__setattr__(self, "grid", grid)
        object.__setattr__(self, "sensitivity", max(1, *steps))
        object.__setattr__(self, "rounding", error * len(self.game.players))
        object.__setattr__(self, "_tables", tables)

    def scores(self, profile: Profile) -> npt.NDArray[np.int64]:
        """Return the welfare of each outcome, in steps of the grid."""
        total = np.zeros(len(self.game.outcomes), dtype=np.int64)
        for payoffs, report, count in self.game.tally(profile):
            total += count * self._tables[id(payoffs)][report]
        return total


@dataclass(frozen=True, kw_only=True, eq=False)
class QualityScoring:
    """A custom quality of outcomes, evaluated once for every combination of reports.

    The sensitivity is the largest change of any score over all combinations and all misreports of one player.
    """

    game: Game
    quality: Quality
    grid: int = field(init=False)
    sensitivity: int = field(init=False)
    rounding: Fraction = field(init=False)
    _table: Mapping[Profile, npt.NDArray[np.int64]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Evaluate the quality everywhere, put it on the grid, and compare all neighbours."""
        qualities = {profile: self._evaluated(profile) for profile in self.game.profiles()}
        grid, error = _grid_of(value for row in qualities.values() for value in row)
        if max(abs(value) for row in qualities.values() for value in row) * grid >= 2**62:
            raise UsageError("this quality is too large for 64-bit scores; divide it by a constant")
        table = {
            profile: np.array([round(value * grid) for value in row], dtype=np.int64)
            for profile, row in qualities.items()
        }
        object.__setattr__(self, "grid", grid)
        object.__setattr__(self, "sensitivity", max(1, _largest_step(self.game, table)))
        object.__setattr__(self, "rounding", error)
        object.__setattr__(self, "_table", table)

    def scores(self, profile: Profile) -> npt.NDArray[np.int64]:
        """Return the quality of each outcome, in steps of the grid."""
        return self._table[profile]

    def _evaluated(self, profile: Profile) -> list[Fraction]:
        row = self.quality(self.game.reports(profile))
        if len(row) != len(self.game.outcomes) or not all(isinstance(value, int | Fraction) for value in row):
            raise UsageError("a quality must return a Fraction or an integer for each outcome, in their order")
        return [Fraction(value) for value in row]


def _grid_of(values: Iterable[Fraction]) -> tuple[int, Fraction]:
    """Return the coarsest grid that represents all values exactly, or the finest allowed one with its rounding error."""
    common = 1
    for value in values:
        common = math.lcm(common, value.denominator)
        if common > FINEST_GRID:
            return FINEST_GRID, Fraction(1, 2 * FINEST_GRID)
    return common, Fraction(0)


def _on_grid(payoffs: Payoffs, grid: int) -> npt.NDArray[np.int64]:
    return np.array([[round(value * grid) for value in row] for row in payoffs.values], dtype=np.int64)


def _largest_step(game: Game, table: Mapping[Profile, npt.NDArray[np.int64]]) -> int:
    """Return the largest change of a score between two profiles that differ in one report."""
    largest = 0
    for player, kind in enumerate(game.players):
        for profile in (profile for profile in table if profile[player] == 0):
            rows = np.stack(
                [table[*profile[:player], report, *profile[player + 1 :]] for report in range(len(kind.types))]
            )
            largest = max(largest, int((rows.max(axis=0) - rows.min(axis=0)).max()))
    return largest
