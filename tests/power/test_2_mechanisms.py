"""Every mechanism, on worst-case neighbours: no event shows more than was charged, and planted bugs are caught.

These are the cases that `dpflow audit` runs. A sound mechanism fails one of its checks with a probability of at most 1e-8.
"""

import numpy as np
import pytest

from dpcore.audit.cases import CASES
from dpcore.audit.cases.noise import GAUSSIAN, LAPLACE, ROUNDED, Family
from dpcore.audit.cases.selections import permute_and_flip_probabilities, softmax_probabilities
from dpcore.audit.checks import CANARIES, MISS, OneRunCheck
from dpcore.audit.events import most_telling
from dpcore.audit.run import audit_case
from dpcore.mechanisms import DiscreteLaplace
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Sensitivity
from tests.campaign import CAMPAIGN

EFFORT = {
    **dict.fromkeys(
        ("noisy-choice", "counts-above", "above-threshold", "sparse-vector", "gate-step", "exponential"), 0.5
    ),
    **dict.fromkeys(("asking-step", "person-rows", "bought-sums"), 1.0),
}
"""How much of an audit's draws `make test` makes: a quarter if nothing else is said."""

SUBTLE = {"gumbel scale x1.03", "permute-and-flip scale x1.03"}
"""Planted bugs that take all draws, of a selection at a time: only the campaign makes them."""

LEAST = {
    ("rounded-gaussian", Currency.ZCDP): 0.3,
    ("discrete-gaussian", Currency.ZCDP): 0.3,
    ("calibrated-gaussian", Currency.PURE): 0.3,
    ("noisy-histogram", Currency.ZCDP): 0.25,
    ("noisy-quantiles", Currency.PURE): 0.25,
    ("exponential", Currency.ZCDP): 0.2,
}
"""What a lower bound must show of a charge at least, so that it says something, where one event can't show two fifths of it, or the bound is
not tight: the scores of two quantiles move apart by half of it at most."""


@pytest.mark.campaign
@pytest.mark.parametrize("name", CASES)
def test_no_check_finds_more_than_was_charged_and_every_planted_bug_is_caught(name: str) -> None:
    audited = audit_case(name, 1.0 if CAMPAIGN else EFFORT.get(name, 0.25))
    assert [finding for finding in audited.findings if not finding.sound] == []
    unnoticed = {verdict.bug for verdict in audited.verdicts if not verdict.caught}
    assert unnoticed <= (set() if CAMPAIGN else SUBTLE)
    for finding in audited.findings:
        if finding.charged is not None:
            assert finding.measured > LEAST.get((name, finding.currency), 0.4) * finding.charged


@pytest.mark.parametrize("family", [LAPLACE, GAUSSIAN, ROUNDED], ids=lambda family: family.kind.name)
@pytest.mark.parametrize("moved", [1, 2])
def test_a_bought_amount_of_noise_shows_no_more_than_was_paid_unless_counts_move_twice_as_far(
    family: Family, moved: int
) -> None:
    for currency in family.currencies:
        mechanism = family.kind.for_amount(AMOUNT_OF_ONE // 2, currency=currency, sensitivity=Sensitivity(1, 1, 1))
        here, there = (mechanism.draw(np.full(300_000, count, dtype=np.int64)) for count in (0, moved))
        charged = mechanism.price(currency) / AMOUNT_OF_ONE
        shown = most_telling(here, there, currency=currency, miss=MISS).amount
        assert charged * 0.5 < shown
        assert (shown <= charged) is (moved == 1)


def test_the_probabilities_that_a_distance_is_selected_with_are_exact() -> None:
    assert softmax_probabilities(0.5).sum() == pytest.approx(1.0, abs=1e-12)
    assert permute_and_flip_probabilities(0.5).sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("evidence", "sound", "least"),
    [
        (lambda counts: 2 * DiscreteLaplace(scale=1.0, sensitivity=Sensitivity(1, 1, 1)).draw(counts) - 1, True, 0.7),
        (lambda counts: 2 * DiscreteLaplace(scale=0.5, sensitivity=Sensitivity(1, 1, 1)).draw(counts) - 1, False, 1.0),
        (lambda counts: 2 * counts - 1, False, 6.0),
        (lambda counts: np.zeros(CANARIES, dtype=np.int64), True, -1.0),
    ],
    ids=["the noise of epsilon 1", "half of it", "no noise", "no guess"],
)
def test_guesses_about_canaries_show_what_a_measurement_loses(evidence, sound: bool, least: float) -> None:
    finding = OneRunCheck(setting="", measure=lambda counts: (evidence(counts), AMOUNT_OF_ONE)).run(effort=1.0)
    assert finding.sound is sound
    assert finding.measured > least
