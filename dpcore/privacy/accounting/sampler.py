"""What the samplers add to delta: each draw is within a proved distance of its ideal distribution, and this distance has a cost.

A mechanism is priced for ideal noise. The noise that is drawn differs from it by at most d = 2^-`DRAW_DISTANCE_BITS` per draw in total
variation, whatever the earlier answers and the counts are:

- Noise from a table of n outcomes (`sampling.inversion`): each of the n probabilities is off by less than 2^-128, the difference of two
  roundings of a threshold, and less than 2^-140 lies beyond the table. Half the sum of both is below n 2^-129 + 2^-140, and no table has
  more than 560,001 outcomes: 2^-109.9.
- Wider noise (`sampling.wide`): up to three digits from tables of 4,096 outcomes, and one from a table of at most 25,090, are together off
  by less than 2^-113.7, and the accepting coin by 2^-128. A draw is accepted with a probability of at least 3/4, and conditioning on
  acceptance divides the distance by that probability: 2^-113.3.
- A selection (`sampling.selection`): 2^-128 for each candidate, and each candidate counts as a draw.

Let P and Q be the distributions of a whole run on two neighbouring tables with ideal noise, P' and Q' with the actual noise. After at
most n draws P' and Q' are within n d of P and Q, by induction over the draws. So for every set E of outcomes with at most n draws

    P'(E) <= P(E) + n d <= e^epsilon Q(E) + delta + n d <= e^epsilon Q'(E) + delta + (1 + e^epsilon) n d.

`sampler_delta` returns the last term. It also applies to pure epsilon, which strictly is (epsilon, sampler_delta).
`tests/dpcore/privacy/accounting/test_sampler.py` sums the distances exactly.
"""

from dpcore.errors import UsageError
from dpcore.privacy.accounting.rounding import as_real, positive, real, rounded_up
from dpcore.scalars import is_whole

DRAW_DISTANCE_BITS = 109
"""The total variation distance of one draw from its ideal distribution is below 2^-109."""


def sampler_delta(draws: int, *, epsilon: float) -> float:
    """Return what a number of draws adds to the delta of an epsilon, rounded up; at most 1.

    >>> sampler_delta(1_000_000, epsilon=1.0) < 6e-27
    True
    """
    if not is_whole(draws) or draws < 0:
        raise UsageError("the number of draws must be a whole number of at least 0")
    if not draws:
        return 0.0
    promised = as_real(epsilon if epsilon == 0 else positive(epsilon, what="epsilon"))
    return min(rounded_up(real.ldexp(draws * (1 + real.exp(promised)), -DRAW_DISTANCE_BITS)), 1.0)
