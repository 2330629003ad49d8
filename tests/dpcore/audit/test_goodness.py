"""The chi-square test is that of the textbooks, with rare outcomes pooled."""

import numpy as np
import pytest
from scipy import stats

from dpcore.audit import chi_square_p
from dpcore.errors import UsageError


def test_it_agrees_with_scipy_where_nothing_is_rare():
    rng = np.random.default_rng(1)
    expected = np.array([300.0, 500.0, 100.0, 100.0])
    for _ in range(20):
        observed = rng.multinomial(1000, expected / 1000)
        assert chi_square_p(observed, expected) == pytest.approx(stats.chisquare(observed, expected).pvalue, rel=1e-9)


def test_rare_outcomes_count_together():
    expected = np.array([1.0, 400.0, 2.0, 500.0, 30.0, 67.0])
    observed = np.array([0, 410, 1, 495, 28, 66])
    pooled = np.array([29, 410, 495, 66]), np.array([33.0, 400.0, 500.0, 67.0])
    assert chi_square_p(observed, expected) == pytest.approx(stats.chisquare(*pooled).pvalue, rel=1e-9)


def test_sound_draws_pass_and_others_do_not():
    rng = np.random.default_rng(2)
    weights = np.exp(-np.arange(200) / 30)
    probabilities = weights / weights.sum()
    values = [chi_square_p(rng.multinomial(100_000, probabilities), probabilities * 100_000) for _ in range(100)]
    assert stats.kstest(values, "uniform").pvalue > 1e-6
    assert (
        chi_square_p(rng.multinomial(100_000, probabilities**0.9 / (probabilities**0.9).sum()), probabilities * 100_000)
        < 1e-30
    )


@pytest.mark.parametrize("observed", [np.array([5]), np.array([[5, 6]]), np.array([1, 2, 3])])
def test_what_cannot_be_compared_is_refused(observed):
    with pytest.raises(UsageError, match="at least two"):
        chi_square_p(observed, np.array([100.0, 100.0]))


def test_too_few_draws_are_refused():
    with pytest.raises(UsageError, match="draw more"):
        chi_square_p(np.array([1, 2]), np.array([1.5, 1.5]))
