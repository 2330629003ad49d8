"""The mixture is exactly truthful: no lie gains, and with less weight, or a wrong gap, one does."""

from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms.sampling import coins, entropy
from dpcore.privacy.accounting import Currency
from dpcore.textbook.truthful import (
    Bound,
    Commitment,
    Exact,
    Game,
    Gap,
    Player,
    PrivateSelection,
    TruthfulMixture,
    facility_game,
    gains,
    gap,
    largest_gain,
)
from dpcore.textbook.truthful.mixture import weight_for
from tests.contracts.mechanism import fixed_stream
from tests.dpcore.textbook.truthful.games import ZERO, Weighed, punishing_games, shouting, temptation

HALF, STEP = Fraction(1, 2), Fraction(1, 2**64)
PUNISHING = punishing_games(6)


def tempting(*gammas: Fraction, epsilon: float, bound: Bound) -> TruthfulMixture:
    selection = PrivateSelection(game=temptation(*gammas), epsilon=epsilon, quality=shouting)
    return TruthfulMixture(selection=selection, bound=bound)


def is_truthful(rule: object) -> bool:
    return all(gain.at_most(ZERO) for gain in gains(rule))


@pytest.mark.parametrize("bound", Bound)
@pytest.mark.parametrize("epsilon", [0.05, 1.0])
def test_no_lie_in_any_game_gains_anything(epsilon, bound):
    for game in PUNISHING:
        assert is_truthful(TruthfulMixture(selection=PrivateSelection(game=game, epsilon=epsilon), bound=bound))


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0])
@pytest.mark.parametrize("bound", [Bound.RANGE, Bound.ENUMERATED])
def test_in_a_game_that_reaches_the_bound_a_hair_less_weight_is_not_enough(epsilon, bound):
    mixture = tempting(HALF, epsilon=epsilon, bound=bound)
    assert is_truthful(mixture)
    assert is_truthful(Weighed(mixture, mixture.weight))
    assert not is_truthful(Weighed(mixture, mixture.weight - 3 * STEP))
    assert not is_truthful(Weighed(mixture, mixture.weight / 2))


@pytest.mark.parametrize("bound", [Bound.SEED, Bound.PURE])
def test_the_looser_bounds_buy_more_weight_than_any_game_needs(bound):
    mixture = tempting(HALF, epsilon=0.5, bound=bound)
    least = tempting(HALF, epsilon=0.5, bound=Bound.RANGE)
    assert mixture.weight > least.weight
    assert is_truthful(Weighed(mixture, least.weight))


def test_the_weight_is_the_one_of_the_formula():
    mixture = tempting(HALF, epsilon=0.25, bound=Bound.SEED)
    assert STEP <= mixture.weight - HALF / (HALF + HALF / 2) <= 2 * STEP
    for game in PUNISHING:
        for bound in (Bound.SEED, Bound.PURE, Bound.RANGE):
            one = TruthfulMixture(selection=PrivateSelection(game=game, epsilon=0.5), bound=bound)
            needed = one.selection.gain_bound(bound=bound, coalition=1)
            assert Exact.of(one.weight * one.gap.gamma / len(one.game.outcomes)) >= needed.times(1 - one.weight)
            short = one.weight - 3 * STEP
            assert Exact.of(short * one.gap.expected) < needed.times(1 - short)


def test_a_gap_of_one_player_only_or_of_the_worst_lie_makes_a_weight_that_lies_beat():
    strict, lenient = Fraction(1), Fraction(1, 10)
    mixture = tempting(strict, lenient, epsilon=0.5, bound=Bound.RANGE)
    assert mixture.gap == Gap(gamma=lenient, outcomes=2)
    assert is_truthful(mixture)
    bound = mixture.selection.gain_bound(bound=Bound.RANGE, coalition=1)
    wrong = Weighed(mixture, weight_for(bound, gap=Gap(gamma=strict, outcomes=2)))
    assert not is_truthful(wrong)
    assert largest_gain(wrong).player == 1
    # gamma taken for what a lie costs in expectation, as if the worst outcome were certain
    assert not is_truthful(Weighed(mixture, weight_for(bound, gap=Gap(gamma=lenient, outcomes=1))))


def test_a_game_without_a_gap_is_refused_and_its_lie_costs_nothing():
    home = Player(types=(0, 1, 2), utility=lambda mine, place, _: 1 - Fraction(abs(mine - place), 2))
    selection = PrivateSelection(game=Game(players=(home, home), outcomes=(0, 1, 2)), epsilon=0.5)
    with pytest.raises(
        UsageError, match=r"some lie costs its player nothing at any outcome.*use the private selection alone"
    ):
        TruthfulMixture(selection=selection, bound=Bound.SEED)
    assert all(gain.amount == ZERO for gain in gains(Commitment(game=selection.game)))


def test_a_gap_too_small_to_matter_is_refused():
    with pytest.raises(UsageError, match="too small for the precision"):
        tempting(Fraction(1, 2**59), epsilon=1.0, bound=Bound.SEED)
    just_enough = tempting(Fraction(1, 2**58), epsilon=1.0, bound=Bound.SEED)
    assert just_enough.weight < 1
    assert is_truthful(just_enough)


def test_under_commitment_every_lie_costs_at_least_the_gap_over_the_outcomes():
    for game in PUNISHING:
        cost = Exact.of(-gap(game).expected)
        assert all(gain.at_most(cost) for gain in gains(Commitment(game=game)))
    tight = temptation(HALF)
    assert all(gain.amount == Exact.of(-HALF / 2) for gain in gains(Commitment(game=tight)))


def test_committed_players_must_do_what_is_best_for_the_type_they_reported_and_printing_does_not_tell():
    game, reports = facility_game(players=3, places=5), (0, 3, 4)
    for _ in range(50):
        decision = Commitment(game=game).draw(reports)
        left, right = decision.outcome
        for player, home in enumerate(reports):
            nearer = "first" if abs(home - left) <= abs(home - right) else "second"
            assert decision.imposed[player] == nearer
        assert "first" not in repr(decision)
        assert "second" not in repr(decision)
    free = PrivateSelection(game=game, epsilon=1.0).draw(reports)
    assert (free.committed, free.imposed) == (False, None)


def test_what_the_others_see_is_private_and_a_published_reaction_is_not():
    """The commitment's outcome and another's reaction do not move with a report; one's own reaction does."""
    game = facility_game(players=2, places=3)
    payoffs = game.payoffs[0]
    assert payoffs.best[0] != payoffs.best[2]  # whoever sees player 0's reactions tells its homes apart, with certainty

    def seen_by_the_other(report: int, place: int, monkey: pytest.MonkeyPatch) -> tuple[object, object]:
        monkey.setattr(entropy, "random_words", lambda count: np.full(count, place, dtype=np.uint64))
        decision = Commitment(game=game).draw((report, 1))
        return decision.outcome, decision.imposed[1]

    with pytest.MonkeyPatch.context() as monkey:
        for place in range(len(game.outcomes)):
            assert len({seen_by_the_other(report, place, monkey) for report in range(3)}) == 1


def test_a_coin_of_the_weight_decides_between_the_two_parts(monkeypatch):
    game = facility_game(players=3, places=4)
    mixture = TruthfulMixture(selection=PrivateSelection(game=game, epsilon=2.0), bound=Bound.RANGE)
    for edge, committed in ((-1, True), (0, False)):
        number = coins.threshold(mixture.weight) + edge
        words = fixed_stream([number >> 64, number % (1 << 64), *range(100)])
        monkeypatch.setattr(entropy, "random_words", words)
        assert mixture.draw((0, 1, 3)).committed is committed


def test_a_wrong_report_is_refused_before_any_coin_is_thrown(monkeypatch):
    mixture = TruthfulMixture(
        selection=PrivateSelection(game=facility_game(players=2, places=3), epsilon=1.0), bound="ratio"
    )

    def no_draw(count: int) -> None:
        pytest.fail("entropy was drawn")

    monkeypatch.setattr(entropy, "random_words", no_draw)
    for reports in ((0,), (0, 3), (0, "x"), (0, [])):
        for rule in (mixture, mixture.selection, mixture.commitment):
            with pytest.raises(UsageError, match="report"):
                rule.draw(reports)


def test_a_ledger_charges_for_the_selection_whichever_part_is_drawn():
    mixture = tempting(HALF, epsilon=0.5, bound=Bound.PURE)
    assert mixture.mechanism is mixture.selection.mechanism
    assert mixture.mechanism.price(Currency.PURE) == 500_000_000_000
