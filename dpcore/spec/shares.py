"""The shares of the budget for what is measured before the strategy begins. Of these, that for the tree of a column at full resolution is computed."""

import math
from collections.abc import Sequence
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

from dpcore.descent.tree import CELL_NOISE
from dpcore.marginals.measurements import EXPECTED_TOTAL
from dpcore.marginals.workload import Workload
from dpcore.privacy.accounting import epsilon_to_gdp
from dpcore.privacy.protection import Protection
from dpcore.spec.parts import MOST_SHARE

LIMIT_SHARE = Fraction(1, 25)
LOSSES_SHARE = Fraction(1, 100)
TOTAL_SHARE = Fraction(1, 50)

LEAST = 0.016  # with less, atoms and tails of Adult are lost in the noise; see docs/decisions/0039
LEAST_TOGETHER = 0.16  # but many columns share this
MOST_TOGETHER = 0.5  # and never more than this, if columns are combined at all
MOST_ROUNDS = {False: 60, True: 20}  # that a strategy makes by default, without and with pure epsilon
TYPICAL_CELLS = 400  # of a marginal that a round measures
FEW_CELLS = 6  # with fewer in each column, pairs of columns say little; see docs/decisions/0039


class Early(StrEnum):
    """What may be measured before the strategy begins, in this order: the steps of the ledger begin so."""

    LIMIT = "rows-per-unit"
    """The histogram of rows per unit, if the spec has `max_rows_per_unit: auto`."""
    LOSSES = "rows-lost"
    """Which columns drop rows, unless all rows may be lost, or the table is that of an earlier run."""
    TOTAL = EXPECTED_TOTAL
    """The number of rows, if the spec has `expect_rows`."""
    PERSONS = "rows-of-persons"
    """How many rows persons have, if the spec keeps their rows together: twice."""
    DISCOVERY = "discover"
    """The values and bins that the spec does not declare: each level of each descent, unless they are as found."""
    DEPENDENCIES = "depends"
    """The functions of columns that determine others."""


def usual_share(
    shape: Sequence[int], workload: Workload, *, fine: Sequence[int], pure: bool, needed: float = 0.0
) -> Fraction:
    """Return what a strategy would pay for the counts of such a column, within limits: the tree's counts replace them.

    As in the strategies, budgets in proportion to cells^(2/3), or to their root with Laplace noise, give the least noise together.

    Args:
        shape: The cells of all columns.
        workload: The marginals to learn.
        fine: The axes of the columns at full resolution, at least one.
        pure: Whether the noise is Laplace noise.
        needed: The share with which a tree finds a few cells in the expected rows, as `needed_share` returns it; 0 if they are not known.
    """
    power, parts = 1 / 2 if pure else 2 / 3, workload.weighted_parts()
    joint = {axes: weight for axes, weight in parts.items() if len(axes) > 1}
    if not joint:
        return Fraction(MOST_SHARE / len(shape)).limit_denominator(1000)
    single: list[float] = [(parts.get((axis,), 1) * size) ** power for axis, size in enumerate(shape)]
    cells = {axes: min(math.prod(shape[axis] for axis in axes), TYPICAL_CELLS) for axes in joint}
    mean = math.fsum((weight * cells[axes]) ** power for axes, weight in joint.items()) / len(joint)
    rounds = min(MOST_ROUNDS[pure], sum(len(axes) > 1 for axes in workload.marginals))
    share = math.fsum(single[axis] for axis in fine) / len(fine) / (math.fsum(single) + rounds * mean)
    least = min(LEAST, LEAST_TOGETHER / len(fine))
    limited = min(max(share, least, needed), MOST_TOGETHER / len(fine))
    return Fraction(limited).limit_denominator(1000 if limited >= 0.001 else 10**6)


@lru_cache(maxsize=1000)
def needed_share(rows: int, *, levels: float, epsilon: float, delta: float, protection: Protection) -> float:
    """Return the share with which a tree of so many levels finds `FEW_CELLS` cells in evenly distributed rows.

    The noise is that of an account in Gaussian DP, or in pure epsilon without a delta. Its own currency may have slightly more.
    """
    if delta == 0:
        whole = math.sqrt(2) * protection.sensitivity.l1 / epsilon
        return levels * FEW_CELLS * CELL_NOISE * whole / rows
    whole = math.sqrt(protection.sensitivity.l2_squared / epsilon_to_gdp(epsilon, delta=delta))
    return levels * (FEW_CELLS * CELL_NOISE * whole / rows) ** 2
