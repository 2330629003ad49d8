"""Every mechanism, on worst-case neighbours: no event shows more than was charged, and planted bugs are caught.

These are the cases that `dpflow audit` runs. A sound mechanism fails one of its checks with a probability of at most 1e-8.
"""

import numpy as np
import pytest

from dpcore.audit.cases import CASES
from dpcore.audit.cases.noise import GAUSSIAN, LAPLACE, ROUNDED, Family
from dpcore.audit.checks import MISS
from dpcore.audit.events import most_telling
from dpcore.audit.run import audit_case
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Sensitivity

ELSEWHERE = {"exponential", "report-noisy-max", "measuring-step"}  # tests 3 and 4
ENOUGH = 0.5
"""Of a charge, what a lower bound must show at least, so that it says something."""

LESS = {
    ("rounded-gaussian", Currency.ZCDP),
    ("discrete-gaussian", Currency.ZCDP),
    ("calibrated-gaussian", Currency.PURE),
    ("noisy-histogram", Currency.ZCDP),
    ("noisy-quantiles", Currency.PURE),
}
"""Where one event can't show half of the charge, or the bound is not tight: the scores of two quantiles move apart by half of it at most."""


@pytest.mark.parametrize("name", [name for name in CASES if name not in ELSEWHERE])
def test_no_check_finds_more_than_was_charged_and_every_planted_bug_is_caught(name: str) -> None:
    audited = audit_case(name, 1.0)
    assert [finding for finding in audited.findings if not finding.sound] == []
    assert [verdict for verdict in audited.verdicts if not verdict.caught] == []
    for finding in audited.findings:
        if finding.charged is not None:
            enough = 0.3 if (name, finding.currency) in LESS else ENOUGH
            assert finding.measured > enough * finding.charged


@pytest.mark.parametrize("family", [LAPLACE, GAUSSIAN, ROUNDED], ids=lambda family: family.kind.name)
@pytest.mark.parametrize("moved", [1, 2])
def test_a_bought_amount_of_noise_shows_no_more_than_was_paid_unless_counts_move_twice_as_far(
    family: Family, moved: int
) -> None:
    draws = 500_000
    for currency in family.currencies:
        mechanism = family.kind.for_amount(AMOUNT_OF_ONE // 2, currency=currency, sensitivity=Sensitivity(1, 1, 1))
        here, there = (mechanism.draw(np.full(draws, count, dtype=np.int64)) for count in (0, moved))
        shown, charged = (
            most_telling(here, there, currency=currency, miss=MISS).amount,
            mechanism.price(currency) / AMOUNT_OF_ONE,
        )
        assert charged * 0.5 < shown
        assert (shown <= charged) is (moved == 1)
