"""Every mechanism has an audit, which costs sound code no false alarm, and the page of guarantees is what the audit says."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from dpcore import mechanisms
from dpcore.audit import guarantees, planted, run, streams
from dpcore.audit.case import Audited, Verdict
from dpcore.audit.cases import CASES
from dpcore.audit.checks import (
    MISS,
    Check,
    DistributionCheck,
    EventCheck,
    Finding,
    OneRunCheck,
    StreamCheck,
)
from dpcore.errors import UsageError
from dpcore.mechanisms import DiscreteLaplace
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Sensitivity
from tests.contracts.mechanism_catalogue import every_kind

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "guarantees.md"
LITTLE = 0.01


def unmeasured(check: Check) -> Finding:
    """What a check has claimed, as if it held. What one run is charged is known when it was measured."""
    if isinstance(check, OneRunCheck):
        return check.run(effort=LITTLE)
    claimed = {name: getattr(check, name, None) for name in ("currency", "charged")}
    if claimed["charged"] is not None:
        claimed["charged"] /= AMOUNT_OF_ONE
    return Finding(check=check.kind, setting=check.setting, sound=True, shown="", measured=0.0, **claimed)


def claims() -> Iterator[Audited]:
    for case in (make() for make in CASES.values()):
        verdicts = (Verdict(bug.name, bug.how, replace(unmeasured(bug.check), sound=False)) for bug in case.bugs)
        yield Audited(case.name, tuple(map(unmeasured, case.checks)), tuple(verdicts))


def test_every_mechanism_of_the_package_is_audited_under_its_name() -> None:
    exported = [getattr(mechanisms, name) for name in mechanisms.__all__]
    names = {
        kind.name for kind in exported if isinstance(kind, type) and hasattr(kind, "price") and hasattr(kind, "name")
    }
    assert names >= {"discrete-laplace", "exponential"}
    assert names == {kind.name for kind in mechanisms.KINDS}
    assert {kind.name for kind in every_kind()} >= {"randomized-response", "above-threshold"} | names
    assert {kind.name for kind in every_kind()} - set(CASES) == set()


def test_every_case_has_a_theorem_prices_checks_and_planted_bugs() -> None:
    for name, make in CASES.items():
        case = make()
        assert case.name == name
        assert case.theorem.endswith(".")
        assert re.search(r"\d{4}", case.reference)
        assert case.prices
        assert case.checks
        assert case.bugs


def test_the_bugs_that_must_be_caught_are_planted() -> None:
    planted_bugs = {bug.name for make in CASES.values() for bug in make().bugs}
    assert planted_bugs >= {
        "scale x1.03",
        "sensitivity halved",
        "price halved",
        "L2 not stacked",
        "zero drawn twice",
        "missing charge",
        "charge after the draw",
        "epsilon^2/8 for permute-and-flip",
        "float noise",
        "numpy randomness",
        "neighbour flag ignored",
    }
    assert sum("Alg." in name for name in planted_bugs) == 4


def test_all_checks_together_accuse_sound_code_less_than_once_in_a_million_runs() -> None:
    checks = sum(len(make().checks) for make in CASES.values())
    assert checks * MISS <= 1e-6


def lasting_part(text: str) -> str:
    """Return a page without the parts that differ from run to run: the date and the measured values."""
    return "\n".join(line.partition(" | >= ")[0] for line in text.splitlines() if not line.startswith("Measured on "))


def test_the_page_of_guarantees_is_what_the_audit_writes_but_for_what_was_measured() -> None:
    written = guarantees.page(list(claims()), day=date(2026, 1, 1))
    committed = PAGE.read_text(encoding="utf-8")
    hint = "write it again with: dpflow audit --markdown docs/explanation/guarantees.md"
    assert lasting_part(committed) == lasting_part(written), hint


def test_the_page_shows_no_more_than_was_charged_says_when_and_that_every_bug_was_caught() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert re.search(r"^Measured on \d{4}-\d{2}-\d{2}\.$", page, re.MULTILINE)
    sound = re.findall(r"\| (?:epsilon|rho|mu\^2) ([\d.e-]+) \| >= ([\d.]+) \|", page)
    assert len(sound) >= 25
    assert all(float(measured) <= float(charged) for charged, measured in sound)
    assert page.count("Planted and caught: ") == len(CASES)
    assert "NOT CAUGHT" not in page


def test_a_fault_is_told_in_a_sentence_for_each() -> None:
    def exact(count: int) -> np.ndarray:
        return np.zeros(count, dtype=np.int64)

    def other(count: int) -> np.ndarray:
        return np.ones(count, dtype=np.int64)

    event = EventCheck(
        setting="s", currency=Currency.PURE, charged=AMOUNT_OF_ONE, here=exact, there=other, draws=1_000_000
    )
    case = CASES["discrete-laplace"]()
    broken = type(case)(**(vars(case) | {"checks": (event,), "bugs": case.bugs[:1]}))
    sentences = guarantees.faults([broken.run(effort=LITTLE)])
    assert any("discrete-laplace: s: event check failed: epsilon >= " in sentence for sentence in sentences)


def test_an_unknown_mechanism_and_a_senseless_share_of_draws_are_refused() -> None:
    with pytest.raises(UsageError, match="choose from discrete-laplace"):
        run.checked_names(["laplace"])
    for effort in (0.0, -1.0, float("nan"), 1e9):
        with pytest.raises(UsageError, match="share of draws"):
            run.audit_case("randomized-response", effort)


def test_a_draw_is_determined_by_recorded_words_if_it_takes_nothing_else() -> None:
    laplace = DiscreteLaplace(scale=2.0, sensitivity=Sensitivity(1, 1, 1))
    counts = np.zeros(50, dtype=np.int64)
    system = entropy.random_words
    assert streams.determined(lambda: laplace.draw(counts))
    assert not streams.determined(lambda: planted.of_numpy(50))
    assert not streams.determined(lambda: counts)  # no noise at all
    taken = iter(range(1, 100))
    assert not streams.determined(lambda: entropy.random_words(next(taken)).astype(np.int64))
    assert entropy.random_words is system


def test_a_failing_draw_leaves_the_source_of_randomness_as_it_was() -> None:
    system = entropy.random_words

    def fails(_: int) -> np.ndarray:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        StreamCheck(setting="", draw=fails).run(effort=1.0)
    assert entropy.random_words is system


def test_outputs_that_cannot_come_out_count_against_a_distribution() -> None:
    outcomes, probabilities = np.array([0, 1, 2]), np.array([0.5, 0.25, 0.25])
    check = DistributionCheck(
        setting="", draw=lambda count: np.full(count, 9), draws=1000, outcomes=outcomes, probabilities=probabilities
    )
    assert not check.run(effort=1.0).sound


def test_possible_outputs_of_float_noise_tell_the_counts_apart_and_rounding_is_what_does_it() -> None:
    noise = planted.FloatLaplace(scale=1.0)
    assert noise.possible_from_nought(0)(2000).all()
    assert 0.2 < noise.possible_from_nought(1)(2000).mean() < 0.6
