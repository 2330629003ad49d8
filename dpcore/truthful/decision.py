"""The decision of a mechanism, and who may see which part of it."""

from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Decision:
    """An outcome for everybody and, if the players are committed, a reaction for each of them.

    The outcome may be published. A player's imposed reaction follows from its own report, so only that player and whoever
    enforces it may see it. It is therefore not shown when a decision is printed.

    Attributes:
        outcome: The chosen outcome.
        committed: Whether the players must react as if their reports were true.
        imposed: The reaction of each player if they are committed, else None.
    """

    outcome: Hashable
    committed: bool
    imposed: tuple[Hashable, ...] | None = field(repr=False)

    def reaction_of(self, player: int) -> Hashable | None:
        """Return the reaction imposed on one player, or None if the player may choose. For that player's eyes only."""
        return None if self.imposed is None else self.imposed[player]
