"""What a history of mechanisms amounts to under each theorem: composition, group privacy, divergences, privacy loss distributions.

Runs need none of it: their ledger adds amounts of one currency. `dpflow ledger theorems` shows it. Every result errs on the safe side.
"""

from dpcore.textbook.theorems.composition import (
    advanced_composition,
    basic_composition,
    group_approximate,
    group_gdp,
    group_pure,
    group_zcdp,
    parallel_approximate,
    parallel_composition,
)
from dpcore.textbook.theorems.coverings import pair_gdp, pair_zcdp
from dpcore.textbook.theorems.divergences import Pair
from dpcore.textbook.theorems.history import Comparison, Finding, compare_theorems
from dpcore.textbook.theorems.loss_sources import (
    approximate_losses,
    discrete_gaussian_losses,
    discrete_laplace_losses,
    gaussian_losses,
    laplace_losses,
    pair_losses,
)
from dpcore.textbook.theorems.losses import LossDistribution, compose_losses
from dpcore.textbook.theorems.noise import discrete_gaussian_delta, laplace_zcdp
from dpcore.textbook.theorems.optimal import mixed_composition, optimal_composition, optimal_composition_delta
from dpcore.textbook.theorems.steps import Step
from dpcore.textbook.theorems.theorems import Theorem

__all__ = [
    "Comparison",
    "Finding",
    "LossDistribution",
    "Pair",
    "Step",
    "Theorem",
    "advanced_composition",
    "approximate_losses",
    "basic_composition",
    "compare_theorems",
    "compose_losses",
    "discrete_gaussian_delta",
    "discrete_gaussian_losses",
    "discrete_laplace_losses",
    "gaussian_losses",
    "group_approximate",
    "group_gdp",
    "group_pure",
    "group_zcdp",
    "laplace_losses",
    "laplace_zcdp",
    "mixed_composition",
    "optimal_composition",
    "optimal_composition_delta",
    "pair_gdp",
    "pair_losses",
    "pair_zcdp",
    "parallel_approximate",
    "parallel_composition",
]
