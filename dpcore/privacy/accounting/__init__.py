"""Privacy accounting: prices, conversions and composition in each currency.

Every result errs on the safe side: a price, an epsilon, a delta or a sigma is never below the true value, and a budget is
never above it.
"""

from dpcore.privacy.accounting.amounts import (
    AMOUNT_OF_ONE,
    Currency,
    amount_of_group,
    budget_of,
    cap_amount,
    epsilon_of,
    mu_of,
    spend_amount,
)
from dpcore.privacy.accounting.conversions import epsilon_to_zcdp, zcdp_to_delta, zcdp_to_epsilon
from dpcore.privacy.accounting.gaussian import (
    epsilon_to_gdp,
    gdp_to_delta,
    gdp_to_epsilon,
    gdp_to_pure,
)
from dpcore.privacy.accounting.prices import (
    discrete_laplace_zcdp,
    exponential_gdp,
    exponential_zcdp,
    gaussian_gdp,
    gaussian_zcdp,
    pure_gdp,
    pure_zcdp,
)
from dpcore.privacy.accounting.promises import Cap, Promise, promise_of
from dpcore.privacy.accounting.sampler import sampler_delta

__all__ = [
    "AMOUNT_OF_ONE",
    "Cap",
    "Currency",
    "Promise",
    "amount_of_group",
    "budget_of",
    "cap_amount",
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
    "mu_of",
    "promise_of",
    "pure_gdp",
    "pure_zcdp",
    "sampler_delta",
    "spend_amount",
    "zcdp_to_delta",
    "zcdp_to_epsilon",
]
