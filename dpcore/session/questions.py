"""What is asked: one question, or the questions of a dashboard with one wanted accuracy."""

from dataclasses import dataclass
from typing import Any

from dpcore.errors import UsageError
from dpcore.session.accuracy import Within

MOST_QUERIES = 200
"""The most questions of one dashboard. Each purchase is a task in Prefect."""


@dataclass(frozen=True)
class Question:
    """A question in SQL, and how accurate its answer must be.

    Attributes:
        query: The statement, as for `Session.ask`.
        within: The wanted half width of every interval, such as 50 rows or "2%".
        level: The level of the intervals.
    """

    query: str
    within: float | str
    level: float

    @property
    def terms(self) -> dict[str, Any]:
        """The question as arguments of a session."""
        return dict(vars(self))


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
        Within.of(self.within, level=self.level)  # raises if it is not an accuracy, also if wider answers are accepted

    def __getitem__(self, number: int) -> Question:
        """Return a question by its number, from 1."""
        return Question(self.queries[number - 1], self.within, self.level)
