"""What privacy costs, and in which units: the arithmetic below every charge.

Everything here errs on the safe side: a spend, an epsilon or a delta is never smaller than the true value, and a
budget is never larger than it.
"""

from dpcore.accounting.amounts import UNIT, Currency, cap_units, spend_units
from dpcore.accounting.budgets import amount_of_group, budget_of, epsilon_of, mu_of
from dpcore.accounting.conversions import epsilon_to_zcdp, zcdp_to_delta, zcdp_to_epsilon
from dpcore.accounting.gaussian import epsilon_to_gdp, gdp_to_delta, gdp_to_epsilon, gdp_to_pure
from dpcore.accounting.prices import (
    basic_composition,
    discrete_laplace_zcdp,
    exponential_gdp,
    exponential_zcdp,
    gaussian_gdp,
    gaussian_zcdp,
    group_gdp,
    group_pure,
    group_zcdp,
    laplace_zcdp,
    pure_gdp,
    pure_zcdp,
)

__all__ = [
    "UNIT",
    "Currency",
    "amount_of_group",
    "basic_composition",
    "budget_of",
    "cap_units",
    "discrete_laplace_zcdp",
    "epsilon_of",
    "epsilon_to_gdp",
    "epsilon_to_zcdp",
    "exponential_gdp",
    "exponential_zcdp",
    "gaussian_gdp",
    "gaussian_zcdp",
    "gdp_to_delta",
    "gdp_to_epsilon",
    "gdp_to_pure",
    "group_gdp",
    "group_pure",
    "group_zcdp",
    "laplace_zcdp",
    "mu_of",
    "pure_gdp",
    "pure_zcdp",
    "spend_units",
    "zcdp_to_delta",
    "zcdp_to_epsilon",
]
