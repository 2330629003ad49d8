"""What lying gains, by exact enumeration: every player, every true type, every lie, all reports of the others."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from dpcore.truthful.exact import Exact
from dpcore.truthful.game import Game, Profile

Utilities = tuple[tuple[Exact, ...], ...]
"""For each player, and each type that it may truly be, the expected utility."""


class Rule(Protocol):
    """A way to choose an outcome from reports, whose expectations are known exactly."""

    @property
    def game(self) -> Game:
        """The game that it is for."""

    def utilities(self, profile: Profile) -> Utilities:
        """Return what each player can expect of these reports, for everything that it may truly be."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What one lie gains in expectation, the reports of the others being what they are.

    Attributes:
        player: Who lies, counted from 0.
        truth: What it is.
        lie: What it reports instead.
        others: What the others report, in their order.
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
        """A rational number that the gain certainly does not exceed, and that is within 2^-170 of it."""
        return self.lying.upper - self.honest.lower

    def at_most(self, bound: Exact) -> bool:
        """Tell exactly whether the gain is within a bound."""
        if self.upper <= bound.lower:
            return True
        return self.lying <= self.honest + bound


def gains(rule: Rule) -> Iterator[Gain]:
    """Go through all lies. Lies are told by one player at a time; a coalition has its own bound.

    >>> from dpcore.truthful import PrivateSelection, facility_game
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
    """Return the lie that gains most, or one that is within 2^-170 of it; None if nobody can lie."""
    return max(gains(rule), key=lambda gain: gain.upper, default=None)
