"""What a check hands back: how bad it is, what was found, and the one line that mends it."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad a finding is, the worst first."""

    LEAK = "leak"
    WARNING = "warning"
    OK = "ok"

    @property
    def rank(self) -> int:
        """Its place among the levels, the worst at 0."""
        return list(Level).index(self)


@dataclass(frozen=True)
class Finding:
    """What one check found. Neither text holds a private value or a secret.

    Attributes:
        level: How bad it is.
        found: What there is, in a few words.
        mend: A line to copy into a shell, unless all is well.
    """

    level: Level
    found: str
    mend: str | None


def ok(found: str) -> Finding:
    """Say that all is well."""
    return Finding(Level.OK, found, None)


def warning(found: str, mend: str) -> Finding:
    """Say what is better mended, though by itself it gives nothing away."""
    return Finding(Level.WARNING, found, mend)


def leak(found: str, mend: str) -> Finding:
    """Say what would give something away."""
    return Finding(Level.LEAK, found, mend)
