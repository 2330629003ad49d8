"""Audit of a private tree: which nodes are split must follow from noisy counts, as the split itself is visible."""

from fractions import Fraction

import numpy as np

from dpcore.audit.case import Bug, Case
from dpcore.audit.checks import Draw, EventCheck
from dpcore.audit.events import Outcomes
from dpcore.descent import TreeDescent, threshold
from dpcore.mechanisms import DiscreteLaplace
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Sensitivity
from dpcore.universe.fine_numbers import FineInteger

PLACES = 128  # two levels
EPSILON = 0.5  # of a level
DRAWS = 1000


def _descents(rows: int, *, noise: DiscreteLaplace, by_true_counts: bool) -> Draw:
    """Descend the tree of a table with all rows at one place. The outcome is the number of intervals that are found."""
    column = FineInteger(minimum=0, maximum=PLACES - 1)

    def draw(count: int) -> Outcomes:
        return np.array([_intervals(TreeDescent(column, share=Fraction(1, 2))) for _ in range(count)], dtype=np.int64)

    def _intervals(descent: TreeDescent) -> int:
        while (candidates := descent.candidates) is not None:
            true = np.zeros(candidates.size, dtype=np.int64)
            true[0] = rows
            noisy = noise.draw(true)
            deviation = noise.standard_deviation
            least = threshold(true.size, noise=deviation, laplace=True)
            descent.take(true if by_true_counts else noisy, least=least, noise=deviation)
        return descent.number

    return draw


def private_tree() -> Case:
    """Return the audit of a column's tree at full resolution."""
    noise = DiscreteLaplace(scale=1 / EPSILON, sensitivity=Sensitivity(l1=1, l2_squared=1, linf=1))
    levels = TreeDescent(FineInteger(minimum=0, maximum=PLACES - 1), share=Fraction(1, 2)).levels
    rows = threshold(16, noise=noise.standard_deviation, laplace=True)

    def check(setting: str, *, by_true_counts: bool) -> EventCheck:
        return EventCheck(
            setting=setting,
            currency=Currency.PURE,
            charged=levels * noise.price(Currency.PURE),
            here=_descents(rows, noise=noise, by_true_counts=by_true_counts),
            there=_descents(rows - 1, noise=noise, by_true_counts=by_true_counts),
            draws=DRAWS,
        )

    return Case(
        name="private-tree",
        theorem="Each level counts a partition that follows from the noisy counts before it: levels compose adaptively, each at the price of one histogram.",
        reference="Dwork and Roth 2014, Thm. 3.16; Hay, Rastogi, Miklau and Suciu 2010",
        prices={Currency.PURE: "the sum of the levels' prices"},
        checks=(check("a node at the threshold, a row or none more", by_true_counts=False),),
        bugs=(
            Bug(
                name="split by the true count",
                how="a node is split if its true count, not its noisy one, reaches the threshold",
                check=check("a node at the threshold, split by its true count", by_true_counts=True),
            ),
        ),
    )
