"""The values of a bounded column as whole numbers, so that their noisy sums can be bought.

A release knows a column in at most 64 cells or in declared bins, too few for a sum. So the table is read once more, with finer cells of this
column within those of the release. Each cell stands for its middle, and how far a value may be from that is known.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.spec import Declaration
from dpcore.tables.ingest.violations import Rules
from dpcore.universe import Attribute, Universe
from dpcore.universe.leaves import Fine
from dpcore.universe.numeric import Integer, Number, UnevenInteger
from dpcore.universe.spreading import spread_of

MOST_VALUES = 1 << 12
"""The most parts of equal width that a column's range is divided into. A value is off by at most half of one."""


@dataclass(frozen=True, eq=False)
class Values:
    """A column's values as steps from the middle of its declared range.

    Attributes:
        column: The column.
        attribute: The column with finer cells.
        cells: For each finer cell, that of the release.
        steps: The value of each finer cell, in whole steps from the middle; 0 for nulls.
        step: The width of a step.
        ends: The ends of the range.
        error: How far a value may be from that of its cell.
    """

    column: int
    attribute: Attribute
    cells: npt.NDArray[np.intp]
    steps: npt.NDArray[np.int64]
    step: float
    ends: tuple[float, float]
    error: float

    @property
    def middle(self) -> float:
        """The middle of the range."""
        return sum(self.ends) / 2

    @classmethod
    def of(cls, column: int, attribute: Attribute) -> "Values":
        """Return the values of a column of numbers.

        >>> from dpcore.universe import Integer
        >>> ages = Values.of(0, Integer(minimum=0, maximum=4, width=3))
        >>> ages.steps.tolist(), ages.step, ages.middle, ages.cells.tolist()
        ([-4, -2, 0, 2, 4], 0.5, 2.0, [0, 0, 0, 1, 1])
        """
        finer, coarse = _finer(attribute), spread_of(attribute)
        spread = spread_of(finer)
        low = spread.value(spread.bounds[:-1]).astype(np.float64)
        high = spread.value(spread.bounds[1:] - spread.whole).astype(np.float64)
        parts = max(min(len(low) - spread.whole, MOST_VALUES), 1)
        ends = float(low[0]), float(high[-1])
        middle, step = sum(ends) / 2, (ends[1] - ends[0] or 1.0) / 2 / parts
        steps = np.rint(((low + high) / 2 - middle) / step).astype(np.int64)
        value = middle + step * steps
        error = float(np.maximum(high - value, value - low).max())
        others = finer.size - finer.cells
        cells = np.searchsorted(coarse.bounds, spread.bounds[:-1], side="right") - 1
        return cls(
            column,
            finer,
            np.concatenate([cells, attribute.cells + np.arange(others)]).astype(np.intp),
            np.concatenate([steps, np.zeros(others, dtype=np.int64)]),
            step,
            ends,
            error if error > 1e-9 * step else 0.0,
        )


def _finer(attribute: Attribute) -> Attribute:
    """Return a column of numbers with its cells divided: into single values if they are few, else at the ends of equal parts of its range."""
    spread = spread_of(attribute)
    first, last = spread.bounds[0], spread.bounds[-1]
    if spread.whole:
        parts = min(int(last - first), MOST_VALUES)
        ends = first + (last - first) * np.arange(1, parts) // parts
    else:
        ends = first + (last - first) * (np.arange(1, MOST_VALUES) / MOST_VALUES)
    inner = np.union1d(spread.bounds[1:-1], ends)
    match attribute:
        case Fine():
            return attribute.cut_at(tuple((inner - first).tolist()))
        case Integer(minimum=minimum, maximum=maximum):
            return UnevenInteger(
                minimum=minimum,
                maximum=maximum,
                cuts=tuple(inner.tolist()),
                missing=attribute.missing,
                outside=attribute.outside,
                nulls=attribute.nulls,
            )
        case Number():
            return replace(attribute, edges=(float(first), *inner.tolist(), float(last)))
    raise UsageError("this column has no numbers; report this")


def have_sums(declaration: Declaration, universe: Universe) -> frozenset[int]:
    """Return the columns whose sums can be bought: those of numbers that can be read in finer cells.

    Whether a row violates a constraint is decided by declared bins. So a column with bins and a constraint cannot be read otherwise.
    """
    rules = Rules.of(declaration.universe)
    bound = () if rules is None else rules.attributes
    return frozenset(
        place
        for place, (name, attribute) in enumerate(universe.attributes.items())
        if isinstance(attribute, Integer | Number) and (isinstance(attribute, Fine) or name not in bound)
    )
