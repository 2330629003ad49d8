"""The expected welfare is exact and keeps what the theorem promises."""

from fractions import Fraction

import pytest

from dpcore.errors import UsageError
from dpcore.textbook.truthful import (
    Bound,
    Exact,
    Game,
    Player,
    PrivateSelection,
    TruthfulMixture,
    facility_game,
    welfare,
)
from tests.dpcore.textbook.truthful.games import punishing_games, shouting, temptation

PUNISHING = punishing_games(4)


@pytest.mark.parametrize("epsilon", [0.1, 20.0])
def test_every_mechanism_keeps_its_promise_for_all_types(epsilon):
    for game in PUNISHING:
        selection = PrivateSelection(game=game, epsilon=epsilon)
        for rule in (selection, TruthfulMixture(selection=selection, bound=Bound.RANGE)):
            for profile in rule.game.profiles():
                found = welfare(rule, rule.game.reports(profile))
                assert Exact.of(found.guaranteed) <= found.expected <= Exact.of(found.best)
                assert found.random <= found.best


def test_the_welfare_is_the_sum_of_what_the_players_expect():
    for game in PUNISHING:
        mixture = TruthfulMixture(selection=PrivateSelection(game=game, epsilon=0.5), bound=Bound.PURE)
        profile = (1,) * len(mixture.game.players)
        total = Exact.of(0)
        for expected in mixture.utilities(profile):
            total += expected[1]
        assert welfare(mixture, mixture.game.reports(profile)).expected == total


def test_a_third_of_the_loss_would_be_too_much_of_a_promise():
    """Of 50 outcomes one is good: at e^(epsilon / 2) = 49 it is as likely as all the others together."""
    only_mine = Player(types=tuple(range(50)), utility=lambda mine, outcome, _: int(mine == outcome))
    selection = PrivateSelection(game=Game(players=(only_mine,), outcomes=tuple(range(50))), epsilon=7.7836)
    found = welfare(selection, [0])
    assert float(found.expected) == pytest.approx(0.5, abs=1e-4)
    assert found.expected >= Exact.of(found.best - selection.loss)
    assert found.expected < Exact.of(found.best - selection.loss / 3)


def test_a_large_crowd_loses_little():
    game = facility_game(players=100_000, places=7)
    mixture = TruthfulMixture(selection=PrivateSelection(game=game, epsilon=0.004), bound=Bound.RANGE)
    found = welfare(mixture, [0, 1, 1, 1, 2, 3, 5, 5, 5, 6] * 10_000)
    assert float(found.expected) > 0.97 * float(found.best)
    assert Exact.of(found.guaranteed) <= found.expected
    assert found.guaranteed > Fraction(9, 10) * found.best


def test_a_selection_by_another_quality_promises_no_welfare():
    selection = PrivateSelection(game=temptation(Fraction(1, 2)), epsilon=1.0, quality=shouting)
    with pytest.raises(UsageError, match="guarantees no welfare"):
        welfare(selection, ["meek"])
