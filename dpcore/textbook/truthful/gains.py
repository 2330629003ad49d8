"""The gains of lies by exact enumeration: every player, every true type, every lie, and all reports of the others."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from dpcore.textbook.truthful.exact import Exact
from dpcore.textbook.truthful.game import Game, Profile

Utilities = tuple[tuple[Exact, ...], ...]
"""The expected utility of each player, for each type that may be its true one."""


class Rule(Protocol):
    """A rule that chooses an outcome from reports, with exactly known expectations."""

    @property
    def game(self) -> Game:
        """The game that the rule is for."""

    def utilities(self, profile: Profile) -> Utilities:
        """Return each player's expected utility under these reports, for each type that may be its true one."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """The expected gain of one lie, given the reports of the others.

    Attributes:
        player: The index of the liar.
        truth: The liar's true type.
        lie: The type that the liar reports instead.
        others: The reports of the others, in their order.
        lying: The liar's expected utility with the lie.
        honest: The same player's expected utility with the truth.
    """

    player: int
    truth: Hashable
    lie: Hashable
    others: tuple[Hashable, ...]
    lying: Exact
    honest: Exact

    @property
    def amount(self) -> Exact:
        """The gain, negative if the lie costs something."""
        return self.lying - self.honest

    @property
    def upper(self) -> Fraction:
        """A rational upper bound of the gain, within 2^-170 of it."""
        return self.lying.upper - self.honest.lower

    def at_most(self, bound: Exact) -> bool:
        """Return whether the gain is within a bound, decided exactly."""
        if self.upper <= bound.lower:
            return True
        return self.lying <= self.honest + bound


def gains(rule: Rule) -> Iterator[Gain]:
    """Yield the gain of every lie of a single player. Coalitions have their own bound.

    >>> from dpcore.textbook.truthful import PrivateSelection, facility_game
    >>> selection = PrivateSelection(game=facility_game(players=2, places=3), epsilon=0.5)
    >>> lies = list(gains(selection))
    >>> len(lies), any(lie.amount > Exact.of(0) for lie in lies)
    (36, False)
    """
    game = rule.game
    table = {profile: rule.utilities(profile) for profile in game.profiles()}
    for profile, honest in table.items():
        for player, kind in enumerate(game.players):
            truth = profile[player]
            others = game.reports(profile)[:player] + game.reports(profile)[player + 1 :]
            for lie in range(len(kind.types)):
                if lie != truth:
                    yield Gain(
                        player=player,
                        truth=kind.types[truth],
                        lie=kind.types[lie],
                        others=others,
                        lying=table[*profile[:player], lie, *profile[player + 1 :]][player][truth],
                        honest=honest[player][truth],
                    )


def largest_gain(rule: Rule) -> Gain | None:
    """Return the lie that gains most, up to 2^-170, or None if nobody can lie."""
    return max(gains(rule), key=lambda gain: gain.upper, default=None)
