"""What a history of mechanisms amounts to under each theorem: composition, group privacy, divergences, privacy loss distributions.

Runs need none of it: their ledger adds amounts of one currency. `dpflow ledger theorems` shows it. Every result
errs on the safe side, except for an estimate by `numeric`.
"""

from dpcore.textbook.theorems.composition import (
    advanced_composition,
    basic_composition,
    group_approximate,
    parallel_composition,
)
from dpcore.textbook.theorems.divergences import Pair
from dpcore.textbook.theorems.history import Comparison, Finding, compare_theorems
from dpcore.textbook.theorems.noise import discrete_gaussian_delta, laplace_zcdp
from dpcore.textbook.theorems.numeric import (
    Losses,
    approximate_losses,
    discrete_gaussian_losses,
    gaussian_losses,
    laplace_losses,
    numeric_composition,
)
from dpcore.textbook.theorems.optimal import optimal_composition, optimal_composition_delta
from dpcore.textbook.theorems.steps import Step
from dpcore.textbook.theorems.theorems import Theorem

__all__ = [
    "Comparison",
    "Finding",
    "Losses",
    "Pair",
    "Step",
    "Theorem",
    "advanced_composition",
    "approximate_losses",
    "basic_composition",
    "compare_theorems",
    "discrete_gaussian_delta",
    "discrete_gaussian_losses",
    "gaussian_losses",
    "group_approximate",
    "laplace_losses",
    "laplace_zcdp",
    "numeric_composition",
    "optimal_composition",
    "optimal_composition_delta",
    "parallel_composition",
]
