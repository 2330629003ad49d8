"""The result of a check: how bad it is, what was found, and the one line that fixes it."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad a finding is, the worst first."""

    LEAK = "leak"
    WARNING = "warning"
    OK = "ok"


@dataclass(frozen=True)
class Finding:
    """The result of one check. Neither text contains a private value or a secret.

    Attributes:
        level: How bad it is.
        found: What was found, in a few words.
        mend: The line that fixes it, to copy into a shell. None if all is well.
    """

    level: Level
    found: str
    mend: str | None


def warning(found: str, mend: str) -> Finding:
    """Return a finding that should be fixed, although it leaks nothing by itself."""
    return Finding(Level.WARNING, found, mend)


def leak(found: str, mend: str) -> Finding:
    """Return a finding that would leak something."""
    return Finding(Level.LEAK, found, mend)
