"""Find edges between bins of about equal mass, on a grid."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

from dpcore.descent.descent import Descent, equal_parts, largest
from dpcore.errors import SpecError
from dpcore.marginals.measurements import Counts
from dpcore.universe import Attribute, Integer, Number, Outside
from dpcore.universe.numeric import UnevenInteger

MOST_PARTS = 32  # the most parts into which a level splits an interval


@dataclass(frozen=True)
class Ruler:
    """The finest bins between two bounds. `edge(0)` is the lower bound, `edge(size)` the upper one."""

    low: int | float
    high: int | float
    size: int
    whole: bool

    def edge(self, place: int) -> int | float:
        """Return an edge. For whole numbers it is the first number of the bin that starts there, or one past the last."""
        if self.whole:
            return int(self.low) + (int(self.high) - int(self.low)) * place // self.size
        return float(self.low + (self.high - self.low) * place / self.size)

    def cut(self, start: int, stop: int, *, parts: int) -> list[tuple[int, int]]:
        """Split an interval into at most `parts` non-empty ones of about equal width."""
        places = [start]
        for part in range(1, min(parts, stop - start)):
            place = start + (stop - start) * part // min(parts, stop - start)
            if self.edge(places[-1]) < self.edge(place) < self.edge(stop):
                places.append(place)
        return list(pairwise([*places, stop]))


class GridDescent(Descent):
    """Find edges of bins with about equal mass, by splitting each interval that alone has more mass than a bin should.

    At the end `equal_parts` merges neighbouring intervals into bins.
    """

    kind = "bin"

    def __init__(self, template: Attribute, *, grid: Ruler, bins: int, share: Fraction) -> None:
        levels = 1
        while MOST_PARTS**levels < grid.size:
            levels += 1
        super().__init__(template, share=share, levels=levels)
        self._grid, self._bins = grid, bins
        self._parts = math.ceil(round(grid.size ** (1 / levels), 9))
        self._leaves: dict[tuple[int, int], int] = {(0, grid.size): 0}
        self._heavy: list[tuple[int, int]] = [(0, grid.size)]
        self._level = 0
        self._target = 0.0

    @property
    def candidates(self) -> Attribute | None:
        """All parts of the intervals to split. The bins between them are counted as well, but ignored."""
        if not self._heavy:
            return None
        outside = Outside.CLIP if self._template.outside is Outside.CLIP else Outside.OTHER
        return replace(binned(self._template, self._grid, self._starts()), missing=True, outside=outside)

    def _children(self) -> list[tuple[int, int]]:
        return [child for start, stop in self._heavy for child in self._grid.cut(start, stop, parts=self._parts)]

    def _starts(self) -> list[int]:
        ends = {place for child in self._children() for place in child}
        return sorted(ends - {0, self._grid.size})

    def take(self, counts: Counts, *, least: int, noise: float) -> int:
        """Replace the intervals by their parts, and continue with the parts that alone have more mass than a bin."""
        del noise  # `least` follows from it
        codes = {start: code for code, start in enumerate([0, *self._starts()])}
        children = {(start, stop): int(counts[codes[start]]) for start, stop in self._children()}
        for interval in self._heavy:
            del self._leaves[interval]
        self._leaves |= children
        self._level += 1
        if self._level == 1:
            self._target = sum(children.values()) / self._bins
        heavy = {
            (start, stop): count
            for (start, stop), count in children.items()
            if count >= least and count > self._target and stop - start > 1 and self._level < self.levels
        }
        self._heavy = sorted(largest(heavy, self._bins))
        return len(self._heavy)

    def found(self) -> Attribute:
        """Return the bins."""
        masses = ((start, count) for (start, _), count in sorted(self._leaves.items()))
        return binned(self._template, self._grid, equal_parts(masses, most=self._bins))


def binned(template: Attribute, grid: Ruler, starts: list[int]) -> Attribute:
    """Return a numeric attribute with new bins: one starts at each of these positions of the grid."""
    if isinstance(template, Integer):
        cuts = tuple(int(grid.edge(start)) for start in starts)
        return UnevenInteger(minimum=template.minimum, maximum=template.maximum, cuts=cuts, **template.policy)
    if not isinstance(template, Number):
        raise SpecError("edges are found for numbers only; declare the bins of other columns")
    edges = (grid.low, *(grid.edge(start) for start in starts), grid.high)
    return replace(template, edges=tuple(map(float, edges)))
