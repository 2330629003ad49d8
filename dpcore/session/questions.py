"""What a dashboard asks: a list of questions with one wanted accuracy."""

from dataclasses import dataclass

from dpcore.errors import UsageError

MOST_QUERIES = 200
"""The most questions of one dashboard. Each purchase is a task in Prefect."""


@dataclass(frozen=True)
class Questions:
    """What a dashboard asks.

    Attributes:
        queries: The questions in SQL, as for `Session.ask`.
        within: The wanted half width of every interval, such as "50" rows or "2%".
        level: The level of the intervals.
        accept_wider: Whether an answer that cannot be bought is given as it is known, with its wider interval. Otherwise it is refused.
    """

    queries: tuple[str, ...]
    within: str
    level: float
    accept_wider: bool

    def __post_init__(self) -> None:
        count = len(self.queries)
        if not 1 <= count <= MOST_QUERIES:
            raise UsageError(f"a dashboard has 1 to {MOST_QUERIES} queries, not {count}; leave some out, or add one")
