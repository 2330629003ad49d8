"""The nodes of a column's tree, found again from its leaves: which are light, and how unevenly rows lie within them."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpcore.descent.partitions import STANDS_OUT
from dpcore.descent.tree import THOUSANDTHS, even_parts
from dpcore.models.model import Weights
from dpcore.universe.leaves import Leaves
from dpcore.universe.spread import Indices

UNKNOWN_UNEVENNESS, WEIGHT = 0.5, 4  # of a node, before any node is known; it weighs as much as so many nodes


@dataclass(frozen=True)
class TreeNoise:
    """The noise of a column's tree: the standard deviation of a count, and the number of levels."""

    deviation: float
    levels: int


@dataclass(frozen=True, eq=False)
class LeafTree:
    """A column's leaves, and the noise of its tree.

    Attributes:
        leaves: The leaves.
        noise: The noise.
        summed: Whether they are leaves of several trees together. A leaf that one tree did not split looks even then.
    """

    leaves: Leaves
    noise: TreeNoise
    summed: bool = False

    @cached_property
    def starts(self) -> Indices:
        """The first place of each leaf."""
        return np.array(self.leaves.starts, dtype=np.int64)

    @cached_property
    def widths(self) -> Indices:
        """The number of places of each leaf."""
        return np.diff(np.append(self.starts, self.leaves.size))

    @cached_property
    def rows(self) -> Weights:
        """The estimated rows of each leaf."""
        return np.array(self.leaves.masses, dtype=np.float64) / THOUSANDTHS

    @cached_property
    def node_widths(self) -> tuple[int, ...]:
        """The width of a node of each level."""
        parts = even_parts(self.leaves.size)
        return tuple(math.prod(parts[level + 1 :]) for level in range(len(parts)))

    @cached_property
    def level(self) -> npt.NDArray[np.int64]:
        """The level in which each leaf became a node. Both ends are nodes of the first level."""
        # A node beside an end lacks the place of that end.
        beside_first, beside_last = self.starts == 1, self.starts + self.widths == self.leaves.size - 1
        widths = self.widths + beside_first + beside_last
        return np.where(self._ends, 0, (np.array(self.node_widths)[:, None] > widths).sum(axis=0))

    @cached_property
    def _ends(self) -> npt.NDArray[np.bool_]:
        return np.asarray((self.widths == 1) & ((self.starts == 0) | (self.starts == self.leaves.size - 1)))

    def deviation(self, level: int | npt.NDArray[np.int64]) -> Weights:
        """Return the standard deviation of the count of a node of a level. It is counted again at every later level."""
        levels = min(self.noise.levels, len(self.node_widths))  # those of a tree of times of the week come after them
        return np.asarray(self.noise.deviation / np.sqrt(np.maximum(levels - np.asarray(level), 1)))

    @cached_property
    def deviations(self) -> Weights:
        """The standard deviation of each leaf's count."""
        return self.deviation(self.level)

    @cached_property
    def light(self) -> npt.NDArray[np.bool_]:
        """Which leaves do not stand out of their noise. A tree gives their rows to others, unless all of them together stand out."""
        return np.asarray(self.rows < STANDS_OUT * self.deviations)

    def nodes(self, level: int) -> npt.NDArray[np.int64]:
        """Return a number for the node of a level that has each leaf. An end is always a node of its own."""
        return np.where(self._ends, -1 - self.starts, self.starts // self.node_widths[level])

    def parents(self, level: int) -> npt.NDArray[np.intp]:
        """Return the number of each leaf's node in the level before a level: 0 for all before the first level."""
        before = self.nodes(level - 1) if level else np.zeros(len(self.starts), dtype=np.int64)
        return np.unique(before, return_inverse=True)[1]

    @cached_property
    def unevenness(self) -> float:
        """How unevenly rows lie within a node: 0 if all its parts have equally many, 1 if one part has all.

        For parts p with shares s_p of a node's rows, it is the sum of s_p^2, rescaled. This is its mean over all nodes that were split:
        what lies within a leaf was not counted, but is probably as uneven.
        """
        if self.summed:
            return UNKNOWN_UNEVENNESS
        unevenness = [UNKNOWN_UNEVENNESS] * WEIGHT
        for level in range(1, len(self.node_widths)):
            _, first, part = np.unique(self.nodes(level), return_index=True, return_inverse=True)
            parents = self.parents(level)[first]
            rows = np.bincount(part, weights=self.rows)
            count = np.bincount(parents)
            total = np.bincount(parents, weights=rows)
            squares = np.bincount(parents, weights=rows**2)
            split = (count > 1) & (total > 0)
            even = 1 / count[split]
            unevenness += ((squares[split] / total[split] ** 2 - even) / (1 - even)).tolist()
        return float(np.mean(unevenness))
