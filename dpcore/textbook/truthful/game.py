"""Finite games: the players, their types, the outcomes, the utility of each outcome to each player, and decisions."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from dpcore.errors import UsageError
from dpcore.scalars import is_whole

FIRST, SECOND = "first", "second"
"""The two facilities of `facility_game`."""

LARGEST_TABLE = 2_000_000
"""The largest table of utilities for one player: types x outcomes x (types or reactions, whichever is more)."""

LARGEST_ENUMERATION = 100_000
"""The largest number of combinations of reports that is enumerated."""

Profile = tuple[int, ...]
"""One report for each player, as an index into the player's types."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Player:
    """The possible types of a player, its possible reactions to an outcome, and its utility.

    The same `Player` may appear several times in a game. Its utilities are then tabulated once.

    Attributes:
        types: The types that the player may have, and may report.
        reactions: The reactions open to the player once the outcome is known. The single reaction None means that there is no choice.
        utility: Maps type, outcome and reaction to a `Fraction` or integer from 0 to 1.
    """

    types: tuple[Hashable, ...]
    utility: Callable[[Any, Any, Any], Fraction | int]
    reactions: tuple[Hashable, ...] = (None,)

    def __post_init__(self) -> None:
        """Reject types or reactions that are empty or not distinct."""
        _check_distinct(self.types, what="types that a player may report")
        _check_distinct(self.reactions, what="reactions of a player")


@dataclass(frozen=True, kw_only=True)
class Payoffs:
    """A player's tabulated utilities. Types, outcomes and reactions are indices from 0.

    Attributes:
        best: For each type and outcome, the best reaction. Ties go to the first.
        values: For each type and outcome, the utility with the player's own best reaction.
        bound: For each type, reported type and outcome, the utility with the best reaction of the reported type.
    """

    best: tuple[tuple[int, ...], ...]
    values: tuple[tuple[Fraction, ...], ...]
    bound: tuple[tuple[tuple[Fraction, ...], ...], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Game:
    """Players with private types, and the outcomes to choose from.

    The utility of an outcome to a player depends only on the player's own type and reaction ("private values").

    >>> one = Player(types=("tea", "coffee"), utility=lambda mine, served, _: int(mine == served))
    >>> Game(players=(one, one), outcomes=("tea", "coffee")).profile(["coffee", "tea"])
    (1, 0)
    """

    players: tuple[Player, ...]
    outcomes: tuple[Hashable, ...]
    payoffs: tuple[Payoffs, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Tabulate every utility, and reject an invalid game before anybody reports anything."""
        if not self.players:
            raise UsageError("a game needs at least one player")
        _check_distinct(self.outcomes, what="outcomes of a game")
        kinds = {player: _tabulated(player, self.outcomes) for player in dict.fromkeys(self.players)}
        object.__setattr__(self, "payoffs", tuple(kinds[player] for player in self.players))

    @property
    def kinds(self) -> tuple[Payoffs, ...]:
        """The payoffs of each distinct player."""
        return tuple({id(payoffs): payoffs for payoffs in self.payoffs}.values())

    def profile(self, reports: Sequence[Hashable]) -> Profile:
        """Return the index of each reported type. An invalid report raises an error that does not name the player or the report."""
        if not hasattr(reports, "__len__") or len(reports) != len(self.players):
            raise UsageError(f"there are {len(self.players)} players; give one report for each, in their order")
        places = {
            player: {kind: place for place, kind in enumerate(player.types)} for player in dict.fromkeys(self.players)
        }
        try:
            return tuple(places[player][report] for player, report in zip(self.players, reports, strict=True))
        except (KeyError, TypeError):
            raise UsageError(
                "a report is not among the types declared for its player; let every player choose from the game's types"
            ) from None

    def reports(self, profile: Profile) -> tuple[Hashable, ...]:
        """Return the reported types of a profile."""
        return tuple(player.types[place] for player, place in zip(self.players, profile, strict=True))

    def tally(self, profile: Profile) -> list[tuple[Payoffs, int, int]]:
        """Return how many players of each kind reported each type, as payoffs, index of the type, and count."""
        kinds = {id(payoffs): payoffs for payoffs in self.payoffs}
        counts = Counter(zip(map(id, self.payoffs), profile, strict=True))
        return [(kinds[kind], place, count) for (kind, place), count in counts.items()]

    def profiles(self) -> Iterator[Profile]:
        """Return an iterator over every combination of reports. Raise if there are too many."""
        count = math.prod(len(player.types) for player in self.players)
        if count > LARGEST_ENUMERATION:
            raise UsageError(
                f"this game has more than {LARGEST_ENUMERATION:,} combinations of reports, too many to enumerate; "
                "use a theorem's bound instead, or fewer players or types"
            )
        return itertools.product(*(range(len(player.types)) for player in self.players))


@dataclass(frozen=True, kw_only=True)
class Decision:
    """An outcome for everybody and, if the players are committed, a reaction for each of them.

    The outcome may be published. A player's imposed reaction follows from its own report, so only that player and whoever
    enforces it may see it. It is therefore not shown when a decision is printed.

    Attributes:
        outcome: The chosen outcome.
        imposed: The reaction of each player if they are committed, else None.
    """

    outcome: Hashable
    imposed: tuple[Hashable, ...] | None = field(repr=False)

    @property
    def committed(self) -> bool:
        """Whether the players must react as if their reports were true."""
        return self.imposed is not None


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
    if not is_whole(players) or not is_whole(places) or players < 1 or places < 2:
        raise UsageError("facility location needs at least 1 player and 2 places, both as whole numbers")
    resident = Player(
        types=tuple(range(places)),
        reactions=(FIRST, SECOND),
        utility=lambda home, pair, used: 1 - Fraction(abs(home - pair[used == SECOND]), places - 1),
    )
    pairs = tuple((left, right) for left in range(places) for right in range(left + 1, places))
    return Game(players=(resident,) * players, outcomes=pairs)


def _check_distinct(values: tuple[Hashable, ...], *, what: str) -> None:
    try:
        distinct = len(set(values))
    except TypeError:
        raise UsageError(f"the {what} must be a tuple of strings, numbers or other hashable values") from None
    if not isinstance(values, tuple) or not values:
        raise UsageError(f"the {what} must be a tuple with at least one entry")
    if distinct != len(values):
        raise UsageError(f"the {what} must differ from each other; name each once")


def _tabulated(player: Player, outcomes: tuple[Hashable, ...]) -> Payoffs:
    types = range(len(player.types))
    if len(types) * len(outcomes) * max(len(types), len(player.reactions)) > LARGEST_TABLE:
        raise UsageError(
            f"this game has more than {LARGEST_TABLE:,} utilities for one player, too many to tabulate; "
            "declare fewer types, outcomes or reactions"
        )
    table = [
        [[_utility(player, kind, outcome, reaction) for reaction in player.reactions] for outcome in outcomes]
        for kind in player.types
    ]
    best = tuple(tuple(row.index(max(row)) for row in rows) for rows in table)
    return Payoffs(
        best=best,
        values=tuple(tuple(max(row) for row in rows) for rows in table),
        bound=tuple(
            tuple(tuple(row[reaction] for row, reaction in zip(table[t], best[lie], strict=True)) for lie in types)
            for t in types
        ),
    )


def _utility(player: Player, kind: Hashable, outcome: Hashable, reaction: Hashable) -> Fraction:
    value = player.utility(kind, outcome, reaction)
    if isinstance(value, bool) or not isinstance(value, int | Fraction):
        raise UsageError(
            "a utility must be a Fraction or an integer; a float such as 0.1 is not exactly the number it shows"
        )
    if not 0 <= value <= 1:
        raise UsageError(
            "a utility lies outside 0 to 1; make all utilities nonnegative, and divide them by the largest one"
        )
    return Fraction(value)
