"""What a number does not know if it is about only some of the values of a cell.

A tree has measured how values lie within the cells of a column at full resolution. Two errors are left that replicates do not show:
1. A query may cut a leaf, whose values were not counted one by one. Most of its rows may have the same value.
2. A leaf that does not stand out of its noise loses its rows to others. It may have as many rows as the noise hides.

A date in a bin is released as the first day of that bin, and a question compares it as such. Nothing was measured within the bin. So if a
question cuts it, any part of its rows may lie on either side.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpcore.answers.cells import Column, Indices
from dpcore.answers.evaluate import Prepared, Projection
from dpcore.answers.leaf_tree import LeafTree
from dpcore.answers.query import Count, Sum
from dpcore.answers.sides import Sides
from dpcore.models.model import Weights
from dpcore.universe.spreading import evened, is_first_day, spread_of

ALL = 1 - 1e-9  # of a cell, but for rounding errors


def cuts_bins(prepared: Prepared, axis: int) -> bool:
    """Return whether a query cuts a bin of a date or time, of which only the first day or moment is released."""
    return is_first_day(prepared.column(axis).attribute) and prepared.is_cut(axis)


def sides_of_bins(prepared: Prepared, axis: int, number: Count | Sum, project: Projection) -> Sides:
    """Return how far a count or sum may be off, because all rows of a bin that the query cuts may lie on one side.

    Args:
        prepared: The query.
        axis: A column of which it cuts bins.
        number: One of its counts or sums.
        project: The projection of the released model.
    """
    group, piece, part, amounts = _in_whole_cells(prepared, axis, number, project)
    cell, bins = prepared.column(axis).cell, prepared.column(axis).attribute.size
    keys, at = np.unique(group * bins + cell[piece], return_inverse=True)
    # A piece that does not count has nothing.
    is_whole = np.bincount(at, weights=part, minlength=len(keys)) >= ALL
    least, most = np.where(is_whole, np.inf, 0.0), np.where(is_whole, -np.inf, 0.0)
    np.minimum.at(least, at, amounts)
    np.maximum.at(most, at, amounts)
    ends = [np.bincount(keys // bins, weights=rows, minlength=prepared.groups) for rows in (least, most)]
    return Sides.of(np.array(ends) - prepared.form(number).totals(project)[0])


def _in_whole_cells(
    prepared: Prepared, axis: int, number: Count | Sum, project: Projection
) -> tuple[Indices, Indices, Weights, Weights]:
    """Return the groups and pieces that count, the part of its cell in each piece, and what the group would have if all of the cell lay in it.

    Values are taken to lie evenly: a piece in which a tree has found nothing has rows, too.
    """
    even = prepared.varied({axis: [evened(spread_of(prepared.column(axis).attribute))]})
    group, piece, amounts = even.form(number).entries(project, along=axis)
    part = even.on_models(axis, models=1)[0].share[piece]
    return group, piece, part, amounts / part


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
        prepared: The query.
        axis: The position of the column.
    """

    tree: LeafTree
    prepared: Prepared
    axis: int

    def sides(self, count: Count, project: Projection, *, errors: float) -> Sides:
        """Return how far a count may be off, in so many standard errors, because of how values lie within cells.

        Args:
            count: One of the query's counts.
            project: The projection of the released model.
            errors: How many standard errors.
        """
        counted = self._counted(count, project)
        return self._light(counted, errors) + self._cut(counted, errors)

    def _counted(self, count: Count, project: Projection) -> _Counted:
        group, piece, part, rows = _in_whole_cells(self.prepared, self.axis, count, project)
        # Neighbouring pieces of a cell that the query treats alike are one run.
        groups = self.prepared.groups
        keys, first, at = np.unique(self._run[piece] * groups + group, return_index=True, return_inverse=True)
        parts = np.bincount(at, weights=part, minlength=len(keys)).astype(np.float64)
        return _Counted(keys % groups, keys // groups, parts, rows[first])

    def _light(self, counted: _Counted, errors: float) -> Sides:
        """Return what light leaves add. Those that are counted may have more rows, and so may the others in a cell that is partly counted."""
        cells, groups = self._column.attribute.size, self.prepared.groups
        keys, first, at = np.unique(
            counted.group * cells + self._cell[counted.run], return_index=True, return_inverse=True
        )
        group, cell, rows = keys // cells, keys % cells, counted.rows[first]
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
        sides = Sides.none(self.prepared.groups)
        most = tree.rows + errors * np.where(tree.light, tree.deviations, 0.0)
        deviation = math.sqrt(tree.unevenness)
        for leaf in self._cut_leaves.tolist():
            first, last = self._first[leaf], self._last[leaf]
            some = slice(*np.searchsorted(counted.run, [first, last + 1]).tolist())
            group, of_group, at = np.unique(counted.group[some], return_index=True, return_inverse=True)
            part = np.bincount(at, weights=self._parts(leaf)[counted.run[some] - first], minlength=len(group))
            rows = self._share_of_cell(counted.rows[some], self._cell[counted.run[some]])[of_group] * most[leaf]
            missing = np.where(part < ALL, np.minimum(errors * deviation, part), 0.0)
            sides.below[group] += missing**2 * rows**2
            sides.above[group] += np.minimum(errors * deviation, np.maximum(1 - part, 0.0)) ** 2 * rows**2
        return sides

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
        return self.prepared.column(self.axis)

    @cached_property
    def _lows(self) -> Indices:
        """The first place of each leaf, and the one after the last leaf."""
        low, high = spread_of(self._column.attribute).bounds[[0, -1]]
        unit = int(high - low) // self.tree.leaves.size  # one place of the tree: a day has many moments
        return np.asarray(low + unit * np.append(self.tree.starts, self.tree.leaves.size))

    @cached_property
    def _begins(self) -> npt.NDArray[np.bool_]:
        """Which pieces begin a run: another cell, or values that the query treats otherwise."""
        results = np.column_stack([self.prepared.results(self.axis), self._column.cell])
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
        tree, hidden = self.tree, np.zeros(len(self._starts))
        variances = np.where(tree.light, tree.unevenness * tree.deviations**2, 0.0)
        is_added = np.zeros(len(variances), dtype=np.bool_)
        for level in range(len(tree.node_widths)):
            begin = np.flatnonzero(np.diff(tree.nodes(level), prepend=-tree.leaves.size))
            first, last = np.minimum.reduceat(self._first, begin), np.maximum.reduceat(self._last, begin)
            inside = (first == last) & ~is_added[begin]
            of_node = np.minimum(np.add.reduceat(variances, begin), tree.unevenness * tree.noise.deviation**2)
            np.add.at(hidden, first[inside], of_node[inside])
            is_added |= np.repeat(inside, np.diff(begin, append=len(variances)))
        return hidden

    @cached_property
    def _cut_leaves(self) -> npt.NDArray[np.intp]:
        """The leaves that the query cuts."""
        return np.flatnonzero(self._last > self._first)
