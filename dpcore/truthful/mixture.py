"""The mixture that is exactly truthful: mostly the private selection, at times the commitment that punishes lies."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from dpcore.errors import UsageError
from dpcore.mechanisms import ExponentialMechanism
from dpcore.mechanisms.sampling import coins
from dpcore.truthful.bounds import Bound
from dpcore.truthful.commitment import Commitment
from dpcore.truthful.decision import Decision
from dpcore.truthful.exact import Exact
from dpcore.truthful.gains import Utilities
from dpcore.truthful.game import Game, Profile
from dpcore.truthful.gap import Gap, gap
from dpcore.truthful.selection import PrivateSelection

_WEIGHT_BITS = 64
"""The weight is a multiple of 2^-64, and one step or more above what is needed. A step of it costs every lie 2^-64 gamma /
outcomes. The probabilities of real draws may be off by 2^-128 for each outcome, which could be worth outcomes 2^-127 to a liar."""

_LEAST_GAP = Fraction(1, 2**60)
"""The least gamma / outcomes for each outcome: from it on a step of the weight outweighs eight times what draws may be off by."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TruthfulMixture:
    """With probability `weight` commit everybody to a random outcome, and otherwise select privately.

    Guarantee:
        Telling the truth is a dominant strategy, exactly: whatever the others report, no lie of one player raises its expected
        utility. For a lie gains at most `bound` in the selection and costs at least gamma / outcomes in the commitment, and
        weight * gamma / outcomes > (1 - weight) * bound. A member of a coalition of k can gain at most (1 - weight) times the
        selection's bound for k.

        The outcome, together with which of the two parts chose it, is epsilon-differentially private in each report, and so is
        everything that the others see, their own imposed reactions included (joint differential privacy). What is not private
        is a player's own imposed reaction, which follows from its report: it is for that player and whoever enforces it. In a
        ledger it costs what `mechanism` costs.

    Sensitivity:
        That of the selection. The weight depends on the game and epsilon, never on reports.

    Randomness:
        One exact coin, then the draw of the part that it names.

    Reference:
        Nissim, Smorodinsky and Tennenholtz 2012; Dwork and Roth 2014, section 10.3.

    Attributes:
        bound: Which bound on the gains of lies the weight is derived from. All are safe; a smaller one needs less weight.
    """

    selection: PrivateSelection
    bound: Bound
    weight: Fraction = field(init=False)
    gap: Gap = field(init=False)
    commitment: Commitment = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Derive the weight, or refuse a game whose lies cannot be punished."""
        found = gap(self.selection.game)
        if found.gamma == 0:
            raise UsageError(
                "the gap of this game is 0: some player can lie about some type and lose nothing by it, whatever outcome is "
                "imposed, because its best reactions stay the same; give the players reactions that depend on their types, "
                "merge types that behave alike, or use the private selection alone, which is approximately truthful"
            )
        weight = weight_for(self.selection.gain_bound(bound=self.bound, coalition=1), gap=found)
        object.__setattr__(self, "bound", Bound(self.bound))
        object.__setattr__(self, "weight", weight)
        object.__setattr__(self, "gap", found)
        object.__setattr__(self, "commitment", Commitment(game=self.selection.game))

    @property
    def game(self) -> Game:
        """The game that it is for."""
        return self.selection.game

    @property
    def mechanism(self) -> ExponentialMechanism:
        """What a ledger is to charge for a draw, whichever part it comes from."""
        return self.selection.mechanism

    def draw(self, reports: Sequence[Hashable]) -> Decision:
        """Return an outcome for what was reported and, if the coin says so, what each player must do."""
        self.game.profile(reports)  # a wrong report is refused before any coin is thrown
        commit = bool(coins.biased(coins.threshold(self.weight), 1)[0])
        return (self.commitment if commit else self.selection).draw(reports)

    def utilities(self, profile: Profile) -> Utilities:
        """Return what each player can expect of these reports, for everything that it may truly be."""
        return mixed(self.commitment.utilities(profile), self.selection.utilities(profile), weight=self.weight)


def weight_for(bound: Exact, *, gap: Gap) -> Fraction:
    """Return a weight q with q gamma / outcomes > (1 - q) bound, one to two steps of 2^-64 above the least one."""
    if gap.expected < gap.outcomes * _LEAST_GAP:
        raise UsageError(
            "the gap of this game is too small to be weighed with 128 random bits; declare types that differ more, or "
            "fewer outcomes, or use the private selection alone"
        )
    least = bound.upper / (bound.upper + gap.expected)
    return Fraction(math.floor(least * 2**_WEIGHT_BITS) + 2, 2**_WEIGHT_BITS)


def mixed(committed: Utilities, selected: Utilities, *, weight: Fraction) -> Utilities:
    """Return the expectations when the first applies with probability `weight`, and else the second."""
    return tuple(
        tuple(left.times(weight) + right.times(1 - weight) for left, right in zip(*pair, strict=True))
        for pair in zip(committed, selected, strict=True)
    )
