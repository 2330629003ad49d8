"""The gap of a game: the least cost of a lie at the outcome that punishes it most."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from dpcore.truthful.game import Game, Payoffs


@dataclass(frozen=True, kw_only=True)
class Gap:
    """The least cost of any lie, for players who must react as the type they reported.

    Attributes:
        gamma: The minimum, over players, true types and lies, of the largest cost over all outcomes. Under private values
            the reports of the others make no difference.
        outcomes: The number of outcomes. One of them is drawn uniformly, so every lie costs at least gamma / outcomes in
            expectation.
    """

    gamma: Fraction
    outcomes: int

    @property
    def expected(self) -> Fraction:
        """The least cost of any lie, in expectation over a uniform outcome."""
        return self.gamma / self.outcomes


def gap(game: Game) -> Gap:
    """Return the exact gap of a game. A game in which nobody can lie has gap 1.

    >>> from dpcore.truthful.facility import facility_game
    >>> gap(facility_game(players=3, places=5))
    Gap(gamma=Fraction(1, 4), outcomes=10)
    """
    lies = (max(costs) for payoffs in game.kinds for costs in _costs(payoffs))
    return Gap(gamma=min(lies, default=Fraction(1)), outcomes=len(game.outcomes))


def _costs(payoffs: Payoffs) -> Iterator[list[Fraction]]:
    """Yield the cost of each lie of a player at every outcome. No cost is negative, since a player's own best reaction is optimal."""
    for truth, best in enumerate(payoffs.values):
        for lie, bound in enumerate(payoffs.bound[truth]):
            if lie != truth:
                yield [own - forced for own, forced in zip(best, bound, strict=True)]
