"""What can be told about privacy from outputs alone: lower bounds to hold against what was charged.

`one_run`, `bounds`, `events` and `goodness` are statistics and know no mechanism. `cases` audits the installed code with them, each
mechanism beside planted bugs that must be caught.
"""

from dpcore.auditing.bounds import Tally, at_least, probability_bounds
from dpcore.auditing.events import most_telling
from dpcore.auditing.goodness import chi_square_p
from dpcore.auditing.one_run import least_epsilon

__all__ = ["Tally", "at_least", "chi_square_p", "least_epsilon", "most_telling", "probability_bounds"]
