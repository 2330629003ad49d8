"""What a mechanism decides, and who may see which part of it."""

from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Decision:
    """An outcome for everybody and, if the players are committed, a reaction for each of them.

    The outcome may be published. A player's imposed reaction follows from its own report: it goes to that player, and to
    whoever enforces it, and to nobody else. It is therefore not shown when a decision is printed.

    Attributes:
        outcome: What was chosen.
        committed: Whether the players must react as if what they reported were true.
    """

    outcome: Hashable
    committed: bool
    imposed: tuple[Hashable, ...] | None = field(repr=False)

    def reaction_of(self, player: int) -> Hashable | None:
        """Return what one player must do, for that player's eyes; None if it is free to react as it likes."""
        return None if self.imposed is None else self.imposed[player]
