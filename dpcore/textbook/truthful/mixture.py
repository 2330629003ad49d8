"""An exactly truthful mixture: usually the private selection, sometimes the commitment that punishes lies."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from dpcore.errors import UsageError
from dpcore.mechanisms import ExponentialMechanism
from dpcore.mechanisms.sampling import coins
from dpcore.textbook.truthful.bounds import Bound
from dpcore.textbook.truthful.commitment import Commitment, Gap, gap
from dpcore.textbook.truthful.exact import Exact
from dpcore.textbook.truthful.gains import Utilities
from dpcore.textbook.truthful.game import Decision, Game, Profile
from dpcore.textbook.truthful.selection import PrivateSelection

_WEIGHT_BITS = 64
"""The weight is a multiple of 2^-64, at least one step above the required one. Each step costs every lie 2^-64 gamma / outcomes. The
probabilities of real draws may be off by 2^-128 for each outcome, which could be worth outcomes 2^-127 to a liar."""

_LEAST_GAP = Fraction(1, 2**60)
"""The least gamma / outcomes, per outcome. At or above it, one step of the weight outweighs eight times the error of the draws."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TruthfulMixture:
    """With probability `weight` commit everybody to a random outcome, and otherwise select privately.

    Guarantee:
        Telling the truth is a dominant strategy, exactly: whatever the others report, no lie of one player raises its expected
        utility. A lie gains at most `bound` in the selection and costs at least gamma / outcomes in the commitment, and
        weight * gamma / outcomes > (1 - weight) * bound. A member of a coalition of k can gain at most (1 - weight) times the
        selection's bound for k.

        The outcome, together with which of the two parts chose it, is epsilon-differentially private in each report, and so is
        everything that the others see, their own imposed reactions included (joint differential privacy). A player's own
        imposed reaction is not private, since it follows from the player's report: only that player and whoever enforces it
        may see it. The price in a ledger is that of `mechanism`.

    Sensitivity:
        That of the selection. The weight depends on the game and epsilon, never on reports.

    Randomness:
        One exact coin, then the draw of the part that it selects.

    Reference:
        Nissim, Smorodinsky and Tennenholtz 2012; Dwork and Roth 2014, section 10.3.

    Attributes:
        bound: The bound on the gains of lies from which the weight is derived. All are safe; a smaller one needs less weight.
    """

    selection: PrivateSelection
    bound: Bound
    weight: Fraction = field(init=False)
    gap: Gap = field(init=False)
    commitment: Commitment = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Derive the weight. Raise if some lie in the game cannot be punished."""
        smallest = gap(self.selection.game)
        if smallest.gamma == 0:
            raise UsageError(
                "the gap of this game is 0: some lie costs its player nothing at any outcome, because it leaves the best "
                "reactions equally good; give the players reactions that depend on their types, "
                "merge types that behave alike, or use the private selection alone, which is approximately truthful"
            )
        weight = weight_for(self.selection.gain_bound(bound=self.bound, coalition=1), gap=smallest)
        object.__setattr__(self, "bound", Bound(self.bound))
        object.__setattr__(self, "weight", weight)
        object.__setattr__(self, "gap", smallest)
        object.__setattr__(self, "commitment", Commitment(game=self.selection.game))

    @property
    def game(self) -> Game:
        """The game that the mixture is for."""
        return self.selection.game

    @property
    def mechanism(self) -> ExponentialMechanism:
        """The mechanism whose price a ledger charges for a draw, whichever part makes it."""
        return self.selection.mechanism

    def draw(self, reports: Sequence[Hashable]) -> Decision:
        """Return an outcome for the reports and, if the coin chooses the commitment, a reaction for each player."""
        self.game.profile(reports)  # reject an invalid report before the coin is tossed
        commit = bool(coins.biased(coins.threshold(self.weight), 1)[0])
        return (self.commitment if commit else self.selection).draw(reports)

    def utilities(self, profile: Profile) -> Utilities:
        """Return each player's expected utility under these reports, for each type that may be its true one."""
        return mixed(self.commitment.utilities(profile), self.selection.utilities(profile), weight=self.weight)


def weight_for(bound: Exact, *, gap: Gap) -> Fraction:
    """Return a weight q with q gamma / outcomes > (1 - q) bound, one to two steps of 2^-64 above the smallest one."""
    if gap.expected < gap.outcomes * _LEAST_GAP:
        raise UsageError(
            "the gap of this game is too small for the precision of 128 random bits; declare types that differ more, or "
            "fewer outcomes, or use the private selection alone"
        )
    least = bound.upper / (bound.upper + gap.expected)
    return Fraction(math.floor(least * 2**_WEIGHT_BITS) + 2, 2**_WEIGHT_BITS)


def mixed(committed: Utilities, selected: Utilities, *, weight: Fraction) -> Utilities:
    """Return the expected utilities when the first applies with probability `weight`, and otherwise the second."""
    return tuple(
        tuple(left.times(weight) + right.times(1 - weight) for left, right in zip(*pair, strict=True))
        for pair in zip(committed, selected, strict=True)
    )
