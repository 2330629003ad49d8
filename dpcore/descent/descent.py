"""The interface of a descent: candidates to count, and a step to the next level by their noisy counts."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import ClassVar, TypeVar

from dpcore.marginals.measurements import Counts
from dpcore.universe import Attribute

FALSE_FINDS = 0.1  # the most candidates without any row that a level keeps, on average
FEW_STEPS = 2.0  # below this standard deviation, integer Gaussian noise has too few values for the normal curve

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Level:
    """One level of a descent: the number of noisy counts, their noise, the threshold, and how many candidates were kept."""

    step: str
    candidates: int
    noise: float
    threshold: int
    kept: int


@dataclass(frozen=True)
class Finding:
    """What a descent found in a column, and its cost as a share of the run's reservation. All of it is public."""

    column: str
    found: int
    kind: str
    cells: tuple[str, ...]
    levels: tuple[Level, ...]
    spent: float

    @property
    def words(self) -> str:
        """Summarise the finding in a few words.

        >>> Finding("diagnosis", found=37, kind="value", cells=(), levels=(), spent=0.1).words
        '37 values in diagnosis'
        """
        return f"{self.found:,} {self.kind}{'' if self.found == 1 else 's'} in {self.column}"


def threshold(candidates: int, *, noise: float, laplace: bool) -> int:
    """Return the least count that stands out: on average at most `FALSE_FINDS` of the candidates reach it if none has any rows.

    Args:
        candidates: The number of candidates.
        noise: The standard deviation of their counts.
        laplace: Whether the noise is discrete Laplace noise. Otherwise it is integer Gaussian noise.

    >>> threshold(1000, noise=10.0, laplace=False), threshold(1000, noise=10.0, laplace=True)
    (38, 61)
    """
    tail, variance = FALSE_FINDS / candidates, noise**2
    if not laplace and noise >= FEW_STEPS:
        return math.ceil(0.5 - NormalDist().inv_cdf(tail) * noise)
    # Laplace noise is k with probability (1 - r) / (1 + r) r^|k|: its variance is 2 r / (1 - r)^2, and it reaches k with r^k / (1 + r).
    # Gaussian noise with a small standard deviation reaches 1 or more no more often than that.
    ratio = variance / (variance + 1 + math.sqrt(2 * variance + 1))
    return max(1, math.ceil(math.log(tail * (1 + ratio)) / math.log(ratio))) if ratio else 1


class Descent(ABC):
    """The descent of one column's tree.

    Attributes:
        kind: What it finds, in one word.
        share: The share of the run's whole budget that it may spend.
        levels: The most levels that it counts, each for an equal part of the share.
    """

    kind: ClassVar[str]

    def __init__(self, template: Attribute, *, share: Fraction, levels: int) -> None:
        self._template = template
        self.share = share
        self.levels = levels

    @property
    @abstractmethod
    def candidates(self) -> Attribute | None:
        """The candidates to count next, as an attribute that codes every row; None if the descent is complete."""

    @abstractmethod
    def take(self, counts: Counts, *, least: int, noise: float) -> int:
        """Continue with the candidates whose noisy counts stand out, and return how many were kept.

        Args:
            counts: The noisy counts of all candidates.
            least: The least count that stands out.
            noise: The standard deviation of the counts.
        """

    @abstractmethod
    def found(self) -> Attribute:
        """Return the column's attribute, with no more cells than the template has."""

    @property
    def number(self) -> int:
        """How many cells were found."""
        return self.found().cells

    def evidence(self) -> tuple[Counts, float] | None:
        """Return noisy counts of the found cells, and their standard deviation; None if the descent does not estimate them."""
        return None


def equal_parts(intervals: Iterable[tuple[int, float]], *, most: int, least: float = 0.0) -> list[int]:
    """Merge neighbouring intervals, from the left, into parts of about equal mass. Return where each part after the first one starts.

    An interval that is heavier than a part, such as the one with all the zeros, stays alone.

    Args:
        intervals: The start and the mass of each, ascending. The first one starts at 0.
        most: The most parts.
        least: About the least mass of a part.

    >>> equal_parts([(0, 900), (1, 10), (2, 30), (3, 30), (50, 30)], most=64, least=40)
    [1, 3, 50]
    """
    pairs = list(intervals)
    starts, mass, parts, left = [], 0.0, most, sum(mass for _, mass in pairs)
    for start, more in pairs:
        if start and parts > 1 and mass + more / 2 > max(left / parts, least):
            starts.append(start)
            left, mass, parts = left - mass, 0.0, parts - 1
        mass += more
    return starts


def largest(counts: dict[_Item, int], most: int) -> dict[_Item, int]:
    """Return the `most` largest counts. Of equal counts, the first ones are kept."""
    return dict(sorted(counts.items(), key=lambda item: -item[1])[:most])
