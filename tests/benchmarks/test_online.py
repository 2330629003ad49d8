"""A small form of the theorem check of `online`: it passes as it should, and fails if the mechanism breaks the proof."""

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import online
from dpcore.textbook.online import bounds, session
from dpcore.textbook.online.weights import DenseWeights

# All answers of all sessions here are within alpha, but with probability 6 x 1e-8
SURE = replace(online.SETTINGS[0], shape=(3, 4), rows=900_000, beta=1e-8)
QUERIES = 60


def played(setting: online.Setting = SURE) -> list[online.Outcome]:
    return [online.play(setting, queries=QUERIES, seed=seed) for seed in range(3)]


@pytest.mark.parametrize("factored", [False, True])
def test_answers_stay_within_alpha_and_every_hard_round_lowers_the_relative_entropy(factored: bool) -> None:
    found = played(replace(SURE, factored=factored))
    assert [each.beyond for each in found] == [0, 0, 0]
    assert all(each.hard <= each.bound for each in found)
    assert max(each.hard for each in found) >= 5
    assert min(each.least_gain for each in found) >= 1


def test_both_forms_of_the_model_answer_alike() -> None:
    dense, factored = (online.play(replace(SURE, factored=form), queries=QUERIES, seed=1) for form in (False, True))
    assert dense.hard == factored.hard
    assert math.isclose(dense.worst, factored.worst, rel_tol=1e-3)


def test_a_model_that_learns_in_the_wrong_direction_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = DenseWeights.learn
    monkeypatch.setattr(DenseWeights, "learn", lambda self, query, step: sound(self, query, -step))
    assert min(each.least_gain for each in played()) < 0


def test_steps_that_are_too_large_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = DenseWeights.learn
    monkeypatch.setattr(DenseWeights, "learn", lambda self, query, step: sound(self, query, 8 * step))
    assert min(each.least_gain for each in played()) < 1


def test_a_gate_that_lets_larger_errors_pass_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = bounds.bounds_for

    def lax(terms: bounds.Terms, *, rows: int) -> bounds.Bounds:
        found = sound(terms, rows=rows)
        return replace(found, threshold=3 * found.threshold, gate_error=found.within - 3 * found.threshold)

    monkeypatch.setattr(session, "bounds_for", lax)
    assert sum(each.beyond for each in played()) > 0


def test_seeded_sessions_repeat_themselves() -> None:
    assert online.play(SURE, queries=20, seed=5) == online.play(SURE, queries=20, seed=5)


def test_a_session_that_spends_more_than_it_has_is_noticed() -> None:
    ledger = online.MemoryLedger(10)
    ledger.charge(None, step="a", amount=10, mechanism=None, analyst=None)
    with pytest.raises(AssertionError, match="exceeds"):
        ledger.charge(None, step="b", amount=1, mechanism=None, analyst=None)


def test_a_relative_entropy_is_that_of_the_two_distributions() -> None:
    table = np.array([[3, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]) * 1000_000
    with online.seeded(1):
        begun = online.begin(SURE, table, queries=5)
    wanted = 0.75 * math.log(0.75 * 12) + 0.25 * math.log(0.25 * 12)
    assert math.isclose(online.relative_entropy(table, begun), wanted, rel_tol=1e-9)


def test_after_the_last_hard_round_answers_come_from_the_model_without_a_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = bounds.bounds_for
    monkeypatch.setattr(session, "bounds_for", lambda terms, *, rows: replace(sound(terms, rows=rows), hard_rounds=1))
    table = np.array([[9, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]) * 100_000
    with online.seeded(2):
        begun = online.begin(SURE, table, queries=5)
        cells = table > 500_000
        assert begun.ask(online.CountQuery((0, 1), cells)).hard
        left = begun._gatekeeper._ledger.left
        later = online.CountQuery((0, 1), ~cells)
        expected = round(float(begun.model.marginal((0, 1))[later.cells].sum()))
        assert begun.ask(later) == session.OnlineAnswer(expected, begun.bounds.within, hard=False)
    assert begun.hard_rounds == 1
    assert begun._gatekeeper._ledger.left == left
