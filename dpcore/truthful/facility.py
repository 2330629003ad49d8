"""Facility location, the standard example: two facilities on a line, and players who use one of them."""

from fractions import Fraction

from dpcore.errors import UsageError
from dpcore.truthful.game import Game, Player

FIRST, SECOND = "first", "second"


def facility_game(*, players: int, places: int) -> Game:
    """Return the game in which players on a line want one of two facilities close by.

    A player's type is the place where it lives: 0 to places - 1. An outcome is a pair of places, one for each facility. The
    reaction is which of the two to use, and the utility is 1 minus the distance to that one, as a share of the line. Players
    who may choose use the nearer facility. A player committed to a reported place may have to use the farther one. The two
    facilities may stand exactly at the true and at the reported home, so every lie can cost something. The gap is
    1 / (places - 1).

    With a single facility there would be no reaction to commit a liar to, and the gap would be 0.

    >>> game = facility_game(players=3, places=5)
    >>> game.outcomes[:4], len(game.outcomes)
    (((0, 1), (0, 2), (0, 3), (0, 4)), 10)
    """
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in (players, places))
    if not whole or players < 1 or places < 2:
        raise UsageError("facility location needs at least 1 player and 2 places, both as whole numbers")
    resident = Player(
        types=tuple(range(places)),
        reactions=(FIRST, SECOND),
        utility=lambda home, pair, used: 1 - Fraction(abs(home - pair[used == SECOND]), places - 1),
    )
    pairs = tuple((left, right) for left in range(places) for right in range(left + 1, places))
    return Game(players=(resident,) * players, outcomes=pairs)
