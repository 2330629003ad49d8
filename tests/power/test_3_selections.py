"""Selections have their exact probabilities, show no more than was charged, and planted bugs are caught."""

import itertools
import math

import numpy as np
import pytest

from dpcore.audit.case import Audited
from dpcore.audit.cases.selections import permute_and_flip_probabilities, softmax_probabilities
from dpcore.audit.goodness import chi_square_p
from dpcore.audit.run import audit_case
from dpcore.mechanisms import ExponentialMechanism, Flavour, MaxNoise, ReportNoisyMax
from dpcore.privacy.accounting import Currency

SCORES = np.array([10, 3, 12, -4, 9], dtype=np.int64)
EPSILON, SENSITIVITY = 1.5, 3
DRAWS = 20_000


@pytest.mark.parametrize("name", ["exponential", "report-noisy-max"])
def test_no_check_finds_more_than_was_charged_and_every_planted_bug_is_caught(name: str) -> None:
    audited: Audited = audit_case(name, 1.0)
    assert [finding for finding in audited.findings if not finding.sound] == []
    assert [verdict for verdict in audited.verdicts if not verdict.caught] == []
    for finding in audited.findings:
        if finding.charged is not None and finding.currency is Currency.PURE:
            assert finding.measured > 0.65 * finding.charged


def softmax(epsilon: float) -> np.ndarray:
    weights = np.exp(epsilon * SCORES / (2 * SENSITIVITY))
    return weights / weights.sum()


def flipped(epsilon: float) -> np.ndarray:
    """In a random order, take the first candidate whose coin, of probability e^(epsilon (score - best) / 2), says yes."""
    yes = np.exp(epsilon * (SCORES - SCORES.max()) / (2 * SENSITIVITY))
    probabilities = np.zeros(len(SCORES))
    for order in itertools.permutations(range(len(SCORES))):
        reached = 1.0
        for candidate in order:
            probabilities[candidate] += reached * yes[candidate]
            reached *= 1 - yes[candidate]
    return probabilities / math.factorial(len(SCORES))


def noisiest(epsilon: float) -> np.ndarray:
    """The largest of scores with discrete Laplace noise, the first of equal ones."""
    scale = 2 * SENSITIVITY / epsilon
    totals = np.arange(-400, 401)
    weights = np.exp(-np.abs(totals - SCORES[:, None]) / scale)
    masses = weights / weights.sum(axis=1, keepdims=True)
    reached = np.cumsum(masses, axis=1)
    below = reached - masses
    return np.array(
        [(masses[i] * np.prod(below[:i], axis=0) * np.prod(reached[i + 1 :], axis=0)).sum() for i in range(len(SCORES))]
    )


@pytest.mark.parametrize(
    ("mechanism", "probabilities", "other"),
    [
        (ExponentialMechanism(epsilon=EPSILON, sensitivity=SENSITIVITY, flavour=Flavour.GUMBEL), softmax, flipped),
        (
            ExponentialMechanism(epsilon=EPSILON, sensitivity=SENSITIVITY, flavour=Flavour.PERMUTE_AND_FLIP),
            flipped,
            softmax,
        ),
        (
            ReportNoisyMax(epsilon=EPSILON, sensitivity=SENSITIVITY, noise=MaxNoise.GUMBEL, monotone=False),
            softmax,
            noisiest,
        ),
        (
            ReportNoisyMax(epsilon=EPSILON, sensitivity=SENSITIVITY, noise=MaxNoise.EXPONENTIAL, monotone=False),
            flipped,
            noisiest,
        ),
        (
            ReportNoisyMax(epsilon=EPSILON, sensitivity=SENSITIVITY, noise=MaxNoise.LAPLACE, monotone=False),
            noisiest,
            flipped,
        ),
    ],
    ids=["exponential", "permute-and-flip", "max of gumbel", "max of exponential", "max of laplace"],
)
def test_selections_have_their_exact_probabilities_and_not_those_of_another_epsilon_or_noise(
    mechanism, probabilities, other
) -> None:
    observed = np.bincount([mechanism.draw(SCORES) for _ in range(DRAWS)], minlength=len(SCORES))
    assert chi_square_p(observed, probabilities(EPSILON) * DRAWS) > 1e-9
    assert chi_square_p(observed, probabilities(EPSILON * 1.3) * DRAWS) < 1e-9
    assert chi_square_p(observed, other(EPSILON) * DRAWS) < 1e-9


def test_the_probabilities_that_a_distance_is_selected_with_are_exact() -> None:
    assert softmax_probabilities(0.5).sum() == pytest.approx(1.0, abs=1e-12)
    assert permute_and_flip_probabilities(0.5).sum() == pytest.approx(1.0, abs=1e-12)
