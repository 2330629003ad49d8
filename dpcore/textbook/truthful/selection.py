"""Select an outcome from reported types with the exponential mechanism: private, and therefore approximately truthful."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from dpcore.errors import UsageError
from dpcore.mechanisms import ExponentialMechanism, Flavour
from dpcore.privacy.accounting.rounding import positive, real, rounded_up
from dpcore.textbook.truthful.bounds import Bound, gain_bound
from dpcore.textbook.truthful.exact import Exact
from dpcore.textbook.truthful.gains import Utilities, largest_gain
from dpcore.textbook.truthful.game import Decision, Game, Profile
from dpcore.textbook.truthful.scoring import Quality, Scoring, quality_scoring, welfare_scoring


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivateSelection:
    """Choose an outcome with probability proportional to e^(epsilon score / (2 sensitivity)); everybody reacts freely.

    Guarantee:
        The outcome is epsilon-differentially private in each player's report (one report replaced by another; the list of
        players is public). So no lie gains more than 2 epsilon in expected utility, and no more than tanh(epsilon / 4),
        whatever the others report: see `Bound`, and `gain_bound` for coalitions. The price is that of `mechanism`.

    Sensitivity:
        Derived from the game: the largest change of any score over all misreports of one player, on an integer grid.

    Randomness:
        That of `ExponentialMechanism`. The probabilities here are its nominal ones.

    Reference:
        McSherry and Talwar 2007; Dwork and Roth 2014, chapter 10; Dong, Durfee and Rogers 2020 for the bounded range.

    Attributes:
        quality: The quality of each outcome for all reported types; None means the social welfare.
    """

    game: Game
    epsilon: float
    quality: Quality | None = None
    scoring: Scoring = field(init=False, repr=False)
    mechanism: ExponentialMechanism = field(init=False)

    def __post_init__(self) -> None:
        """Derive the scores' sensitivity from the game, and with it the mechanism."""
        positive(self.epsilon, what="the selection's epsilon")
        game, quality = self.game, self.quality
        scoring = welfare_scoring(game) if quality is None else quality_scoring(game, quality)
        mechanism = ExponentialMechanism(
            epsilon=float(self.epsilon), sensitivity=scoring.sensitivity, flavour=Flavour.GUMBEL
        )
        object.__setattr__(self, "scoring", scoring)
        object.__setattr__(self, "mechanism", mechanism)
        object.__setattr__(self, "epsilon", mechanism.epsilon)

    def draw(self, reports: Sequence[Hashable]) -> Decision:
        """Return an outcome for the reports, one type for each player."""
        place = self.mechanism.draw(self.scoring.scores(self.game.profile(reports)))
        return Decision(outcome=self.game.outcomes[place], imposed=None)

    def probabilities(self, reports: Sequence[Hashable]) -> tuple[Exact, ...]:
        """Return each outcome's exact probability. Steward only: unlike a draw, the probabilities reveal the reports."""
        weights, total = self._weights(self.game.profile(reports))
        return tuple(Exact.ratio({weight: Fraction(1)}, total) for weight in weights)

    def utilities(self, profile: Profile) -> Utilities:
        """Return each player's expected utility under these reports, for each type that may be its true one."""
        weights, total = self._weights(profile)
        rows = {
            id(payoffs): tuple(_expectation(row, weights, total) for row in payoffs.values)
            for payoffs in self.game.kinds
        }
        return tuple(rows[id(payoffs)] for payoffs in self.game.payoffs)

    def gain_bound(self, *, bound: Bound, coalition: int) -> Exact:
        """Return the largest gain of a lie, or of any member of a coalition of liars, by the named bound."""
        if Bound(bound) is not Bound.ENUMERATED:
            return gain_bound(self.epsilon, bound=bound, coalition=coalition)
        if coalition != 1:
            raise UsageError(
                "only the lies of single players are enumerated; use the bounded-range bound for a coalition"
            )
        largest = largest_gain(self)
        return Exact.of(max(Fraction(0), largest.upper) if largest else 0)

    @property
    def loss(self) -> Fraction:
        """An upper bound of the difference between the best quality and the expected one.

        With probabilities p ~ e^(c s), E[s] + H(p) / c = ln(sum of e^(c s)) / c >= max s, and the entropy H is at most ln of
        the number of outcomes. So max s - E[s] <= 2 sensitivity ln(outcomes) / epsilon.
        """
        entropy = Fraction(rounded_up(real.log(len(self.game.outcomes))))
        return entropy / (self._rate * self.scoring.grid) + 2 * self.scoring.rounding

    @property
    def _rate(self) -> Fraction:
        return Fraction(self.epsilon) / (2 * self.mechanism.sensitivity)

    def _weights(self, profile: Profile) -> tuple[list[Fraction], dict[Fraction, Fraction]]:
        """Return the exponent b of each outcome's weight e^-b, and the sum of all weights."""
        scores = [int(score) for score in self.scoring.scores(profile)]
        best, rate = max(scores), self._rate
        weights = [rate * (best - score) for score in scores]
        total: dict[Fraction, Fraction] = {}
        for weight in weights:
            total[weight] = total.get(weight, Fraction(0)) + 1
        return weights, total


def _expectation(values: Sequence[Fraction], weights: list[Fraction], total: dict[Fraction, Fraction]) -> Exact:
    above: dict[Fraction, Fraction] = {}
    for value, weight in zip(values, weights, strict=True):
        above[weight] = above.get(weight, Fraction(0)) + value
    return Exact.ratio(above, total)
