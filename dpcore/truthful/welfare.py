"""What truthful players have of a mechanism together: exactly for given types, and at least."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpcore.errors import UsageError
from dpcore.truthful.exact import Exact
from dpcore.truthful.game import Game, Profile
from dpcore.truthful.mixture import TruthfulMixture
from dpcore.truthful.selection import PrivateSelection


@dataclass(frozen=True, kw_only=True)
class Welfare:
    """The social welfare, the sum of all utilities, when everybody tells the truth.

    Steward only: all four follow from the types. For planning, work them out for types that are made up.

    Attributes:
        best: That of the best outcome.
        random: The mean over all outcomes, which is what the commitment gives: whoever was honest is held to what it likes.
        expected: What the mechanism gives in expectation, exactly.
        guaranteed: What the theorem promises for it: (1 - weight) (best - loss) + weight random, rounded down.
    """

    best: Fraction
    random: Fraction
    expected: Exact
    guaranteed: Fraction


def welfare(rule: PrivateSelection | TruthfulMixture, types: Sequence[Hashable]) -> Welfare:
    """Return the welfare of a mechanism for players of these types."""
    selection, weight = (rule.selection, rule.weight) if isinstance(rule, TruthfulMixture) else (rule, Fraction(0))
    if selection.quality is not None:
        raise UsageError(
            "this selection goes by a quality of its own, so it promises no welfare; leave the quality out"
        )
    by_outcome = welfare_by_outcome(selection.game, selection.game.profile(types))
    best, random = max(by_outcome), sum(by_outcome, Fraction(0)) / len(by_outcome)
    selected = Exact.of(0)
    for chance, total in zip(selection.probabilities(types), by_outcome, strict=True):
        selected += chance.times(total)
    return Welfare(
        best=best,
        random=random,
        expected=selected.times(1 - weight) + Exact.of(weight * random),
        guaranteed=(1 - weight) * (best - selection.loss) + weight * random,
    )


def welfare_by_outcome(game: Game, profile: Profile) -> list[Fraction]:
    """Return the sum of the utilities at each outcome, every player reacting as is best for it."""
    totals = [Fraction(0)] * len(game.outcomes)
    for payoffs, place, count in game.tally(profile):
        totals = [total + count * value for total, value in zip(totals, payoffs.values[place], strict=True)]
    return totals
