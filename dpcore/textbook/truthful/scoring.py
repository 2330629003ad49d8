"""Integer scores of outcomes for the reports, with the sensitivity derived from the game."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.textbook.truthful.game import Game, Profile

Scores: TypeAlias = npt.NDArray[np.int64]

FINEST_GRID = 1_000_000
"""The maximum number of steps per unit of quality. Most games need fewer to represent every score exactly."""

Quality = Callable[[tuple[Hashable, ...]], Sequence[Fraction | int]]
"""Maps all reported types to the quality of each outcome, in the order of the game's outcomes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scoring:
    """Scores on an integer grid, and how much one player's report can change any of them.

    Attributes:
        grid: The number of score steps per unit of quality.
        sensitivity: The largest change of any score when one player reports something else, at least 1.
        rounding: The largest rounding error of a score, in units of quality.
        scores: Returns the score of each outcome for a profile.
    """

    grid: int
    sensitivity: int
    rounding: Fraction
    scores: Callable[[Profile], Scores]


def welfare_scoring(game: Game) -> Scoring:
    """Return scores by the social welfare: the sum of the players' utilities of an outcome if their reports were true.

    Each player's values are put on the grid before they are added, so the sensitivity is the largest difference between two
    rows of one player's table. That covers every misreport without going through the others' reports.
    """
    kinds = game.kinds
    grid, error = _grid_of(value for payoffs in kinds for row in payoffs.values for value in row)
    tables = {id(payoffs): _on_grid(payoffs.values, grid) for payoffs in kinds}

    def scores(profile: Profile) -> Scores:
        total = np.zeros(len(game.outcomes), dtype=np.int64)
        for payoffs, report, count in game.tally(profile):
            total += count * tables[id(payoffs)][report]
        return total

    sensitivity = max(1, *(_spread(table) for table in tables.values()))
    return Scoring(grid=grid, sensitivity=sensitivity, rounding=error * len(game.players), scores=scores)


def quality_scoring(game: Game, quality: Quality) -> Scoring:
    """Return scores by a custom quality of outcomes, evaluated once for every combination of reports.

    The sensitivity is the largest change of any score over all combinations and all misreports of one player.
    """
    qualities = {profile: _evaluated(quality, game, profile) for profile in game.profiles()}
    grid, error = _grid_of(value for row in qualities.values() for value in row)
    if max(abs(value) for row in qualities.values() for value in row) * grid >= 2**62:
        raise UsageError("this quality is too large for 64-bit scores; divide it by a constant")
    table = dict(zip(qualities, _on_grid(qualities.values(), grid), strict=True))
    sensitivity = max(
        1,
        *(
            _spread(
                np.stack(
                    [table[*profile[:player], report, *profile[player + 1 :]] for report in range(len(kind.types))]
                )
            )
            for player, kind in enumerate(game.players)
            for profile in table
            if profile[player] == 0
        ),
    )
    return Scoring(grid=grid, sensitivity=sensitivity, rounding=error, scores=table.__getitem__)


def _evaluated(quality: Quality, game: Game, profile: Profile) -> list[Fraction]:
    row = quality(game.reports(profile))
    if len(row) != len(game.outcomes) or not all(isinstance(value, int | Fraction) for value in row):
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


def _on_grid(rows: Iterable[Iterable[Fraction]], grid: int) -> Scores:
    return np.array([[round(value * grid) for value in row] for row in rows], dtype=np.int64)


def _spread(rows: Scores) -> int:
    """Return the largest difference between two rows at any outcome."""
    return int((rows.max(axis=0) - rows.min(axis=0)).max())
