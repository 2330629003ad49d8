"""What is asked: one question, or the questions of a dashboard, and how accurate their answers must be."""

import math
import re
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from dpcore.answers.intervals import checked_level
from dpcore.errors import UsageError
from dpcore.models.model import Weights

MOST_QUERIES = 200
"""The most questions of one dashboard. Each purchase is a task in Prefect."""

LOWEST_LEVEL = 0.5  # below, an interval says so little that a purchase for it would teach nothing
SLACK = 1e-9  # rounding errors of a half width, as a share of it

_ACCURACY = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(%|points?)?\s*")


@dataclass(frozen=True)
class Within:
    """The wanted half width of every interval, and its level.

    Attributes:
        size: In units of the number itself: rows of a count, the column's units of a mean; or a share of the number, if `relative`.
        relative: Whether `size` is a share.
        level: The probability that an interval contains the true number.
    """

    size: float
    relative: bool
    level: float

    @classmethod
    def of(cls, within: float | str, *, level: float = 0.95) -> "Within":
        """Read a wanted accuracy: a number such as 50, or a text such as "50", "2%", or "2 points" for a share of rows, which are 0.02.

        >>> Within.of("2%"), Within.of(50).size, Within.of("2 points").size
        (Within(size=0.02, relative=True, level=0.95), 50.0, 0.02)
        """
        if checked_level(level) < LOWEST_LEVEL:
            raise UsageError(f"the level of a bought answer is at least {LOWEST_LEVEL}; use 0.95 for 95 % intervals")
        size, unit = within, ""
        if isinstance(within, str) and (written := _ACCURACY.fullmatch(within)):
            size, unit = float(written[1]), written[2] or ""
        if isinstance(size, bool | str) or not (isinstance(size, int | float) and math.isfinite(size) and size > 0):
            raise UsageError(
                'say how accurate, with a number above 0: within 50 for an interval of 50 to either side, "2%" of the number, or "2 points" of a '
                "share"
            )
        return cls(float(size) / (100 if unit else 1), unit == "%", level)

    @property
    def normal(self) -> float:
        """How many standard errors a normal interval of this level extends to either side."""
        return NormalDist().inv_cdf((1 + self.level) / 2)

    @property
    def words(self) -> str:
        """The accuracy as text."""
        return f"{100 * self.size:g} %" if self.relative else f"{self.size:g}"

    def covers(self, asked: "Within") -> bool:
        """Return whether an answer that is as accurate as this is accurate enough for a question."""
        return self.relative == asked.relative and self.size <= asked.size and self.level >= asked.level

    def half_widths(self, values: Weights) -> Weights:
        """Return the wanted half width of each number. A share is of what is expected now, before anything is bought."""
        return np.abs(values) * self.size if self.relative else np.full(values.shape, self.size)

    def satisfied(self, halves: Weights, values: Weights) -> bool:
        """Return whether all half widths are as wanted. A number that does not exist, such as a mean of no rows, has none."""
        most = self.half_widths(values) * (1 + SLACK)
        return bool(np.all((halves <= most) | np.isnan(values)))


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
