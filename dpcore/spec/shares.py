"""The share of the budget for the tree of a column at full resolution, if the spec gives none."""

import math
from collections.abc import Sequence
from fractions import Fraction

from dpcore.universe.leaves import MOST_CELLS
from dpcore.workload import Workload

LEAST = 0.016  # with less, atoms and tails of Adult are lost in the noise; see docs/decisions/0039
LEAST_TOGETHER = 0.16  # but many columns share this
MOST_TOGETHER = 0.5  # and never more than this, if columns are combined at all
ALL = 0.9
MOST_ROUNDS = {False: 60, True: 20}  # that a strategy makes by default, without and with pure epsilon
TYPICAL_CELLS = 400  # of a marginal that a round measures


def usual_share(shape: Sequence[int], workload: Workload, *, fine: int, pure: bool) -> Fraction:
    """Return what a strategy would pay for the counts of such a column, within limits: the tree's counts replace them.

    As in the strategies, budgets in proportion to cells^(2/3), or to their root with Laplace noise, give the least noise together.

    Args:
        shape: The cells of all columns.
        workload: The marginals to learn.
        fine: The number of columns at full resolution.
        pure: Whether the noise is Laplace noise.
    """
    power = 1 / 2 if pure else 2 / 3
    joint = [math.prod(shape[axis] for axis in axes) for axes in workload.marginals if len(axes) > 1]
    if not joint:
        return Fraction(ALL / len(shape)).limit_denominator(1000)
    mean = math.fsum(min(cells, TYPICAL_CELLS) ** power for cells in joint) / len(joint)
    later = min(MOST_ROUNDS[pure], len(joint)) * mean
    wanted: float = MOST_CELLS**power / (math.fsum(size**power for size in shape) + later)
    least = min(LEAST, LEAST_TOGETHER / fine)
    return Fraction(min(max(wanted, least), MOST_TOGETHER / fine)).limit_denominator(1000)
