"""What a count does not know if it counts only some of the values of a cell.

A tree has measured how values lie within the cells of a column at full resolution. Two errors are left that replicates do not show:
1. A query may cut a leaf, whose values were not counted one by one. Most of its rows may have the same value.
2. A leaf that does not stand out of its noise loses its rows to others. It may have as many rows as the noise hides.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpcore.answers.cells import Column, Indices
from dpcore.answers.evaluate import Marginal
from dpcore.answers.leaf_tree import LeafTree
from dpcore.answers.merging import Merging
from dpcore.answers.query import Count
from dpcore.models.model import Weights
from dpcore.universe.spread import Spread
from dpcore.universe.spreading import evened, spread_of

ALL = 1 - 1e-9  # of a cell, but for rounding errors


@dataclass(frozen=True, eq=False)
class Sides:
    """The squares of the rows by which the count of each group may be too high, and too low."""

    below: Weights
    above: Weights


@dataclass(frozen=True, eq=False)
class _Counted:
    """The runs that each group counts, by ascending runs, the part of the cell's values in each, and the group's rows in the whole cell."""

    group: Indices
    run: Indices
    part: Weights
    rows: Weights


@dataclass(frozen=True, eq=False)
class CutLeaves:
    """The leaves of a column at full resolution, of which a query cuts cells.

    Attributes:
        tree: The column's tree.
        merging: The query.
        axis: The position of the column.
    """

    tree: LeafTree
    merging: Merging
    axis: int

    def sides(self, count: Count, marginal: Marginal, *, errors: float) -> Sides:
        """Return how far a count may be off, in so many standard errors, because of how values lie within cells.

        Args:
            count: One of the query's counts.
            marginal: The marginals of the released model.
            errors: How many standard errors.
        """
        counted = self._counted(count, marginal)
        light, cut = self._light(counted, errors), self._cut(counted, errors)
        return Sides(light.below + cut.below, light.above + cut.above)

    def _counted(self, count: Count, marginal: Marginal) -> _Counted:
        even = self.merging.varied(
            {self.axis: [evened(self._spread)]}
        )  # a piece in which the tree has found nothing has rows, too
        group, seen, rows = even.form(count).entries(lambda axes: marginal(axes)[:1], along=self.axis)
        part = even.on_models(self.axis, models=1)[0].share[seen]
        # Neighbouring pieces of a cell that the query treats alike are one run.
        runs, run = len(self._starts), self._run[self.merging.kept_pieces(self.axis)[seen]]
        keys, at = np.unique(group * runs + run, return_inverse=True)
        of_cell = np.zeros(len(keys))
        of_cell[at] = rows / part
        parts = np.bincount(at, weights=part, minlength=len(keys)).astype(np.float64)
        order = np.argsort(keys % runs, kind="stable")
        return _Counted(keys[order] // runs, keys[order] % runs, parts[order], of_cell[order])

    def _light(self, counted: _Counted, errors: float) -> Sides:
        """Return what light leaves add. Those that are counted may have more rows, and so may the others in a cell that is partly counted."""
        cells, groups = self._column.attribute.size, self.merging.groups
        keys, at = np.unique(counted.group * cells + self._cell[counted.run], return_inverse=True)
        group, cell = keys // cells, keys % cells
        rows = np.zeros(len(keys))
        rows[at] = counted.rows
        own = np.bincount(at, weights=self._hidden[counted.run], minlength=len(keys))
        others = np.bincount(self._cell, weights=self._hidden, minlength=cells)[cell] - own
        is_part = np.bincount(at, weights=counted.part, minlength=len(keys)) < ALL
        scale = np.where(is_part, errors * self._share_of_cell(rows, cell), 0.0) ** 2
        below = np.bincount(group, weights=scale * np.maximum(others, 0.0), minlength=groups)
        above = np.bincount(group, weights=scale * own, minlength=groups)
        return Sides(below.astype(np.float64), above.astype(np.float64))

    def _cut(self, counted: _Counted, errors: float) -> Sides:
        """Return what leaves add that the query cuts.

        The values that people ask for are not random ones. So the standard error is that of all rows of the leaf, whatever part of it is
        counted. But no more rows can be missing than there are, and no more can be counted.
        """
        tree = self.tree
        below, above = np.zeros(self.merging.groups), np.zeros(self.merging.groups)
        most = tree.rows + errors * np.where(tree.light, tree.deviations, 0.0)
        deviation = math.sqrt(tree.unevenness)
        for leaf in self._cut_leaves.tolist():
            first, last = self._first[leaf], self._last[leaf]
            some = slice(*np.searchsorted(counted.run, [first, last + 1]).tolist())
            group, at = np.unique(counted.group[some], return_inverse=True)
            run = counted.run[some]
            part = np.bincount(at, weights=self._parts(leaf)[run - first], minlength=len(group))
            rows = np.zeros(len(group))
            rows[at] = self._share_of_cell(counted.rows[some], self._cell[run]) * most[leaf]
            missing = np.where(part < ALL, np.minimum(errors * deviation, part), 0.0)
            below[group] += missing**2 * rows**2
            above[group] += np.minimum(errors * deviation, np.maximum(1 - part, 0.0)) ** 2 * rows**2
        return Sides(below, above)

    def _share_of_cell(self, rows: Weights, cell: Indices) -> Weights:
        """Return which share of a cell's rows some rows are."""
        return np.asarray(np.minimum(rows / np.maximum(self._in_cell[cell], 1.0), 1.0))

    def _parts(self, leaf: int) -> Weights:
        """Return the part of a leaf's values that each of its runs has."""
        low, high = self._lows[leaf], self._lows[leaf + 1]
        starts = self._starts[self._first[leaf] : self._last[leaf] + 1]
        return np.asarray(np.diff(np.clip(np.append(starts, high), low, high)) / (high - low))

    @cached_property
    def _column(self) -> Column:
        return self.merging.column(self.axis)

    @cached_property
    def _spread(self) -> Spread:
        return spread_of(self._column.attribute)

    @cached_property
    def _place(self) -> int:
        """How many places of the query one place of the tree has: a day has many moments."""
        return int(self._spread.bounds[-1] - self._spread.bounds[0]) // self.tree.leaves.size

    @cached_property
    def _lows(self) -> Indices:
        """The first place of each leaf, and the one after the last leaf."""
        return np.asarray(self._spread.bounds[0] + self._place * np.append(self.tree.starts, self.tree.leaves.size))

    @cached_property
    def _begins(self) -> npt.NDArray[np.bool_]:
        """Which pieces begin a run: another cell, or values that the query treats otherwise."""
        results = np.column_stack([self.merging.results(self.axis), self._column.cell])
        begins = np.ones(self._column.pieces, dtype=np.bool_)
        begins[1:] = (results[1:] != results[:-1]).any(axis=1)
        return begins

    @cached_property
    def _run(self) -> Indices:
        """The run of each piece."""
        return np.cumsum(self._begins) - 1

    @cached_property
    def _starts(self) -> Indices:
        """The first place of each run. That of rows without a value is beyond the last place."""
        return self._column.start[self._begins]

    @cached_property
    def _cell(self) -> Indices:
        """The cell of each run."""
        return self._column.cell[self._begins]

    @cached_property
    def _first(self) -> Indices:
        """The run in which each leaf starts."""
        return np.asarray(np.searchsorted(self._starts, self._lows[:-1], side="right") - 1)

    @cached_property
    def _last(self) -> Indices:
        """The run in which each leaf ends."""
        return np.asarray(np.searchsorted(self._starts, self._lows[1:], side="left") - 1)

    @cached_property
    def _in_cell(self) -> Weights:
        """The rows of each cell, by the tree."""
        cell = self._cell[self._first]
        return np.bincount(cell, weights=self.tree.rows, minlength=self._column.attribute.size).astype(np.float64)

    @cached_property
    def _hidden(self) -> Weights:
        """The variance of all light leaves within each run. Those that make up a node were also counted as one."""
        tree, found = self.tree, np.zeros(len(self._starts))
        variances = np.where(tree.light, tree.unevenness * tree.deviations**2, 0.0)
        known = np.zeros(len(variances), dtype=np.bool_)
        for level in range(len(tree.node_widths)):
            begin = np.flatnonzero(np.diff(tree.nodes(level), prepend=-tree.leaves.size))
            first, last = np.minimum.reduceat(self._first, begin), np.maximum.reduceat(self._last, begin)
            inside = (first == last) & ~known[begin]
            of_node = np.minimum(np.add.reduceat(variances, begin), tree.unevenness * tree.noise.deviation**2)
            np.add.at(found, first[inside], of_node[inside])
            known |= np.repeat(inside, np.diff(begin, append=len(variances)))
        return found

    @cached_property
    def _cut_leaves(self) -> npt.NDArray[np.intp]:
        """The leaves that the query cuts."""
        return np.flatnonzero(self._last > self._first)
