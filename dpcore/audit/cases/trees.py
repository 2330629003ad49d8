"""Audit of a private tree: which nodes are split must follow from noisy counts, as the split itself is visible."""

import math

import numpy as np

from dpcore.audit.case import Bug, Case
from dpcore.audit.cases.outputs import event, told
from dpcore.audit.checks import Draw, EventCheck
from dpcore.descent import threshold
from dpcore.descent.tree import Tree
from dpcore.mechanisms import DiscreteLaplace
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Sensitivity

PARTS = (16, 8)  # of two levels


def _descents(rows: int, *, least: int, noise: DiscreteLaplace, by_true_counts: bool) -> Draw:
    """Descend the tree of a table with all rows at place 0, whose node is split if its count reaches `least`.

    The outcome tells how many levels were counted, and whether the last count of the place's node reaches `least`.
    """

    def outcome() -> int:
        tree, last = Tree(math.prod(PARTS), parts=PARTS, apart=0), 0
        while tree.starts is not None:
            true = np.zeros(1 + len(tree.starts), dtype=np.int64)
            true[0] = rows
            noisy = noise.draw(true)
            tree.take(true if by_true_counts else noisy, least=least, noise=noise.standard_deviation)
            last = int(noisy[0])
        return 2 * len(tree.levels) + (last >= least)

    return told(outcome)


def private_tree() -> Case:
    """Return the audit of a column's tree at full resolution."""
    noise = DiscreteLaplace(scale=2.0, sensitivity=Sensitivity(l1=1, l2_squared=1, linf=1))
    least = threshold(PARTS[0], noise=noise.standard_deviation, laplace=True)

    def check(setting: str, *, by_true_counts: bool, draws: int) -> EventCheck:
        return event(
            setting,
            lambda rows: _descents(rows, least=least, noise=noise, by_true_counts=by_true_counts),
            tables=(least, least - 1),
            paid=len(PARTS) * noise.price(Currency.PURE),
            draws=draws,
        )

    return Case(
        name="private-tree",
        theorem="Each level counts a partition that follows from the noisy counts before it: levels compose adaptively, each at the price of one histogram.",
        reference="Dwork and Roth 2014, Thm. 3.16; Hay, Rastogi, Miklau and Suciu 2010",
        prices={Currency.PURE: "the sum of the levels' prices"},
        checks=(check("a node at the threshold, or a row below", by_true_counts=False, draws=10_000),),
        bugs=(
            Bug(
                name="split by the true count",
                how="a node is split if its true count, not its noisy one, reaches the threshold",
                check=check("a node at the threshold", by_true_counts=True, draws=500),
            ),
        ),
    )
