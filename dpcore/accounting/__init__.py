"""What privacy costs, and in which units: the arithmetic below every charge.

Everything here errs on the safe side: a spend, an epsilon or a delta is never smaller than the true value, and a
budget is never larger than it.
"""

from dpcore.accounting.amounts import UNIT, Currency, cap_units, spend_units
from dpcore.accounting.conversions import budget_of, epsilon_to_zcdp, zcdp_to_delta, zcdp_to_epsilon
from dpcore.accounting.prices import (
    basic_composition,
    discrete_laplace_zcdp,
    exponential_zcdp,
    gaussian_zcdp,
    group_pure,
    group_zcdp,
    laplace_zcdp,
    pure_zcdp,
)

__all__ = [
    "UNIT",
    "Currency",
    "basic_composition",
    "budget_of",
    "cap_units",
    "discrete_laplace_zcdp",
    "epsilon_to_zcdp",
    "exponential_zcdp",
    "gaussian_zcdp",
    "group_pure",
    "group_zcdp",
    "laplace_zcdp",
    "pure_zcdp",
    "spend_units",
    "zcdp_to_delta",
    "zcdp_to_epsilon",
]
