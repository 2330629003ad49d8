"""Theorems that bound the gain of a lie under a private mechanism."""

from enum import StrEnum
from fractions import Fraction
from typing import NoReturn

from dpcore.errors import UsageError
from dpcore.privacy.accounting.rounding import positive
from dpcore.scalars import is_whole
from dpcore.textbook.truthful.exact import Exact


class Bound(StrEnum):
    """The source of the bound on a liar's gain. All of them hold, and each is at most the one before.

    Let P and Q be the distributions of the outcome with and without the lie. A utility from 0 to 1 gains at most their
    total variation distance a - b, where a = P(A), b = Q(A) and A is the set of outcomes that are likelier under P.
    """

    SEED = "two-epsilon"
    """2 epsilon: e^epsilon - 1 <= 2 epsilon for epsilon up to 1, and no utility from 0 to 1 gains more than 1."""
    RATIO = "ratio"
    """e^epsilon - 1: the expectation is at most 1, and grows by a factor of at most e^epsilon."""
    PURE = "total-variation"
    """tanh(epsilon / 2), for every epsilon-private mechanism. From a <= e^epsilon b follows a - b <= (e^epsilon - 1) b, and
    from 1 - b <= e^epsilon (1 - a) follows a - b <= (e^epsilon - 1) (1 - a). The sum of both is 2 (a - b) <= (e^epsilon -
    1) (1 - (a - b)), so that a - b <= (e^epsilon - 1) / (e^epsilon + 1). Randomised response reaches it."""
    RANGE = "bounded-range"
    """tanh(epsilon / 4), for the exponential mechanism. All its scores change by at most the sensitivity, so ln(P / Q)
    differs by at most epsilon between any two outcomes, and the odds of A by a factor of at most e^epsilon. With logit a =
    x + h, logit b = x - h and h <= epsilon / 2, a - b = sinh(h) / (cosh(x) + cosh(h)), which is largest at
    x = 0: tanh(h / 2)."""
    ENUMERATED = "enumerated"
    """The largest gain in this game, found by trying every lie against all reports of the others. Small games only."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:  # noqa: ARG003  Enum's own signature
        raise UsageError(f"a bound on the gain of lies must be one of: {', '.join(cls)}")


def gain_bound(epsilon: Fraction | float, *, bound: Bound, coalition: int) -> Exact:
    """Return the largest possible gain of one lie under the exponential mechanism, for utilities from 0 to 1.

    For a coalition of k players who coordinate their reports, it bounds the gain of each member: by group privacy the
    mechanism is k epsilon-private for them together.

    >>> for bound in (Bound.SEED, Bound.RATIO, Bound.PURE, Bound.RANGE):
    ...     print(bound, float(gain_bound(0.5, bound=bound, coalition=1)))
    two-epsilon 1.0
    ratio 0.6487212707001282
    total-variation 0.24491866240370913
    bounded-range 0.12435300177159621
    """
    if not is_whole(coalition) or coalition < 1:
        raise UsageError(
            "a coalition must have a whole number of members, at least 1; a single player is a coalition of 1"
        )
    exact = positive(epsilon, what="epsilon") * coalition
    unit, zero = Fraction(1), Fraction(0)
    match Bound(bound):
        case Bound.SEED:
            return Exact.of(min(2 * exact, unit))
        case Bound.RATIO:
            return min(Exact.ratio({zero: unit, exact: -unit}, {exact: unit}), Exact.of(1))
        case Bound.PURE:
            return Exact.ratio({zero: unit, exact: -unit}, {zero: unit, exact: unit})
        case Bound.RANGE:
            return Exact.ratio({zero: unit, exact / 2: -unit}, {zero: unit, exact / 2: unit})
        case Bound.ENUMERATED:
            raise UsageError("an enumerated bound belongs to unit game; call gain_bound on the game's PrivateSelection")
