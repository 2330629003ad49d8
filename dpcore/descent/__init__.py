"""Descend a declared tree by noisy counts, to find a column's frequent values, edges between bins, or its distribution at full resolution.

The tree is public and finite: all texts over an alphabet up to a length, or a grid between two bounds. Each level counts the rows
below a few candidates, with noise, and continues below those that stand out of the noise. The result is a function of noisy counts alone.
"""

from dpcore.descent.descent import Descent, Finding, Level, threshold
from dpcore.descent.grid import GridDescent, Ruler, binned
from dpcore.descent.prefixes import PrefixDescent
from dpcore.descent.standing import StandingOut
from dpcore.descent.tree import TreeDescent

__all__ = [
    "Descent",
    "Finding",
    "GridDescent",
    "Level",
    "PrefixDescent",
    "Ruler",
    "StandingOut",
    "TreeDescent",
    "binned",
    "threshold",
]
