"""The one-run audit of the real measuring step: charged before it draws, and no more coins are guessed than was paid for."""

import numpy as np
import pytest

from dpcore.audit.cases.measuring import EPSILONS
from dpcore.audit.checks import CANARIES, OneRunCheck
from dpcore.audit.run import audit_case
from dpcore.mechanisms import DiscreteLaplace
from dpcore.privacy.accounting import AMOUNT_OF_ONE
from dpcore.privacy.protection import Sensitivity


def test_one_run_of_the_measuring_step_shows_no_more_than_was_charged_and_every_planted_bug_is_caught() -> None:
    audited = audit_case("measuring-step", 1.0)
    assert audited.holds
    assert [verdict for verdict in audited.verdicts if not verdict.caught] == []
    measured = [finding.measured for finding in audited.findings if finding.check == "one run"]
    assert all(shown > epsilon - 0.28 for shown, epsilon in zip(measured, EPSILONS, strict=True))
    assert {verdict.bug for verdict in audited.verdicts} >= {
        "missing charge",
        "charge after the draw",
        "half noise at epsilon 1",
    }


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("narrower", [1.0, 2.0])
def test_guesses_about_canaries_find_noise_of_half_the_scale_out(epsilon: float, narrower: float) -> None:
    drawn = DiscreteLaplace(scale=1 / (narrower * epsilon), sensitivity=Sensitivity(1, 1, 1))
    check = OneRunCheck(setting="", measure=lambda counts: (2 * drawn.draw(counts) - 1, round(epsilon * AMOUNT_OF_ONE)))
    finding = check.run(effort=1.0)
    assert finding.sound is (narrower == 1.0)


def test_an_exact_histogram_is_found_out_completely() -> None:
    finding = OneRunCheck(setting="", measure=lambda counts: (2 * counts - 1, AMOUNT_OF_ONE)).run(effort=1.0)
    assert finding.measured > 6
    assert not finding.sound


def test_who_guesses_nothing_shows_nothing() -> None:
    finding = OneRunCheck(setting="", measure=lambda counts: (np.zeros(CANARIES, dtype=np.int64), AMOUNT_OF_ONE)).run(
        effort=1.0
    )
    assert finding.measured == 0
