"""The private selection has its exact probabilities, its derived sensitivity, and gains of lies within every bound."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms import ExponentialMechanism, Flavour
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.textbook.truthful import (
    Bound,
    Exact,
    Game,
    Player,
    PrivateSelection,
    facility_game,
    gain_bound,
    gains,
    largest_gain,
)
from tests.dpcore.textbook.truthful.games import ZERO, Best, random_game, shouting, temptation

THEOREMS = (Bound.SEED, Bound.RATIO, Bound.PURE, Bound.RANGE)
HALF = Fraction(1, 2)


def with_half_the_sensitivity(selection: PrivateSelection) -> PrivateSelection:
    right = selection.mechanism
    wrong = ExponentialMechanism(epsilon=right.epsilon, sensitivity=right.sensitivity // 2, flavour=Flavour.GUMBEL)
    object.__setattr__(selection, "mechanism", wrong)
    return selection


def neighbours(game: Game):
    for profile in game.profiles():
        for player, kind in enumerate(game.players):
            for report in range(len(kind.types)):
                yield profile, (*profile[:player], report, *profile[player + 1 :])


def is_private(selection: PrivateSelection, epsilon: float) -> bool:
    """Compare e^-epsilon P(outcome) with Q(outcome) exactly, for all pairs of neighbours."""
    cost = Fraction(epsilon)
    chances = {
        profile: selection.probabilities(selection.game.reports(profile)) for profile in selection.game.profiles()
    }
    return all(
        Exact.ratio({b + cost: a for b, a in p.numerator.items()}, p.denominator) <= q
        for here, there in neighbours(selection.game)
        for p, q in zip(chances[here], chances[there], strict=True)
    )


@pytest.mark.parametrize("epsilon", [0.05, 1.0])
def test_no_lie_in_any_game_gains_more_than_any_bound(epsilon):
    gaining = 0
    for seed in range(8):
        selection = PrivateSelection(game=random_game(seed), epsilon=epsilon)
        bounds = [selection.gain_bound(bound=bound, coalition=1) for bound in Bound]
        assert bounds == sorted(bounds, reverse=True)
        for gain in gains(selection):
            assert all(gain.at_most(bound) for bound in bounds)
            gaining += not gain.at_most(ZERO)
    assert gaining > 10  # private, but not exactly truthful: there is something to bound


@pytest.mark.parametrize("epsilon", [0.05, 3.0])
def test_a_game_reaches_the_tight_bound_exactly_and_half_the_sensitivity_breaks_it(epsilon):
    def most(selection: PrivateSelection) -> Exact:
        return largest_gain(selection).amount

    selection = PrivateSelection(game=temptation(HALF), epsilon=epsilon, quality=shouting)
    tight = gain_bound(epsilon, bound=Bound.RANGE, coalition=1)
    assert selection.mechanism.sensitivity == 2
    assert most(selection) == tight
    assert float(tight) == pytest.approx(math.tanh(epsilon / 4), rel=1e-14)
    assert is_private(selection, epsilon)

    broken = with_half_the_sensitivity(selection)
    assert most(broken) > tight
    assert most(broken) == gain_bound(epsilon, bound=Bound.PURE, coalition=1)
    assert not all(gain.at_most(tight) for gain in gains(broken))


def test_outcomes_are_private_and_half_the_sensitivity_is_not():
    """With more outcomes than two and scores that move apart, the loss comes close to epsilon."""
    crowd = Player(types=(0, 1), utility=lambda mine, outcome, _: int((outcome == 0) == (mine == 0)))
    game = Game(players=(crowd, crowd), outcomes=tuple(range(30)))
    selection = PrivateSelection(
        game=game, epsilon=1.0, quality=lambda reports: [2 * r for r in one_against_all(reports)]
    )
    assert is_private(selection, 1.0)
    assert not is_private(selection, 0.85)
    assert not is_private(with_half_the_sensitivity(selection), 1.0)
    for seed in range(6):
        assert is_private(PrivateSelection(game=random_game(seed), epsilon=0.7), 0.7)


def one_against_all(reports: tuple[int, ...]) -> list[int]:
    return [sum(1 if (place == 0) == (report == 0) else 0 for report in reports) for place in range(30)]


def test_what_is_always_best_is_manipulable():
    """The negative control of all: without privacy there is no bound."""
    loudest = PrivateSelection(game=temptation(HALF), epsilon=1.0, quality=shouting)
    assert largest_gain(Best(loudest)).amount == Exact.of(1)
    line = PrivateSelection(game=facility_game(players=3, places=9), epsilon=0.5)
    assert largest_gain(Best(line)).amount > gain_bound(0.05, bound=Bound.RANGE, coalition=1)


@pytest.mark.parametrize("seed", range(8))
def test_the_sensitivity_is_that_of_an_exhaustive_search(seed):
    game = random_game(seed)
    selection = PrivateSelection(game=game, epsilon=1.0)
    scores = {profile: selection.scoring.scores(profile) for profile in game.profiles()}
    largest = max(int(np.abs(scores[here] - scores[there]).max()) for here, there in neighbours(game))
    assert selection.mechanism.sensitivity == largest

    def welfare(reports):
        rows = [
            [max(player.utility(kind, outcome, one) for one in player.reactions) for outcome in game.outcomes]
            for player, kind in zip(game.players, reports, strict=True)
        ]
        return [sum(column) for column in zip(*rows, strict=True)]

    other = PrivateSelection(game=game, epsilon=1.0, quality=welfare)
    assert Fraction(other.mechanism.sensitivity, other.scoring.grid) == Fraction(largest, selection.scoring.grid)


def test_a_quality_too_fine_for_the_grid_is_rounded_before_its_sensitivity_is_found():
    prime = 10_000_019
    player = Player(types=(0, 1), utility=lambda kind, outcome, _: Fraction(1 + kind * outcome * 3, prime))
    selection = PrivateSelection(game=Game(players=(player, player), outcomes=(0, 1)), epsilon=1.0)
    assert selection.scoring.grid == 1_000_000
    assert selection.scoring.rounding == Fraction(2, 2_000_000)
    assert selection.mechanism.sensitivity == 1
    assert is_private(selection, 1.0)


@pytest.mark.parametrize("members", [(0, 1), (0, 2), (0, 1, 2)])
def test_a_coalition_gains_within_its_own_bound_and_beyond_that_of_one(members):
    game = temptation(HALF, HALF, HALF)
    selection = PrivateSelection(game=game, epsilon=0.5, quality=shouting)
    table = {profile: selection.utilities(profile) for profile in game.profiles()}
    together, alone = (gain_bound(0.5, bound=Bound.RANGE, coalition=size) for size in (len(members), 1))
    largest = ZERO
    for profile in table:
        for lies in itertools.product(range(2), repeat=len(members)):
            lied = list(profile)
            for member, lie in zip(members, lies, strict=True):
                lied[member] = lie
            for member in members:
                truth = profile[member]
                largest = max(largest, table[tuple(lied)][member][truth] - table[profile][member][truth])
    assert alone < largest <= together


def test_a_draw_is_that_of_its_mechanism_among_the_scores(monkeypatch):
    game, reports = facility_game(players=6, places=4), (0, 0, 1, 3, 3, 3)
    selection = PrivateSelection(game=game, epsilon=2.0)
    drawn = []
    monkeypatch.setattr(ExponentialMechanism, "draw", lambda own, scores: drawn.append((own, scores.tolist())) or 2)
    assert selection.draw(reports).outcome == game.outcomes[2]
    assert drawn == [(selection.mechanism, selection.scoring.scores(game.profile(reports)).tolist())]
    rate = 2.0 / (2 * selection.mechanism.sensitivity)
    weights = np.exp(rate * np.array(drawn[0][1]))
    assert list(map(float, selection.probabilities(reports))) == pytest.approx((weights / weights.sum()).tolist())


def test_probabilities_add_up_to_one_exactly():
    for seed in range(5):
        selection = PrivateSelection(game=random_game(seed), epsilon=0.3)
        total = ZERO
        for chance in selection.probabilities([0] * len(selection.game.players)):
            total += chance
        assert total == Exact.of(1)


def test_a_draw_costs_what_the_exponential_mechanism_costs():
    selection = PrivateSelection(game=facility_game(players=3, places=5), epsilon=0.5)
    assert selection.mechanism.price(Currency.PURE) == AMOUNT_OF_ONE // 2
    assert selection.mechanism.price(Currency.ZCDP) == AMOUNT_OF_ONE // 32
    assert selection.mechanism.describe() == {
        "name": "exponential",
        "epsilon": "0.5",
        "sensitivity": 3,
        "flavour": "gumbel",
    }


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, math.inf, True, "1", None, 1e9])
def test_an_epsilon_that_means_nothing_is_refused(epsilon):
    with pytest.raises(UsageError, match="epsilon"):
        PrivateSelection(game=temptation(HALF), epsilon=epsilon)


@pytest.mark.parametrize("quality", [lambda _: (1,), lambda _: (1, 0.5), lambda _: (1, 2**63)])
def test_a_quality_that_gives_no_scores_is_refused(quality):
    with pytest.raises(UsageError, match="quality"):
        PrivateSelection(game=temptation(HALF), epsilon=1.0, quality=quality)


def test_bounds_that_make_no_sense_are_refused():
    selection = PrivateSelection(game=temptation(HALF), epsilon=1.0)
    for coalition in (0, -1, 1.0, True):
        with pytest.raises(UsageError, match="coalition"):
            gain_bound(1.0, bound=Bound.PURE, coalition=coalition)
    with pytest.raises(UsageError, match="only the lies of single players"):
        selection.gain_bound(bound=Bound.ENUMERATED, coalition=2)
    with pytest.raises(UsageError, match="call gain_bound on"):
        gain_bound(1.0, bound=Bound.ENUMERATED, coalition=1)
