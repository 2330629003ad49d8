"""What every descent is: candidates to count, and a way to go on by their noisy counts."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import ClassVar, TypeVar

from dpcore.measurements import Counts
from dpcore.universe import Attribute

FALSE_FINDS = 0.1  # candidates without any row that a level keeps, on average, at most
FEW_STEPS = 2.0  # of whole numbers, as standard deviation

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Level:
    """What one level of a descent bought: how many noisy counts, their noise, the threshold, and how many candidates went on or were found."""

    step: str
    candidates: int
    noise: float
    threshold: int
    kept: int


@dataclass(frozen=True)
class Finding:
    """What was found in a column, and what it cost, as a share of the run's reservation: all public."""

    column: str
    found: int
    kind: str
    cells: tuple[str, ...]
    levels: tuple[Level, ...]
    spent: float

    @property
    def words(self) -> str:
        """Say how much was found where.

        >>> Finding("diagnosis", found=37, kind="value", cells=(), levels=(), spent=0.1).words
        '37 values in diagnosis'
        """
        return f"{self.found:,} {self.kind}{'' if self.found == 1 else 's'} in {self.column}"


def threshold(candidates: int, *, noise: float, laplace: bool) -> int:
    """Return the count from which on a candidate stands out: of so many without any row, at most `FALSE_FINDS` get there on average.

    Args:
        candidates: How many there are.
        noise: The standard deviation of their counts.
        laplace: Whether the noise is discrete Laplace noise; otherwise it is Gaussian, in whole numbers.

    >>> threshold(1000, noise=10.0, laplace=False), threshold(1000, noise=10.0, laplace=True)
    (38, 61)
    """
    tail, variance = FALSE_FINDS / candidates, noise**2
    if not laplace and noise >= FEW_STEPS:
        return math.ceil(0.5 - NormalDist().inv_cdf(tail) * noise)
    # Laplace noise is k with probability (1 - r) / (1 + r) r^|k|: its variance is 2 r / (1 - r)^2, and it reaches k with r^k / (1 + r).
    # Gaussian noise of so few steps that it is no curve reaches a row, or more of them, no more often than that.
    ratio = variance / (variance + 1 + math.sqrt(2 * variance + 1))
    return max(1, math.ceil(math.log(tail * (1 + ratio)) / math.log(ratio))) if ratio else 1


class Descent(ABC):
    """One column's way down its tree.

    Attributes:
        kind: What it finds, in one word.
        share: What it may spend of the run's whole budget.
        levels: How many counts it asks for at most, each for an equal part of the share.
    """

    kind: ClassVar[str]

    def __init__(self, template: Attribute, *, share: Fraction, levels: int) -> None:
        self._template = template
        self.share = share
        self.levels = levels

    @property
    @abstractmethod
    def candidates(self) -> Attribute | None:
        """What to count next, as an attribute that gives every row a code; None if nothing is left to ask."""

    @abstractmethod
    def take(self, counts: Counts, *, least: int) -> int:
        """Go on by the noisy counts of the candidates' codes, of which `least` stands out; return how many were kept."""

    @abstractmethod
    def found(self) -> Attribute:
        """Return the column's attribute, with no more cells than the template has."""

    @property
    def number(self) -> int:
        """How many cells were found."""
        return self.found().cells


def largest(counts: dict[_Item, int], most: int) -> dict[_Item, int]:
    """Return the largest counts, at most so many; of equal ones those that come first."""
    return dict(sorted(counts.items(), key=lambda item: -item[1])[:most])
