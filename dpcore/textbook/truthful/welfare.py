"""The social welfare of truthful players under a mechanism: its exact expectation for given types, and a guaranteed lower bound."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpcore.errors import UsageError
from dpcore.textbook.truthful.exact import Exact
from dpcore.textbook.truthful.game import Game, Profile
from dpcore.textbook.truthful.mixture import TruthfulMixture
from dpcore.textbook.truthful.selection import PrivateSelection


@dataclass(frozen=True, kw_only=True)
class Welfare:
    """The social welfare, the sum of all utilities, when everybody tells the truth.

    Steward only: all four depend on the players' true types. For planning, compute them for made-up types.

    Attributes:
        best: The welfare of the best outcome.
        random: The mean over all outcomes. The commitment has this expectation, since it commits honest players to their own best
            reactions.
        expected: The exact expectation under the mechanism.
        guaranteed: The theorem's lower bound of the expectation: (1 - weight) (best - loss) + weight random, rounded down.
    """

    best: Fraction
    random: Fraction
    expected: Exact
    guaranteed: Fraction


def welfare(rule: PrivateSelection | TruthfulMixture, types: Sequence[Hashable]) -> Welfare:
    """Return the welfare of a mechanism for players of these types."""
    selection, weight = (rule.selection, rule.weight) if isinstance(rule, TruthfulMixture) else (rule, Fraction(0))
    if selection.quality is not None:
        raise UsageError("this selection uses a custom quality, so it guarantees no welfare; omit the quality")
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
    """Return the sum of the utilities at each outcome, when every player reacts optimally."""
    totals = [Fraction(0)] * len(game.outcomes)
    for payoffs, place, count in game.tally(profile):
        totals = [total + count * value for total, value in zip(totals, payoffs.values[place], strict=True)]
    return totals
