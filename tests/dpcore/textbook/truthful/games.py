"""Games for the tests of mechanism design: random ones, and one in which every theorem is reached exactly."""

import itertools
import random
from dataclasses import dataclass
from fractions import Fraction

from dpcore.textbook.truthful import Exact, Game, Player, gap
from dpcore.textbook.truthful.mixture import mixed

ZERO = Exact.of(0)


def random_player(generator: random.Random, *, types: int, outcomes: int, reactions: int) -> Player:
    table = {
        (kind, outcome, reaction): Fraction(generator.randint(0, 6), 6)
        for kind in range(types)
        for outcome in range(outcomes)
        for reaction in range(reactions)
    }
    return Player(types=tuple(range(types)), reactions=tuple(range(reactions)), utility=lambda *key: table[key])


def random_game(seed: int) -> Game:
    """Two or three players of two or three types, two to four outcomes, and utilities in sixths."""
    generator = random.Random(seed)  # noqa: S311  the same games each time
    outcomes = generator.randint(2, 4)
    players = tuple(
        random_player(generator, types=generator.randint(2, 3), outcomes=outcomes, reactions=generator.randint(1, 3))
        for _ in range(generator.randint(2, 3))
    )
    return Game(players=players, outcomes=tuple(range(outcomes)))


def punishing_games(count: int) -> list[Game]:
    """Random games of two players with so many reactions that most lies cost something; only those with a gap."""
    found: list[Game] = []
    for seed in itertools.count():
        if len(found) == count:
            return found
        generator = random.Random(seed)  # noqa: S311  the same games each time
        outcomes = generator.randint(2, 4)
        players = tuple(
            random_player(generator, types=generator.randint(2, 3), outcomes=outcomes, reactions=4) for _ in range(2)
        )
        game = Game(players=players, outcomes=tuple(range(outcomes)))
        found += [game] if gap(game).gamma else []
    raise AssertionError("unreachable")


def tempted(*, gamma: Fraction) -> Player:
    """A player who always wants the outcome "up". How it has to react there depends on its type, and is worth gamma."""

    def utility(kind: str, outcome: str, reaction: str) -> Fraction:
        if outcome == "down":
            return Fraction(0)
        return Fraction(1) if reaction == kind else 1 - gamma

    return Player(types=("meek", "loud"), reactions=("meek", "loud"), utility=utility)


def temptation(*gammas: Fraction) -> Game:
    """A game of such players; with `shouting` as quality, being loud gains all that any lie can gain."""
    return Game(players=tuple(tempted(gamma=gamma) for gamma in gammas), outcomes=("up", "down"))


def shouting(reports: tuple[str, ...]) -> tuple[int, int]:
    """Each report moves "up" by 1 its own way, and "down" by 1 the other: changing it moves both scores by 2, apart."""
    ahead = reports.count("loud") - reports.count("meek")
    return ahead, -ahead


@dataclass(frozen=True)
class Best:
    """Always the outcome of the highest score, the first of equals: no privacy at all."""

    selection: object

    @property
    def game(self):
        return self.selection.game

    def utilities(self, profile):
        place = int(self.selection.scoring.scores(profile).argmax())
        rows = {id(kind): tuple(Exact.of(row[place]) for row in kind.values) for kind in self.game.kinds}
        return tuple(rows[id(payoffs)] for payoffs in self.game.payoffs)


@dataclass(frozen=True)
class Weighed:
    """A mixture with any weight, be it enough or not."""

    mixture: object
    weight: Fraction

    @property
    def game(self):
        return self.mixture.game

    def utilities(self, profile):
        parts = self.mixture.commitment.utilities(profile), self.mixture.selection.utilities(profile)
        return mixed(*parts, weight=self.weight)
