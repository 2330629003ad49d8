"""Games are checked and tabulated before anybody reports, and their gap is the exact least cost of a lie."""

import itertools
from fractions import Fraction

import pytest

from dpcore.errors import UsageError
from dpcore.textbook.truthful import Game, Player, facility_game, gap
from tests.dpcore.textbook.truthful.games import random_game, temptation


def flat(*_: object) -> int:
    return 1


def gap_by_definition(game: Game, *, over_outcomes=max, over_lies=min, players=None) -> Fraction:
    """The definition, straight from the utilities; with other choices it is a wrong one, as a control."""

    def reaction(player: Player, kind: object, outcome: object) -> object:
        return max(player.reactions, key=lambda one: player.utility(kind, outcome, one))

    return over_lies(
        over_outcomes(
            [
                Fraction(player.utility(truth, outcome, reaction(player, truth, outcome)))
                - player.utility(truth, outcome, reaction(player, lie, outcome))
                for outcome in game.outcomes
            ]
        )
        for player in (players or game.players)
        for truth, lie in itertools.permutations(player.types, 2)
    )


def mean(values: list[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def test_the_gap_is_the_one_of_the_definition_and_not_that_of_a_mean_or_of_one_player_or_of_the_worst_lie():
    games = [random_game(seed) for seed in range(40)]
    found = [gap(game).gamma for game in games]
    assert found == [gap_by_definition(game) for game in games]
    assert 0 in found
    assert len(set(found)) >= 4
    assert found != [gap_by_definition(game, over_outcomes=mean) for game in games]
    assert found != [gap_by_definition(game, over_lies=max) for game in games]
    assert found != [gap_by_definition(game, players=game.players[:1]) for game in games]


def test_known_gaps():
    for places in range(2, 9):
        found = gap(facility_game(players=2, places=places))
        assert found.gamma == Fraction(1, places - 1)
        assert found.expected == found.gamma / (places * (places - 1) // 2)
    assert gap(temptation(Fraction(1, 2), Fraction(1, 7))).gamma == Fraction(1, 7)
    nobody_can_lie = Game(players=(Player(types=("only",), utility=flat),), outcomes=("a", "b"))
    assert gap(nobody_can_lie).gamma == 1


def test_the_best_reaction_is_the_first_of_equals():
    player = Player(types=(0, 1), reactions=("b", "a", "c"), utility=lambda kind, outcome, one: int(one != "b" or kind))
    game = Game(players=(player,), outcomes=("x",))
    assert game.payoffs[0].best == ((1,), (0,))
    assert game.payoffs[0].bound[0][1] == (0,)


def test_players_of_one_kind_are_tabulated_once():
    game = facility_game(players=1000, places=5)
    assert len(game.kinds) == 1
    assert sorted(count for _, _, count in game.tally((0, 1, 1, 4) * 250)) == [250, 250, 500]


@pytest.mark.parametrize(
    ("utility", "message"),
    [
        (lambda *_: Fraction(7, 6), "outside 0 to 1"),
        (lambda *_: -1, "outside 0 to 1"),
        (lambda *_: 0.5, "Fraction or an integer"),
        (lambda *_: True, "Fraction or an integer"),
        (lambda *_: None, "Fraction or an integer"),
    ],
)
def test_utilities_that_mean_nothing_are_refused(utility, message):
    player = Player(types=(0, 1), utility=utility)
    with pytest.raises(UsageError, match=message):
        Game(players=(player,), outcomes=("a",))


@pytest.mark.parametrize("values", [(), (1, 1), [1, 2], ([],)])
def test_sets_that_are_empty_or_ambiguous_are_refused(values):
    with pytest.raises(UsageError, match="types"):
        Player(types=values, utility=flat)
    with pytest.raises(UsageError, match="reactions"):
        Player(types=(1,), reactions=values, utility=flat)
    with pytest.raises(UsageError, match="outcomes"):
        Game(players=(Player(types=(1,), utility=flat),), outcomes=values)
    with pytest.raises(UsageError, match="at least one player"):
        Game(players=(), outcomes=(1,))


def test_what_is_too_large_to_enumerate_is_refused_with_a_way_out():
    with pytest.raises(UsageError, match="declare fewer types"):
        Game(players=(Player(types=tuple(range(2000)), utility=flat),), outcomes=tuple(range(1000)))
    with pytest.raises(UsageError, match="use a theorem's bound"):
        facility_game(players=9, places=5).profiles()


@pytest.mark.parametrize("reports", [["meek"], ["meek"] * 3, ["meek", "secret"], ["meek", []], []])
def test_a_wrong_report_is_refused_without_being_repeated(reports):
    with pytest.raises(UsageError, match="report") as refusal:
        temptation(Fraction(1, 2), Fraction(1, 2)).profile(reports)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(("players", "places"), [(0, 5), (1, 1), (True, 5), (2.0, 5)])
def test_a_line_without_players_or_places_is_refused(players, places):
    with pytest.raises(UsageError, match="at least 1 player and 2 places"):
        facility_game(players=players, places=places)
