"""The sparse vector technique: scales that cost epsilon, exact odds within it, and sessions whose noise is used once."""

import copy
import itertools
import math
import os
import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpcore.audit.cases.sparse_vectors import probabilities
from dpcore.errors import UsageError
from dpcore.mechanisms import sessions
from dpcore.mechanisms.sampling import entropy
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.mechanisms.sparse_vector import SparseVector
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, pure_gdp, pure_zcdp, spend_amount
from dpcore.textbook.above_threshold import AboveThreshold
from tests.contracts.mechanism import recorded_words

FAR = 10**9
KINDS = [SparseVector, AboveThreshold]


def sparse(
    positives: int, *, epsilon: float = 1.0, sensitivity: int = 1, monotone: bool = False, kind: Any = SparseVector
) -> SparseVector:
    return kind(epsilon=epsilon, sensitivity=sensitivity, positives=positives, monotone=monotone)


# Noise and price


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("monotone", [True, False])
def test_both_noises_together_cost_epsilon_to_the_last_bits_and_never_more(kind: Any, monotone: bool) -> None:
    for epsilon, positives, sensitivity in itertools.product([1e-5, 1 / 3, 20.0], [1, 2, 1000], [1, 3, 1000]):
        mechanism = sparse(positives, epsilon=epsilon, sensitivity=sensitivity, monotone=monotone, kind=kind)
        threshold, query = map(Fraction, mechanism.scales)
        steps = positives if monotone else 2 * positives
        parts = [sensitivity / threshold, steps * sensitivity / query]
        assert Fraction(epsilon) * (1 - Fraction(1, 10**15)) <= sum(parts) <= Fraction(epsilon)
        share = 1 if kind is AboveThreshold else steps ** (2 / 3)
        assert float(parts[1] / parts[0]) == pytest.approx(share, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_costs_its_epsilon_or_what_any_mechanism_of_that_epsilon_costs(kind: Any) -> None:
    mechanism = sparse(5, epsilon=0.5, kind=kind)
    assert mechanism.price(Currency.PURE) == AMOUNT_OF_ONE // 2
    assert mechanism.price(Currency.ZCDP) == spend_amount(pure_zcdp(0.5))
    assert mechanism.price(Currency.GDP) == spend_amount(pure_gdp(0.5))


def largest_loss(scales: tuple[float, float], here: Sequence[int], there: Sequence[int], *, positives: int) -> float:
    odds = [probabilities(scales, values, positives=positives) for values in (here, there)]
    assert sum(odds[0].values()) == pytest.approx(1.0, rel=1e-12)
    return max(abs(math.log(odds[0][answers] / odds[1][answers])) for answers in odds[0])


@pytest.mark.parametrize(("positives", "sensitivity", "monotone"), [(1, 1, False), (2, 2, False), (2, 1, True)])
def test_no_answers_on_any_neighbours_have_odds_beyond_epsilon(
    positives: int, sensitivity: int, monotone: bool
) -> None:
    """Four values, each moved as far as it may, up or down."""
    scales = sparse(positives, sensitivity=sensitivity, monotone=monotone).scales
    losses = [
        largest_loss(scales, values, values + step, positives=positives)
        for values in np.random.default_rng(7).integers(-6, 7, size=(6, 4))
        for step in itertools.product([0 if monotone else -sensitivity, sensitivity], repeat=4)
    ]
    assert 0.4 < max(losses) <= 1.0 + 1e-9


@pytest.mark.parametrize("positives", [1, 2])
def test_some_answers_come_close_to_epsilon_and_would_exceed_it_with_less_noise(positives: int) -> None:
    """Many values are just below the threshold while few, far below it, are found above."""
    here, there, twice = ((2 + step,) * 9 + (-6 - step,) * positives for step in (0, 1, 2))
    right = sparse(positives).scales
    assert 0.95 < largest_loss(right, here, there, positives=positives) <= 1.0
    assert largest_loss(sparse(positives, monotone=True).scales, here, there, positives=positives) > 1.3
    assert largest_loss(right, here, twice, positives=positives) > 1.8  # twice the sensitivity
    assert largest_loss(right, here + (-6,) * 4, there + (-7,) * 4, positives=positives + 4) > 1.3  # no stop


@pytest.mark.parametrize(("positives", "monotone"), [(1, True), (1, False), (3, False)])
def test_the_noise_that_is_drawn_is_as_wide_as_what_is_paid_for_and_compared_with_ties_above(
    positives: int, monotone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[Shape, float]] = []
    noises = iter([[5], [-1, 0, 3, -2]])

    def spied(counts: np.ndarray, *, shape: Shape, scale: float) -> np.ndarray:
        drawn.append((shape, scale))
        return counts + next(noises)

    monkeypatch.setattr(sessions, "with_noise", spied)
    mechanism = SparseVector(epsilon=0.7, sensitivity=3, positives=positives, monotone=monotone)
    answers = mechanism.begin(40).ask_all(np.array([45, 45, 42, 46])).tolist()  # noisy: 44, 45, 45, 44 against 45
    assert answers == [False, True, True, False][: 2 if positives == 1 else 4]
    assert drawn == [(Shape.LAPLACE, scale) for scale in mechanism.scales]


# Sessions


def test_a_session_ends_with_its_last_positive_answer() -> None:
    session = sparse(2).begin(0)
    assert [session.ask(-FAR), session.ask(FAR), session.ask(-FAR), session.ask(FAR)] == [False, True, False, True]
    assert session.positives_left == 0
    for ask in (lambda: session.ask(-FAR), lambda: session.ask_all(np.zeros(0, dtype=np.int64))):
        with pytest.raises(UsageError, match="last positive answer; begin a new one"):
            ask()


def test_values_after_the_last_positive_get_no_answer() -> None:
    values = np.full(40_000, -FAR, dtype=np.int64)
    values[[5, 20_000, 30_000]] = FAR
    for positives, answered in ((2, 20_001), (3, 30_001), (4, 40_000)):
        answers = sparse(positives).begin(0).ask_all(values)
        assert len(answers) == answered
        assert np.flatnonzero(answers).tolist() == [5, 20_000, 30_000][:positives]
    assert sparse(4).begin(0).ask_all(values[:0]).shape == (0,)


def test_threads_that_share_a_session_share_its_positives() -> None:
    session = sparse(50).begin(0)

    def ask(_: int) -> bool | None:
        try:
            return session.ask(FAR)
        except UsageError:
            return None

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(ask, range(400)))
    assert (answers.count(True), answers.count(None)) == (50, 350)


@pytest.mark.parametrize("carry", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_session_cannot_be_copied_and_shows_nothing_of_its_threshold(carry: Any) -> None:
    session = sparse(1).begin(123_456)
    with pytest.raises(TypeError, match="used once; begin a new one"):
        carry(session)
    assert repr(session) == str(session) == f"{session}" == "<Session: private, not shown>"
    with pytest.raises(TypeError):
        vars(session)


def test_a_forked_process_cannot_go_on_with_a_session() -> None:
    session = sparse(1).begin(0)
    child = os.fork()
    if not child:
        code = 1
        try:
            session.ask(0)
        except UsageError as error:
            code = 0 if "another process" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert session.ask(FAR)


def test_how_much_noise_is_drawn_follows_from_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def counts(values: np.ndarray) -> list[int]:
        words, counted = recorded_words(1), []
        monkeypatch.setattr(entropy, "random_words", lambda count: (counted.append(count), words(count))[1])
        sparse(3).begin(0).ask_all(values)
        return counted

    assert counts(np.array([-FAR] * 7 + [FAR] * 3)) == counts(np.full(10, -2 * FAR))


def test_values_and_thresholds_at_the_ends_of_64_bits_do_not_wrap_around() -> None:
    least, most = -(2**63), 2**63 - 1
    for _ in range(20):
        assert sparse(2).begin(most).ask_all(np.array([least, least])).tolist() == [False, False]
        assert sparse(2).begin(least).ask_all(np.array([most, most])).tolist() == [True, True]
        assert sparse(1).begin(most).ask(most + 1000)
        assert sparse(1).begin(np.int64(0)).ask(np.int32(1000))


def test_what_are_no_values_are_refused_and_cost_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    session = sparse(1).begin(0)
    monkeypatch.setattr(entropy, "random_words", lambda count: pytest.fail("drew noise"))
    for values in ([1], np.array([1.0]), np.array([True]), np.zeros((1, 1), dtype=np.int64), np.array(3)):
        with pytest.raises(UsageError, match="64-bit"):
            session.ask_all(values)  # type: ignore[arg-type]


def test_noise_that_cannot_be_drawn_is_refused_before_any_draw() -> None:
    with pytest.raises(UsageError, match="spend an amount in that range"):
        sparse(10**6, epsilon=1e-9, sensitivity=1000)
    with pytest.raises(UsageError, match="allow fewer positives"):
        sparse(2**31 - 1, sensitivity=2**31 - 1)
