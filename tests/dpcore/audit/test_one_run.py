"""What right guesses say about epsilon: never more than is true, and not much less."""

import numpy as np
import pytest
from scipy import stats

from dpcore.audit import least_epsilon
from dpcore.errors import UsageError

CANARIES = 10_000


def reference(m: int, r: int, v: int, eps: float, delta: float) -> float:
    """The p-value as the paper's appendix computes it."""
    q = 1 / (1 + np.exp(-eps))
    beta = stats.binom.sf(v - 1, r, q)
    alpha = total = 0.0
    for i in range(1, v + 1):
        total += stats.binom.pmf(v - i, r, q)
        alpha = max(alpha, total / i)
    return min(1.0, beta + alpha * delta * 2 * m)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize(("guesses", "correct"), [(1000, 731), (300, 300), (50, 40), (1000, 560)])
def test_at_the_bound_so_many_right_guesses_are_as_likely_as_the_confidence_says(
    delta: float, guesses: int, correct: int
) -> None:
    bound = least_epsilon(canaries=1000, guesses=guesses, correct=correct, delta=delta, confidence=0.95)
    assert bound > 0
    assert reference(1000, guesses, correct, bound, delta) == pytest.approx(0.05, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_randomised_response_is_found_out_up_to_a_little_and_rarely_more(epsilon: float) -> None:
    rng = np.random.default_rng(6)
    right = rng.binomial(CANARIES, 1 / (1 + np.exp(-epsilon)), size=30)
    bounds = [
        least_epsilon(canaries=CANARIES, guesses=CANARIES, correct=int(hits), delta=0.0, confidence=0.95)
        for hits in right
    ]
    assert sum(bound > epsilon for bound in bounds) < 8
    assert np.mean(bounds) > epsilon - 0.1


def test_guessing_blindly_shows_nothing_and_delta_makes_every_claim_weaker() -> None:
    assert least_epsilon(canaries=100, guesses=100, correct=50, delta=0.0, confidence=0.95) == 0
    assert least_epsilon(canaries=100, guesses=0, correct=0, delta=0.0, confidence=0.95) == 0
    bounds = [
        least_epsilon(canaries=1000, guesses=1000, correct=800, delta=delta, confidence=0.95)
        for delta in (0, 1e-5, 1e-3)
    ]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[-1]


@pytest.mark.parametrize(
    "wrong", [{"correct": 11}, {"guesses": 101}, {"correct": -1}, {"delta": 1.0}, {"confidence": 1.0}]
)
def test_figures_that_no_audit_has_are_refused(wrong: dict[str, float]) -> None:
    figures = {"canaries": 100, "guesses": 10, "correct": 5, "delta": 0.0, "confidence": 0.95}
    with pytest.raises(UsageError, match="an audit"):
        least_epsilon(**(figures | wrong))  # type: ignore[arg-type]
