"""Divide a condition into disjoint boxes, in each of which every column satisfies a condition of its own.

A model can be restricted column by column without becoming larger. `and` of conditions on single columns is one box. `or` needs more:
`a or b` is the box where a holds, and the box where b holds but a does not. Only the truth of the elementary conditions matters, so a column has as
many classes as there are combinations of their truths, whatever the number of its cells.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.answers.cells import Column
from dpcore.answers.evaluate import Prepared
from dpcore.answers.query import All, AnyOf, Condition, Count, IsNull, IsTrue, Not, Output, Query, terms
from dpcore.marginals.workload import Axes
from dpcore.universe import Universe

MOST_CLASSES = 1 << 20
"""The most combinations of classes for which a condition is evaluated."""

MOST_BOXES = 64

Pieces = npt.NDArray[np.bool_]
"""Whether each piece of a column is allowed."""

Box = dict[int, Pieces]
"""What is allowed in some columns, by their positions. All other columns are free."""


@dataclass(frozen=True, eq=False)
class Divided:
    """A condition: the row must lie in one of the disjoint boxes, and satisfy `rest`, which was too large to divide."""

    boxes: tuple[Box, ...]
    rest: Condition | None


class Where(Prepared):
    """A condition made ready for a universe."""

    def __init__(self, condition: Condition, universe: Universe) -> None:
        super().__init__(Query((Output("n", Count()),), where=condition), universe)
        self._classes: dict[int, tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]] = {}
        self._rows: dict[int, npt.NDArray[np.intp]] | None = None

    def divided(self) -> Divided:
        """Divide the condition into boxes."""
        boxes: list[Box] = [{}]
        rest: list[Condition] = []
        for parts in _connected(conjuncts(self.query.where)):
            found = self._boxes(All(parts))
            if found is None or len(boxes) * len(found) > MOST_BOXES:
                rest += parts
            else:
                boxes = [one | other for one in boxes for other in found]
        return Divided(tuple(boxes), All(tuple(rest)) if rest else None)

    def holds(self, condition: Condition, pieces: dict[int, npt.NDArray[np.intp]]) -> npt.NDArray[np.bool_]:
        """Return whether a condition holds for rows, given the piece of each row in every column of the condition."""
        self._rows = pieces
        try:
            return np.asarray(self._truth(condition, ()) == 2)
        finally:
            self._rows = None

    def along(self, values: npt.NDArray[Any], axes: Axes, column: int) -> npt.NDArray[Any]:
        """Shape an array over a column's pieces: one entry for each class, or for each row."""
        if self._rows is not None:
            return values[self._rows[column]]
        return super().along(values[self._class_of(column)[1]], axes, column)

    def _boxes(self, condition: Condition) -> list[Box] | None:
        """Return the boxes of a condition, or None if there are too many."""
        axes = tuple(sorted({term.column for term in terms(condition)}))
        if math.prod(len(self._class_of(axis)[1]) for axis in axes) > MOST_CLASSES:
            return None
        truth = self._truth(condition, axes) == 2
        truth = np.broadcast_to(truth, [len(self._class_of(axis)[1]) for axis in axes])
        found: list[Box] = []
        for box in _disjoint(truth):
            found.append({axis: each[self._class_of(axis)[0]] for axis, each in zip(axes, box, strict=True)})
            if len(found) > MOST_BOXES:
                return None
        return found

    def _class_of(self, position: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Return the class of each piece of a column, and a piece of each class."""
        if position not in self._classes:
            column = self.column(position)
            truths = [column.null.astype(np.int8)]
            truths += [column.truths(part) for part in self.parts(position) if not isinstance(part, IsNull)]
            _, first, classes = np.unique(np.stack(truths, axis=1), axis=0, return_index=True, return_inverse=True)
            self._classes[position] = classes.ravel(), first
        return self._classes[position]


def conjuncts(condition: Condition) -> Iterator[Condition]:
    """Yield conditions that are all true exactly if this one is true.

    >>> from dpcore.answers.query import Term
    >>> list(conjuncts(Not(AnyOf((IsNull(Term(0)), Not(IsNull(Term(1))))))))
    [Not(part=IsNull(term=Term(column=0, transform=None))), IsNull(term=Term(column=1, transform=None))]
    """
    match condition:
        case All(parts):
            for part in parts:
                yield from conjuncts(part)
        case Not(AnyOf(parts)):
            for part in parts:
                yield from conjuncts(Not(part))
        case Not(Not(part)) | IsTrue(part):
            yield from conjuncts(part)
        case _:
            yield condition


def _connected(parts: Iterator[Condition]) -> list[tuple[Condition, ...]]:
    """Group conditions so that no two groups share a column."""
    groups: list[tuple[set[int], tuple[Condition, ...]]] = []
    for part in parts:
        columns, together = {term.column for term in terms(part)}, [part]
        apart = []
        for known, others in groups:
            if known & columns:
                columns |= known
                together = [*others, *together]
            else:
                apart.append((known, others))
        groups = [*apart, (columns, tuple(together))]
    return [together for _, together in groups]


def _disjoint(truth: npt.NDArray[np.bool_]) -> Iterator[tuple[npt.NDArray[np.bool_], ...]]:
    """Yield disjoint boxes that together are where an array is true: for each dimension, which places are in the box.

    >>> [[each.tolist() for each in box] for box in _disjoint(np.array([[False, True], [True, True]]))]
    [[[True, False], [False, True]], [[False, True], [True, True]]]
    """
    if truth.ndim == 0:
        if truth:
            yield ()
        return
    lines, inverse = np.unique(truth.reshape(len(truth), -1), axis=0, return_inverse=True)
    for at, line in enumerate(lines):
        if line.any():
            inside = inverse.ravel() == at
            for rest in _disjoint(line.reshape(truth.shape[1:])):
                yield (inside, *rest)


def weights_of(column: Column, allowed: Pieces) -> npt.NDArray[np.float64]:
    """Return the share of each cell of a column that is allowed: exactly 1 if all of it is."""
    size = column.attribute.size
    inside = np.bincount(column.cell, weights=np.where(allowed, column.share, 0.0), minlength=size)
    outside = np.bincount(column.cell, weights=np.where(allowed, 0.0, column.share), minlength=size)
    return np.where(outside > 0, inside, np.where(inside > 0, 1.0, 0.0))


def pieces_of(
    column: Column, allowed: Pieces, codes: Sequence[int] | npt.NDArray[np.integer[Any]], rng: np.random.Generator
) -> npt.NDArray[np.intp]:
    """Draw an allowed piece of each row's cell, by their shares. Every cell has one."""
    kept = np.flatnonzero(allowed & (column.share > 0))
    ends, cells = np.cumsum(column.share[kept]), column.cell[kept]
    first, after = np.searchsorted(cells, codes), np.searchsorted(cells, codes, side="right")
    below = np.where(first > 0, ends[first - 1], 0.0)
    drawn = below + rng.random(len(first)) * (ends[after - 1] - below)
    places = np.searchsorted(ends, drawn, side="right")
    return kept[np.clip(places, first, after - 1)]
