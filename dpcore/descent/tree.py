"""Find the distribution of a column at full resolution: intervals of a grid, ever finer where the rows are."""

import math
from fractions import Fraction

import numpy as np

from dpcore.descent.descent import Descent, equal_parts
from dpcore.descent.partitions import Partition, Positions, estimate
from dpcore.marginals.measurements import LEAST_NOISE, Counts
from dpcore.marginals.shrinkage import Floats
from dpcore.universe import Attribute
from dpcore.universe.fine_days import FineDays, WeekTimes
from dpcore.universe.leaves import MOST_CELLS, Fine, Leaves

FIRST_PARTS, PARTS = 16, 8  # the nodes of the first level, and the parts of a node; see docs/decisions/0039
MOST_PARTS = 64  # the parts of a node that stood out only later
CELL_NOISE = 24.0  # a cell of the model has about this many standard deviations of rows or more, so that its parts stand out as well
THOUSANDTHS = 1000
MOST_SCALED = 2.0  # the rows of a single day are scaled by no more than this, so that weekdays have their shares
OF_AN_HOUR = {"day": (), "hour": (4, 6), "minute": (4, 6, 4, 3, 5), "second": (4, 6, 4, 3, 5, 4, 3, 5)}


class Tree:
    """A chain of partitions of a grid. Each level splits the nodes that stand out of the noise, and counts all others again.

    Every level is a partition of all rows, so it has the sensitivity and the price of one histogram. A node's evidence grows with each
    level that counts it again: it may stand out later, and is then split into more parts.

    With `ends`, the first and the last place are nodes of their own from the first level on. Values beyond the range are clipped to them,
    and people write the largest number for "more than that", so they are often frequent.
    """

    def __init__(self, size: int, *, parts: tuple[int, ...], apart: int, ends: bool = False) -> None:
        self.size, self.apart, self._ends = size, apart, ends
        self._widths = [math.prod(parts[level + 1 :]) for level in range(len(parts))]
        self._levels: list[Partition] = []
        self._stops = np.array([size], dtype=np.int64)
        self._mean, self._variance = np.zeros(1), np.full(1, math.inf)
        self._next: tuple[Positions, Positions] | None = None
        self._plan(np.zeros(1, dtype=np.int64), split=np.ones(1, dtype=np.bool_))

    @property
    def starts(self) -> tuple[int, ...] | None:
        """The first place of each node to count next, without the first node; None if nothing is left to split."""
        return None if self._next is None else tuple(self._next[0][1:].tolist())

    def _plan(self, starts: Positions, *, split: np.ndarray) -> None:
        """Prepare the next level: the parts of the nodes to split, and all others as they are."""
        self._next = None
        if len(self._levels) == len(self._widths) or not (split & (self._stops - starts > 1)).any():
            return
        width = self._widths[len(self._levels)]
        first: list[int] = []
        parents: list[int] = []
        for node, (start, stop) in enumerate(zip(starts.tolist(), self._stops.tolist(), strict=True)):
            places = self._parts(start, stop, width=width) if split[node] else [start]
            first += places
            parents += [node] * len(places)
        self._next = np.array(first, dtype=np.int64), np.array(parents, dtype=np.int64)

    def _parts(self, start: int, stop: int, *, width: int) -> list[int]:
        """Return the first places of the parts of a node. They are multiples of a level's width, but for the ends and what follows them."""
        low = start - start % width
        wide = width * math.ceil((stop - low) / (width * MOST_PARTS))
        places = [start, *range(low + wide, stop, wide)]
        if self._ends and not self._levels and width > 1:
            places = sorted({*places, 1, stop - 1})
        return places

    def take(self, counts: Counts, *, least: int, noise: float) -> int:
        """Add a level, plan the next, and return how many nodes it splits."""
        if self._next is None:
            return 0
        noise = max(noise, LEAST_NOISE)
        starts, parents = self._next
        nodes = len(starts)
        apart_parents = np.arange(len(self._stops), len(self._stops) + self.apart)
        level = Partition(starts, np.append(parents, apart_parents), counts[: nodes + self.apart], noise, self.apart)
        self._levels.append(level)
        again = np.bincount(parents, minlength=len(self._stops))[parents] == 1
        self._stops = np.append(starts[1:], self.size)
        own, before = noise**2, np.where(again, self._variance[parents], math.inf)
        weight = np.where(np.isinf(before), 1.0, before / (np.where(np.isinf(before), 0.0, before) + own))
        self._mean = np.where(again, self._mean[parents], 0.0) * (1 - weight) + counts[:nodes] * weight
        self._variance = own * weight
        # `least` is the threshold for one count; several counts of a node have less noise together
        split = (self._mean >= np.maximum(least * np.sqrt(weight), 1)) & (self._stops - starts > 1)
        # With at most so many nodes to split, a level has at most 1 << 14 nodes.
        split &= _among_largest(np.where(split, self._mean, -math.inf), 1024)
        self._plan(starts, split=split)
        return int(split.sum()) if self._next is not None else 0

    @property
    def levels(self) -> tuple[Partition, ...]:
        """The levels so far."""
        return tuple(self._levels)

    def estimate(self, density: Floats | None = None) -> Floats:
        """Estimate the rows in each node of the last level, if they are expected to have this density."""
        return estimate(self._levels, size=self.size, density=density)

    def leaves(self, rows: Floats) -> Leaves:
        """Return the last level's nodes with their masses."""
        starts = self._levels[-1].starts
        masses = np.rint(THOUSANDTHS * rows[: len(starts)]).astype(np.int64)
        return Leaves(starts=tuple(starts.tolist()), masses=tuple(masses.tolist()), size=self.size)


class TreeDescent(Descent):
    """Find a column's distribution at full resolution, and the cells that a model learns.

    The tree of a date or datetime has days as places. A second tree, of the times of the week, follows it.
    """

    kind = "interval"

    def __init__(self, template: Fine, *, share: Fraction) -> None:
        self._fine = template.cut_at(None)
        self._latest: tuple[Fine, Floats] | None = None  # the column, and the estimated rows in each leaf
        apart = template.size - template.cells
        self._tree = Tree(template.places, parts=even_parts(template.places), apart=apart, ends=True)
        parts = even_parts(template.places)
        self._week: Tree | None = None
        if isinstance(template, FineDays):
            of_week = (7, *OF_AN_HOUR[template.step])
            self._week = Tree(template.week_places, parts=of_week, apart=apart)
            parts += of_week
        super().__init__(template, share=share, levels=len(parts))

    @property
    def candidates(self) -> Attribute | None:
        """The nodes of the next level, with the declared policy for other values: rows that the release drops are not counted."""
        if self._tree.starts is not None:
            return self._fine.cut_at(self._tree.starts)
        if self._week is None or self._week.starts is None or not isinstance(self._fine, FineDays):
            return None
        return WeekTimes(column=self._fine, starts=self._week.starts, **self._fine.policy)

    def take(self, counts: Counts, *, least: int, noise: float) -> int:
        """Split the nodes whose noisy counts stand out."""
        self._latest = None
        tree = self._tree if self._tree.starts is not None else self._week
        return 0 if tree is None else tree.take(counts, least=least, noise=noise)

    def found(self) -> Fine:
        """Return the column with its cells and leaves."""
        return self._estimated()[0]

    def _estimated(self) -> tuple[Fine, Floats]:
        """Return the column, and the estimated rows in each leaf."""
        if self._latest is None:
            self._latest = self._estimate()
        return self._latest

    def _estimate(self) -> tuple[Fine, Floats]:
        fine, tree = self._fine, self._tree
        if not isinstance(fine, FineDays) or self._week is None:
            rows = tree.estimate()
            leaves = tree.leaves(rows)
            return fine.cut_at(self._cells(leaves), leaves=leaves), rows
        week = self._week.leaves(self._week.estimate()) if self._week.levels else None
        of_week = fine.cut_at(None, week=week)
        rows = _as_weekdays(tree.estimate(of_week.day_density), tree.levels[-1].starts, of_week)
        leaves = tree.leaves(rows)
        return fine.cut_at(self._cells(leaves), leaves=leaves, week=week), rows

    def _cells(self, leaves: Leaves) -> list[int]:
        least = math.ceil(THOUSANDTHS * CELL_NOISE * self._noise)
        return equal_parts(zip(leaves.starts, leaves.masses, strict=True), most=MOST_CELLS, least=least)

    @property
    def _noise(self) -> float:
        return self._tree.levels[-1].noise

    @property
    def number(self) -> int:
        """How many intervals were found."""
        return len(self._tree.levels[-1].starts)

    def evidence(self) -> tuple[Counts, float]:
        """Return the estimated counts of the found column's cells, and about the standard deviation of their errors.

        A cell's estimate combines counts of several levels and sizes. On thirteen columns, most of them real, the root mean square of its
        error was up to 2.9 times the noise of a level, 1.6 times in the middle (docs/decisions/0039).
        """
        column, rows = self._estimated()
        inside = len(self._tree.levels[-1].starts)
        cells = np.searchsorted(column.cell_bounds, self._tree.levels[-1].starts, side="right") - 1
        counts = np.bincount(cells, weights=rows[:inside], minlength=column.cells)
        return np.rint(np.append(counts, rows[inside:])).astype(np.int64), 1.6 * self._noise


def _as_weekdays(rows: Floats, starts: Positions, column: FineDays) -> Floats:
    """Scale the rows of single days so that each weekday has its share, which the tree of the week knows far better than that of the days."""
    density, held = column.day_density, column.weekday_rows
    if density is None or held is None:
        return rows
    inside, weekdays = rows[: len(starts)], column.weekdays
    expected = np.add.reduceat(np.eye(7)[weekdays] * density[:, None], starts)
    of_leaf = expected / expected.sum(axis=1, keepdims=True)  # how the rows of each leaf are divided among weekdays
    single = np.diff(np.append(starts, len(weekdays))) == 1
    expected_single = inside.sum() * held / held.sum() - (inside * ~single) @ of_leaf
    own = (inside * single) @ of_leaf
    factors = np.clip(np.divide(expected_single, own, out=np.ones(7), where=own > 0), 1 / MOST_SCALED, MOST_SCALED)
    scaled = np.where(single, inside * factors[weekdays[starts]], inside)
    return np.append(scaled * (inside.sum() / max(float(scaled.sum()), 1.0)), rows[len(starts) :])


def even_parts(size: int) -> tuple[int, ...]:
    """Return the parts of the nodes of each level, down to single places.

    >>> even_parts(10), even_parts(100), even_parts(1_500_000)
    ((10,), (16, 7), (16, 7, 7, 7, 7, 7, 6))
    """
    first, levels = min(FIRST_PARTS, size), 0
    while first * PARTS**levels < size:
        levels += 1
    parts = [PARTS] * levels
    for _ in range(PARTS):
        for level in reversed(range(levels)):
            if first * math.prod(parts) // parts[level] * (parts[level] - 1) >= size:
                parts[level] -= 1
    return (first, *parts)


def _among_largest(counts: np.ndarray, most: int) -> np.ndarray:
    """Tell which counts are among the `most` largest. Of equal counts, the first ones are."""
    chosen = np.zeros(len(counts), dtype=np.bool_)
    chosen[np.argsort(-counts, kind="stable")[:most]] = True
    return chosen
