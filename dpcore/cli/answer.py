"""What a verb hands back: data for programs, a text for people, and an exit code."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """The result of one verb."""

    data: dict[str, Any]
    text: str
    exit_code: int = 0


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Lay rows out in columns; the first row is the heading.

    >>> print(table([("run", "spent"), ("a1", "0.5")]))
    run  spent
    a1   0.5
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
