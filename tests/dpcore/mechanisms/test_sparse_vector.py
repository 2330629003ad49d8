"""The sparse vector answers with its exact odds, which never differ by more than epsilon; forms that are broken show."""

import copy
import itertools
import math
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms import sessions
from dpcore.mechanisms.sampling import entropy
from dpcore.mechanisms.sparse_vector import SparseVector
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, pure_gdp, pure_zcdp, spend_amount
from dpcore.textbook.above_threshold import AboveThreshold
from tests.contracts.mechanism import MechanismContract, chi_square_p, epsilon_at_least, recorded_words
from tests.dpcore.mechanisms.broken_sparse_vectors import BROKEN, PRIVATE, Exhibit, Form

CURRENCIES = (Currency.PURE, Currency.ZCDP, Currency.GDP)
FAR = 10**9


class TestSparseVector(MechanismContract):
    kind = SparseVector
    currencies = CURRENCIES
    less_noise = ("epsilon", math.inf)

    def bought(self, amount, currency):
        return SparseVector.for_amount(amount, currency=currency, sensitivity=7, positives=3, monotone=False)


class TestAboveThreshold(MechanismContract):
    kind = AboveThreshold
    kinds = (AboveThreshold,)
    currencies = CURRENCIES
    less_noise = ("epsilon", math.inf)

    def bought(self, amount, currency):
        return AboveThreshold.for_amount(amount, currency=currency, sensitivity=2, monotone=True)


def sparse(positives: int, *, epsilon: float = 1.0, sensitivity: int = 1, monotone: bool = False) -> SparseVector:
    return SparseVector(epsilon=epsilon, sensitivity=sensitivity, positives=positives, monotone=monotone)


def form_of(mechanism: SparseVector) -> Form:
    return Form(*mechanism.scales, mechanism.positives)


def loss(exhibit: Exhibit) -> float:
    """The exact logarithm of how much likelier the answers are here than there."""
    here, there = (exhibit.form.probability(values, exhibit.answers) for values in (exhibit.here, exhibit.there))
    return math.log(here / there) if there else math.inf


def shown(exhibit: Exhibit, sessions: int = 400_000) -> float:
    """An epsilon that sessions drawn on both sides certainly exceed."""
    return epsilon_at_least(
        *(exhibit.form.event(values, exhibit.answers, sessions) for values in (exhibit.here, exhibit.there))
    )


@pytest.mark.parametrize("epsilon", [1e-5, 0.1, 1 / 3, 1.0, math.pi, 20.0])
@pytest.mark.parametrize("monotone", [True, False])
def test_both_noises_together_cost_epsilon_to_the_last_bits_and_never_more(epsilon, monotone):
    for positives, sensitivity in itertools.product([1, 2, 3, 50, 1000], [1, 3, 1000]):
        threshold, query = sparse(positives, epsilon=epsilon, sensitivity=sensitivity, monotone=monotone).scales
        steps = positives if monotone else 2 * positives
        parts = [Fraction(sensitivity) / Fraction(threshold), Fraction(steps * sensitivity) / Fraction(query)]
        assert Fraction(epsilon) * (1 - Fraction(1, 10**15)) <= sum(parts) <= Fraction(epsilon)
        assert float(parts[1] / parts[0]) == pytest.approx(steps ** (2 / 3), rel=1e-12)


def test_above_threshold_has_the_textbook_scales():
    assert AboveThreshold(epsilon=0.5, sensitivity=3, monotone=False).scales == (12.0, 24.0)
    assert AboveThreshold(epsilon=0.5, sensitivity=3, monotone=True).scales == (12.0, 12.0)


def test_a_session_costs_its_epsilon_or_what_any_mechanism_of_that_epsilon_costs():
    for mechanism in (sparse(5, epsilon=0.5), AboveThreshold(epsilon=0.5, sensitivity=1, monotone=True)):
        assert mechanism.price(Currency.PURE) == AMOUNT_OF_ONE // 2
        assert mechanism.price(Currency.ZCDP) == spend_amount(pure_zcdp(0.5))
        assert mechanism.price(Currency.GDP) == spend_amount(pure_gdp(0.5))


@pytest.mark.parametrize(
    ("positives", "sensitivity", "monotone"), [(1, 1, False), (2, 2, False), (3, 1, False), (2, 1, True)]
)
def test_no_answers_on_any_neighbours_have_odds_beyond_epsilon(positives, sensitivity, monotone):
    """Four values, each moved as far as it may, up or down, by every neighbour step there is."""
    form = form_of(sparse(positives, sensitivity=sensitivity, monotone=monotone))
    generator = np.random.default_rng(7)
    largest = 0.0
    for values in generator.integers(-6, 7, size=(12, 4)).tolist():
        here = form.distribution(values)
        assert sum(here.values()) == pytest.approx(1.0, rel=1e-12)
        for step in itertools.product([-sensitivity, sensitivity], [-sensitivity, 0, sensitivity], repeat=2):
            if monotone and min(step) < 0 < max(step):
                continue
            there = form.distribution([value + move for value, move in zip(values, step, strict=True)])
            largest = max(largest, *(abs(math.log(here[answers] / there[answers])) for answers in here))
    assert 0.45 < largest <= 1.0 + 1e-9


@pytest.mark.parametrize("positives", [1, 2, 3])
def test_some_answers_come_close_to_epsilon_and_would_exceed_it_with_less_noise(positives):
    """Many values are just below the threshold while few, far below it, are found above."""
    mechanism = sparse(positives)
    here, there = (2,) * 12 + (-6,) * positives, (3,) * 12 + (-7,) * positives
    answers = (False,) * 12 + (True,) * positives
    right = form_of(mechanism)
    assert 0.99 < loss(Exhibit(right, here, there, answers)) <= 1.0
    falsely_monotone = form_of(sparse(positives, monotone=True))
    endless = Form(*mechanism.scales, None)
    assert loss(Exhibit(falsely_monotone, here, there, answers)) > 1.4
    assert loss(Exhibit(right, here, (4,) * 12 + (-8,) * positives, answers)) > 1.9  # twice the sensitivity
    more = Exhibit(endless, here + (-6,) * 6, there + (-7,) * 6, answers + (True,) * 6)
    assert loss(more) > 1.5


@pytest.mark.parametrize("exhibit", PRIVATE.values(), ids=PRIVATE)
def test_the_published_forms_that_are_private_stay_within_their_epsilon(exhibit):
    assert 0.4 < loss(exhibit) <= 1.0
    assert 0.1 < shown(exhibit) <= 1.0


@pytest.mark.parametrize("exhibit", BROKEN.values(), ids=BROKEN)
def test_the_published_forms_that_are_broken_are_caught_exactly_and_by_sampling(exhibit):
    assert loss(exhibit) > 1.9
    assert shown(exhibit) > 1.2


def test_half_of_the_sensitivity_is_caught_by_sampling():
    here, one_step, two_steps = ((-2 + step,) * 10 + (2 - step,) for step in (0, 1, 2))
    answers = (False,) * 10 + (True,)
    assert shown(Exhibit(form_of(sparse(1)), here, one_step, answers)) <= 1.0
    assert shown(Exhibit(form_of(sparse(1)), here, two_steps, answers)) > 1.3


def test_values_that_are_falsely_called_monotone_are_caught_by_sampling():
    here, there, answers = (-2,) * 10 + (0,), (-1,) * 10 + (-1,), (False,) * 10 + (True,)
    assert shown(Exhibit(form_of(sparse(1)), here, there, answers)) <= 1.0
    assert shown(Exhibit(form_of(sparse(1, monotone=True)), here, there, answers)) > 1.05


def test_a_session_that_went_on_after_its_last_positive_would_be_caught_by_sampling():
    here, there, answers = (-2,) * 4 + (0,) * 6, (-1,) * 4 + (-1,) * 6, (False,) * 4 + (True,) * 6
    endless = Form(*sparse(1).scales, None)
    assert shown(Exhibit(endless, here, there, answers)) > 1.05
    assert shown(Exhibit(form_of(sparse(1)), here[:5], there[:5], answers[:5])) <= 1.0


def counted(answers: list[tuple[bool, ...]], possible: dict) -> np.ndarray:
    places = {sequence: place for place, sequence in enumerate(possible)}
    return np.bincount([places[given] for given in answers], minlength=len(places))


def asked_one_by_one(mechanism: SparseVector, values: list[int], threshold: int) -> tuple[bool, ...]:
    session = mechanism.begin(threshold)
    answers: list[bool] = []
    for value in values:
        answers.append(session.ask(value + threshold))
        if not session.positives_left:
            break
    return tuple(answers)


def asked_at_once(mechanism: SparseVector, values: list[int], threshold: int) -> tuple[bool, ...]:
    return tuple(mechanism.begin(threshold).ask_all(np.array(values) + threshold).tolist())


@pytest.mark.parametrize(("asked", "sessions"), [(asked_one_by_one, 12_000), (asked_at_once, 20_000)])
def test_sessions_have_their_exact_odds_and_not_those_of_another_scale_or_of_lost_ties(asked, sessions):
    mechanism, values = sparse(2, epsilon=3.0), [-1, 2, 0, 1]
    exact = form_of(mechanism).distribution(values)
    observed = counted([asked(mechanism, values, 40) for _ in range(sessions)], exact)

    def agreement(form: Form, of: list[int]) -> float:
        expected = form.distribution(of)
        return chi_square_p(observed, np.array([expected[answers] * sessions for answers in exact]))

    threshold, query = mechanism.scales
    assert agreement(form_of(mechanism), values) > 1e-9
    assert agreement(Form(threshold, query * 1.3, 2), values) < 1e-9
    assert agreement(Form(threshold * 1.5, query, 2), values) < 1e-9
    assert agreement(Form(threshold, query, 2, redrawn_scale=threshold), values) < 1e-9
    assert agreement(form_of(mechanism), [value - 1 for value in values]) < 1e-9  # > in place of >=


def test_a_session_ends_with_its_last_positive_answer():
    session = sparse(2).begin(0)
    assert [session.ask(-FAR), session.ask(FAR), session.ask(-FAR), session.ask(FAR)] == [False, True, False, True]
    assert session.positives_left == 0
    for ask in (lambda: session.ask(-FAR), lambda: session.ask_all(np.zeros(0, dtype=np.int64))):
        with pytest.raises(UsageError, match="last positive answer; begin a new one"):
            ask()


def test_values_after_the_last_positive_get_no_answer():
    values = np.full(40_000, -FAR, dtype=np.int64)
    values[[5, 20_000, 30_000]] = FAR
    answers = sparse(2).begin(0).ask_all(values)
    assert len(answers) == 20_001
    assert np.flatnonzero(answers).tolist() == [5, 20_000]
    session = sparse(3).begin(0)
    assert len(session.ask_all(values)) == 30_001
    assert session.positives_left == 0
    assert len(sparse(4).begin(0).ask_all(values)) == 40_000
    assert sparse(4).begin(0).ask_all(values[:0]).shape == (0,)


def test_threads_that_share_a_session_share_its_positives():
    session = sparse(50).begin(0)

    def ask(_: int) -> bool | None:
        try:
            return session.ask(FAR)
        except UsageError:
            return None

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(ask, range(400)))
    assert answers.count(True) == 50
    assert answers.count(None) == 350


@pytest.mark.parametrize("carry", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_session_cannot_be_copied_since_its_noise_may_be_used_once(carry):
    with pytest.raises(TypeError, match="used once; begin a new one"):
        carry(sparse(1).begin(0))


def test_a_session_shows_nothing_of_its_threshold():
    session = sparse(1).begin(123_456)
    assert repr(session) == str(session) == f"{session}" == "<Session: private, not shown>"
    with pytest.raises(TypeError):
        vars(session)


def test_a_forked_process_cannot_go_on_with_a_session():
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


def test_the_noise_comes_from_the_entropy_stream_and_its_amount_follows_from_the_answers(monkeypatch):
    mechanism = sparse(3)

    def answers(seed: int, values: np.ndarray) -> tuple[list[bool], list[int]]:
        words, counts = recorded_words(seed), []
        monkeypatch.setattr(entropy, "random_words", lambda count: (counts.append(count), words(count))[1])
        return mechanism.begin(0).ask_all(values).tolist(), counts

    near, far = np.arange(-5, 5), np.array([-FAR] * 7 + [FAR] * 3)
    assert answers(1, near) == answers(1, near)
    assert any(answers(seed, near)[0] != answers(1, near)[0] for seed in range(2, 12))
    assert answers(1, far)[1] == answers(1, -2 * FAR + 0 * far)[1]


def test_values_and_thresholds_at_the_ends_of_64_bits_do_not_wrap_around():
    least, most = -(2**63), 2**63 - 1
    for _ in range(50):
        assert sparse(2).begin(most).ask_all(np.array([least, least])).tolist() == [False, False]
        assert sparse(2).begin(least).ask_all(np.array([most, most])).tolist() == [True, True]
        assert sparse(1).begin(most).ask(most + 1000)
        assert sparse(1).begin(np.int64(0)).ask(np.int32(1000))


@pytest.mark.parametrize("threshold", [2**63, -(2**63) - 1, 0.5, math.nan, math.inf, True, None, "0", np.float64(1)])
def test_a_threshold_that_is_no_whole_number_of_64_bits_is_refused(threshold):
    with pytest.raises(UsageError, match="threshold must be a 64-bit integer"):
        sparse(1).begin(threshold)


@pytest.mark.parametrize("value", [0.5, 1.0, math.nan, math.inf, True, np.True_, None, "0", np.float64(1), [1]])
def test_a_value_that_is_no_whole_number_is_refused_and_costs_no_noise(value, monkeypatch):
    session = sparse(1).begin(0)
    monkeypatch.setattr(entropy, "random_words", lambda count: pytest.fail("drew noise"))
    with pytest.raises(UsageError, match="whole number"):
        session.ask(value)
    for values in ([1], np.array([1.0]), np.array([True]), np.zeros((1, 1), dtype=np.int64), np.array(3)):
        with pytest.raises(UsageError, match="64-bit"):
            session.ask_all(values)


@pytest.mark.parametrize("number", [0, -1, 1.0, True, 2**31, None, "1"])
def test_sensitivities_and_positives_that_mean_nothing_are_refused(number):
    with pytest.raises(UsageError, match="sensitivity must be"):
        sparse(1, sensitivity=number)
    with pytest.raises(UsageError, match="positives must be"):
        sparse(number)
    with pytest.raises(UsageError, match="sensitivity must be"):
        AboveThreshold.for_amount(AMOUNT_OF_ONE, currency=Currency.PURE, sensitivity=number, monotone=False)


@pytest.mark.parametrize("monotone", [None, 1, 0, "no"])
def test_monotone_is_said_by_yes_or_no(monotone):
    with pytest.raises(UsageError, match="pass monotone"):
        sparse(1, monotone=monotone)


@pytest.mark.parametrize("epsilon", [0, 0.0, -1.0, 1e-13, 1e9, math.nan, math.inf, True, "1", None])
def test_an_epsilon_that_means_nothing_is_refused(epsilon):
    with pytest.raises(UsageError, match="epsilon must"):
        sparse(1, epsilon=epsilon)
    with pytest.raises(UsageError, match="epsilon must"):
        AboveThreshold(epsilon=epsilon, sensitivity=1, monotone=False)


def test_noise_that_cannot_be_drawn_is_refused_before_any_draw():
    with pytest.raises(UsageError, match="spend an amount in that range"):
        sparse(10**6, epsilon=1e-9, sensitivity=1000)
    with pytest.raises(UsageError, match="allow fewer positives"):
        sparse(2**31 - 1, sensitivity=2**31 - 1)


@pytest.mark.parametrize(("positives", "monotone"), [(1, True), (1, False), (3, False)])
def test_the_noise_that_is_drawn_is_as_wide_as_what_is_paid_for(positives, monotone, monkeypatch):
    """Whatever the scales are said to be, what is drawn with them re-accounts to the charge: D / s1 + c steps / s2."""
    drawn = []

    def spied(counts, *, shape, scale):
        drawn.append(Fraction(scale))
        return counts

    monkeypatch.setattr(sessions, "with_noise", spied)
    mechanism = SparseVector(epsilon=0.7, sensitivity=3, positives=positives, monotone=monotone)
    mechanism.begin(0).ask(-1)
    threshold, query = drawn
    steps = positives if monotone else 2 * positives
    cost = 3 / threshold + 3 * steps / query
    assert (
        cost * AMOUNT_OF_ONE <= mechanism.price(Currency.PURE) <= cost * AMOUNT_OF_ONE * (1 + Fraction(1, 10**12)) + 1
    )
