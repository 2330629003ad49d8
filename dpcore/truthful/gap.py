"""The gap of a game: what a lie certainly costs at the outcome that punishes it most."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from dpcore.truthful.game import Game, Payoffs


@dataclass(frozen=True, kw_only=True)
class Gap:
    """The least cost of any lie, for players who must react as what they said they were.

    Attributes:
        gamma: The minimum, over players, true types and false ones, of the largest cost over all outcomes. Under private
            values what the others report makes no difference.
        outcomes: How many outcomes there are. One of them is drawn uniformly, so that every lie costs at least gamma /
            outcomes in expectation.
    """

    gamma: Fraction
    outcomes: int

    @property
    def expected(self) -> Fraction:
        """What any lie costs at least, in expectation over a uniform outcome."""
        return self.gamma / self.outcomes


def gap(game: Game) -> Gap:
    """Return the gap of a game, exactly; a game in which nobody can lie has the gap 1.

    >>> from dpcore.truthful.facility import facility_game
    >>> gap(facility_game(players=3, places=5))
    Gap(gamma=Fraction(1, 4), outcomes=10)
    """
    lies = (max(costs) for payoffs in game.kinds for costs in _costs(payoffs))
    return Gap(gamma=min(lies, default=Fraction(1)), outcomes=len(game.outcomes))


def _costs(payoffs: Payoffs) -> Iterator[list[Fraction]]:
    """Go through a player's lies: what each costs at every outcome. None is negative: nobody else's reaction is better."""
    for truth, best in enumerate(payoffs.values):
        for lie, bound in enumerate(payoffs.bound[truth]):
            if lie != truth:
                yield [own - forced for own, forced in zip(best, bound, strict=True)]
