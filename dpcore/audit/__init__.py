"""Estimate privacy loss from outputs alone: lower bounds to compare with the amounts charged.

`one_run`, `bounds`, `events` and `goodness` are statistics and independent of any mechanism. `cases` uses them to audit the installed
code: each mechanism, and planted bugs that the audit must catch.
"""

from dpcore.audit.bounds import Tally, at_least, probability_bounds
from dpcore.audit.events import most_telling
from dpcore.audit.goodness import chi_square_p
from dpcore.audit.one_run import least_amount

__all__ = ["Tally", "at_least", "chi_square_p", "least_amount", "most_telling", "probability_bounds"]
