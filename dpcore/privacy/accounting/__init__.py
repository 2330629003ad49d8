"""Privacy accounting: prices, conversions and composition in each currency.

Every result errs on the safe side: a price, an epsilon, a delta or a sigma is never below the true value, and a budget is
never above it.
"""

from dpcore.privacy.accounting.amounts import AMOUNT_OF_ONE, Currency, cap_amount, spend_amount
from dpcore.privacy.accounting.budgets import amount_of_group, budget_of, epsilon_of, mu_of
from dpcore.privacy.accounting.composition import (
    advanced_composition,
    basic_composition,
    parallel_approximate,
    parallel_composition,
)
from dpcore.privacy.accounting.conversions import epsilon_to_zcdp, zcdp_to_delta, zcdp_to_epsilon
from dpcore.privacy.accounting.coverings import pair_gdp, pair_zcdp
from dpcore.privacy.accounting.divergences import Pair
from dpcore.privacy.accounting.filters import PrivacyFilter
from dpcore.privacy.accounting.gaussian import epsilon_to_gdp, gdp_to_delta, gdp_to_epsilon, gdp_to_pure
from dpcore.privacy.accounting.groups import group_approximate, group_gdp, group_pure, group_zcdp
from dpcore.privacy.accounting.history import Comparison, Finding, compare_theorems
from dpcore.privacy.accounting.loss_sources import (
    approximate_losses,
    discrete_gaussian_losses,
    discrete_laplace_losses,
    gaussian_losses,
    laplace_losses,
    pair_losses,
)
from dpcore.privacy.accounting.losses import LossDistribution, compose_losses
from dpcore.privacy.accounting.optimal import mixed_composition, optimal_composition, optimal_composition_delta
from dpcore.privacy.accounting.prices import (
    discrete_laplace_zcdp,
    exponential_gdp,
    exponential_zcdp,
    gaussian_gdp,
    gaussian_zcdp,
    laplace_zcdp,
    pure_gdp,
    pure_zcdp,
)
from dpcore.privacy.accounting.promises import Cap, Promise, promise_of
from dpcore.privacy.accounting.sampler import sampler_delta
from dpcore.privacy.accounting.sigma import analytic_gaussian_sigma, classic_gaussian_sigma, discrete_gaussian_delta
from dpcore.privacy.accounting.steps import Step
from dpcore.privacy.accounting.theorems import Theorem

__all__ = [
    "AMOUNT_OF_ONE",
    "Cap",
    "Comparison",
    "Currency",
    "Finding",
    "LossDistribution",
    "Pair",
    "PrivacyFilter",
    "Promise",
    "Step",
    "Theorem",
    "advanced_composition",
    "amount_of_group",
    "analytic_gaussian_sigma",
    "approximate_losses",
    "basic_composition",
    "budget_of",
    "cap_amount",
    "classic_gaussian_sigma",
    "compare_theorems",
    "compose_losses",
    "discrete_gaussian_delta",
    "discrete_gaussian_losses",
    "discrete_laplace_losses",
    "discrete_laplace_zcdp",
    "epsilon_of",
    "epsilon_to_gdp",
    "epsilon_to_zcdp",
    "exponential_gdp",
    "exponential_zcdp",
    "gaussian_gdp",
    "gaussian_losses",
    "gaussian_zcdp",
    "gdp_to_delta",
    "gdp_to_epsilon",
    "gdp_to_pure",
    "group_approximate",
    "group_gdp",
    "group_pure",
    "group_zcdp",
    "laplace_losses",
    "laplace_zcdp",
    "mixed_composition",
    "mu_of",
    "optimal_composition",
    "optimal_composition_delta",
    "pair_gdp",
    "pair_losses",
    "pair_zcdp",
    "parallel_approximate",
    "parallel_composition",
    "promise_of",
    "pure_gdp",
    "pure_zcdp",
    "sampler_delta",
    "spend_amount",
    "zcdp_to_delta",
    "zcdp_to_epsilon",
]
