"""Finite games: who plays, what each may be and report, what may come out, and what that is worth to whom."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from dpcore.errors import UsageError

LARGEST_TABLE = 2_000_000
"""More utilities than this are not tabulated: types times types or reactions, times outcomes."""

LARGEST_ENUMERATION = 100_000
"""More combinations of reports than this are not gone through."""

Profile = tuple[int, ...]
"""One report for each player, as its place among the player's types."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Player:
    """What one player may be, how it may react to an outcome, and what that is worth to it.

    Several places of a game may be taken by the same `Player`, and are then worked out once.

    Attributes:
        types: What the player may truly be, and what it may report.
        reactions: What it may do once the outcome is known. The single reaction None means that there is nothing to do.
        utility: From type, outcome and reaction to a `Fraction` (or whole number) from 0 to 1.
    """

    types: tuple[Hashable, ...]
    utility: Callable[[Any, Any, Any], Fraction | int]
    reactions: tuple[Hashable, ...] = (None,)

    def __post_init__(self) -> None:
        """Refuse a player who can be or do nothing."""
        _check_distinct(self.types, what="types that a player may report")
        _check_distinct(self.reactions, what="reactions of a player")


@dataclass(frozen=True, kw_only=True)
class Payoffs:
    """A player's utilities, tabulated: types, outcomes and reactions are counted from 0.

    Attributes:
        best: For each type and outcome, the best reaction. Of equally good ones it is always the first.
        values: For each type and outcome, the utility with the player's own best reaction.
        bound: For each type, reported type and outcome, the utility when the reaction is the best of the reported type.
    """

    best: tuple[tuple[int, ...], ...]
    values: tuple[tuple[Fraction, ...], ...]
    bound: tuple[tuple[tuple[Fraction, ...], ...], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Game:
    """Players with private types, and outcomes of which one is to be chosen.

    What an outcome is worth to a player depends on its own type and reaction only ("private values").

    >>> one = Player(types=("tea", "coffee"), utility=lambda mine, served, _: int(mine == served))
    >>> Game(players=(one, one), outcomes=("tea", "coffee")).profile(["coffee", "tea"])
    (1, 0)
    """

    players: tuple[Player, ...]
    outcomes: tuple[Hashable, ...]
    payoffs: tuple[Payoffs, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Tabulate every utility, and refuse what is no game before anybody reports anything."""
        if not self.players:
            raise UsageError("a game needs at least one player")
        _check_distinct(self.outcomes, what="outcomes of a game")
        kinds = {player: _tabulated(player, self.outcomes) for player in dict.fromkeys(self.players)}
        object.__setattr__(self, "payoffs", tuple(kinds[player] for player in self.players))

    @property
    def kinds(self) -> tuple[Payoffs, ...]:
        """The payoffs of each different player, once."""
        return tuple({id(payoffs): payoffs for payoffs in self.payoffs}.values())

    def profile(self, reports: Sequence[Hashable]) -> Profile:
        """Return the place of each reported type; a wrong report is refused without saying whose or which."""
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
        """Return the reported types from their places."""
        return tuple(player.types[place] for player, place in zip(self.players, profile, strict=True))

    def tally(self, profile: Profile) -> list[tuple[Payoffs, int, int]]:
        """Return how many players of each kind reported each type, as payoffs, place of the type, and count."""
        kinds = {id(payoffs): payoffs for payoffs in self.payoffs}
        counts = Counter(zip(map(id, self.payoffs), profile, strict=True))
        return [(kinds[kind], place, count) for (kind, place), count in counts.items()]

    def profiles(self) -> Iterator[Profile]:
        """Go through every combination of reports, or refuse if there are too many."""
        count = math.prod(len(player.types) for player in self.players)
        if count > LARGEST_ENUMERATION:
            raise UsageError(
                f"this game has more than {LARGEST_ENUMERATION:,} combinations of reports, too many to go through; "
                "use a theorem's bound instead of an enumeration, or fewer players or types"
            )
        return itertools.product(*(range(len(player.types)) for player in self.players))


def _check_distinct(values: tuple[Hashable, ...], *, what: str) -> None:
    try:
        distinct = len(set(values))
    except TypeError:
        raise UsageError(f"the {what} must be a tuple of texts, numbers or other fixed values") from None
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
            "a utility must be a Fraction or a whole number: a float such as 0.1 is not the number it shows"
        )
    if not 0 <= value <= 1:
        raise UsageError(
            "a utility lies outside 0 to 1; divide all utilities by the largest one, and let none be negative"
        )
    return Fraction(value)
