"""What `benchmarks.curator` compares a session with: true answers, and Turbo within its budget."""

import math

import numpy as np
import pytest

from benchmarks.curator_questions import Asked, Marginals, Stream
from benchmarks.curator_turbo import BETA, PUBLISHED, READY, Turbo, published_and_best
from dpcore.answers.query import Always

SHAPE = (3, 4)
ROWS = 6000


@pytest.fixture(scope="module")
def asked() -> Stream:
    """Two counts of a small table, asked many times in turn."""
    rng = np.random.default_rng(1)
    codes = [rng.integers(0, size, ROWS) for size in SHAPE]
    true = Marginals(codes, SHAPE)
    cells = (np.array([1.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0, 0.0]))
    truth = float(sum(1 for one, other in zip(*codes, strict=True) if one != 1 and other in {1, 2}))
    both = Asked(Always(truth=True), (0, 1), cells, truth)
    single = Asked(Always(truth=True), (1,), cells[1:], float(true((1,))[1:3].sum()))
    return Stream([both, single], np.arange(1000) % 2)


def test_a_true_marginal_gives_the_true_answers(asked: Stream) -> None:
    rng = np.random.default_rng(1)
    true = Marginals([rng.integers(0, size, ROWS) for size in SHAPE], SHAPE)
    answers = asked.answered(true)
    assert answers == {place: each.truth for place, each in enumerate(asked.pool)}
    assert asked.error(answers) == 0
    assert asked.error({0: answers[0] + 2, 1: answers[1]}) == 1


def test_turbo_pays_once_for_a_repeated_question_and_stops_when_its_budget_is_spent(asked: Stream) -> None:
    price = (math.log(1 / BETA) / (ROWS * PUBLISHED)) ** 2 / 2
    enough = Turbo(SHAPE, rows=ROWS, alpha=PUBLISHED, rho=2.5 * price, seed=1).run(asked)
    assert (enough.answered, enough.free) == (1000, 0)
    assert enough.spent == pytest.approx(2 / 2.5)
    short = Turbo(SHAPE, rows=ROWS, alpha=PUBLISHED, rho=1.5 * price, seed=1).run(asked)
    assert short.answered == 1
    _, best = published_and_best(asked, SHAPE, rows=ROWS, rho=2.5 * price, seed=1)
    assert best is not None
    assert best.alpha == PUBLISHED


def test_turbo_answers_from_its_histogram_once_all_cells_of_a_question_were_updated_often(asked: Stream) -> None:
    distinct = Stream([asked.pool[0]] * 3000, np.arange(3000))  # as if each were another question
    session = Turbo(SHAPE, rows=ROWS, alpha=PUBLISHED, rho=1e9, seed=1)
    session._updates += READY  # the table is uniform, as the histogram is at first
    found = session.run(distinct)
    assert found.free > 2900
    assert found.error < PUBLISHED * ROWS
