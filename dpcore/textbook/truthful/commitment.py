"""The commitment mechanism, and the gap of a game: the least cost of a lie under it."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpcore.mechanisms.sampling import uniform
from dpcore.textbook.truthful.exact import Exact
from dpcore.textbook.truthful.gains import Utilities
from dpcore.textbook.truthful.game import Decision, Game, Payoffs, Profile


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

    >>> from dpcore.textbook.truthful.game import facility_game
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Commitment:
    """Draw an outcome uniformly, and commit every player to the best reaction of the type that it reported.

    Guarantee:
        No lie gains anything, and every lie costs at least gamma / outcomes in expectation (see `gap`). The outcome does not
        depend on any report, so it is perfectly private. The imposed reactions are not: each is a function of one player's own
        report and the outcome. If a reaction is shown only to its player and to whoever enforces it, nobody else learns anything
        (joint differential privacy, with epsilon 0). If reactions are published or observed, they reveal their players' reports.

    Randomness:
        `uniform.below`, from the operating system's entropy.

    Reference:
        Nissim, Smorodinsky and Tennenholtz 2012.
    """

    game: Game

    def draw(self, reports: Sequence[Hashable]) -> Decision:
        """Return a uniformly random outcome with a reaction for each player."""
        profile = self.game.profile(reports)
        place = int(uniform.below(len(self.game.outcomes), 1)[0])
        imposed = tuple(
            player.reactions[payoffs.best[report][place]]
            for player, payoffs, report in zip(self.game.players, self.game.payoffs, profile, strict=True)
        )
        return Decision(outcome=self.game.outcomes[place], imposed=imposed)

    def utilities(self, profile: Profile) -> Utilities:
        """Return each player's expected utility under these reports, for each type that may be its true one."""
        return tuple(
            tuple(Exact.of(expected) for expected in _expected(payoffs, report))
            for payoffs, report in zip(self.game.payoffs, profile, strict=True)
        )


def _expected(payoffs: Payoffs, report: int) -> list[Fraction]:
    return [sum(rows[report], Fraction(0)) / len(rows[report]) for rows in payoffs.bound]
